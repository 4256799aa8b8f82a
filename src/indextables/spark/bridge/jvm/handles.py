"""What objects of the bridge need of the JVM, looked up once, and Arrow rows as Spark's rows.

A class looked up by its path costs three round trips, a kept handle none; a planner asks for the
same ones in every query.

What a table or a scan answers and does not change is asked once, too: to plan, print and compare a
query Spark asks each of them for its name hundreds of times. A proxy in the JVM stands before the
Python object and keeps its answers (`kept`). Its class is compiled by Janino, the compiler with
which Spark makes the code of queries; without Janino Spark asks the Python object each time.
"""

from __future__ import annotations

import functools
import json
import logging
import secrets
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import pyarrow as pa
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from indextables.errors import IndexTablesError
from indextables.predicate.literals import quoted_name
from indextables.spark.bridge.jvm import callbacks
from indextables.spark.schemas import with_plain_texts

logger = logging.getLogger(__name__)

V2 = "org.apache.spark.sql.connector."
PYTHON_UTILS = "org.apache.spark.api.python.PythonUtils"
_CHAR_VARCHAR = "org.apache.spark.sql.catalyst.util.CharVarcharUtils"
_PYTHON_SOURCE = "org.apache.spark.sql.execution.datasources.v2.python."

JavaObject = Any
"""An object of the JVM behind py4j."""


class Jvm:
    """Handles of one session: its gateway, and the classes and values that callbacks use."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self.context: Any = spark.sparkContext
        self.gateway: Any = self.context._gateway
        self.jvm: Any = self.context._jvm
        self.session: JavaObject = spark._jsparkSession
        callbacks.start(spark)
        _keep_type_util(self.jvm)
        self._pickle: Any = CloudPickleSerializer()  # type: ignore[no-untyped-call]
        # Spark's lists of the files of snapshots, by what they list; see `native`.
        self.indexes: OrderedDict[Any, tuple[JavaObject, JavaObject]] = OrderedDict()
        # Rows of small tables, by what was read; see `scans`.
        self.small_rows: OrderedDict[Any, JavaObject] = OrderedDict()

    @functools.cache  # noqa: B019 - lives as long as the session
    def find(self, name: str) -> Any:
        """A class by its whole name."""
        member = self.jvm
        for part in name.split("."):
            member = getattr(member, part)
        return member

    @functools.cache  # noqa: B019
    def module(self, name: str) -> JavaObject:
        """The instance of a Scala object."""
        return getattr(getattr(self.jvm, f"{name}$"), "MODULE$")

    @functools.cached_property
    def conf(self) -> JavaObject:
        """The session's configuration, as it is whenever it is asked."""
        return self.session.sessionState().conf()

    @functools.cached_property
    def none(self) -> JavaObject:
        """Scala's None."""
        return self.module("scala.None")

    def some(self, value: Any) -> JavaObject:
        """Scala's Some."""
        return self.constant("scala.Option", "apply")(value)

    def array(self, class_name: str, items: Sequence[Any] = ()) -> JavaObject:
        """A Java array. py4j refuses Python objects as elements; reflection does not."""
        if not items:
            return self._empty_array(class_name)
        array = self.gateway.new_array(self.find(class_name), len(items))
        put = self.constant("java.lang.reflect.Array", "set")
        for number, item in enumerate(items):
            put(array, number, item)
        return array

    @functools.cache  # noqa: B019
    def _empty_array(self, class_name: str) -> JavaObject:
        return self.gateway.new_array(self.find(class_name), 0)

    @functools.cache  # noqa: B019
    def constant(self, class_name: str, name: str) -> JavaObject:
        """A constant of a class, a value of an enumeration, or a static method.

        py4j asks the JVM for it each time that it is named.
        """
        return getattr(self.find(class_name), name)

    @functools.lru_cache(maxsize=256)  # noqa: B019
    def references(self, names: tuple[str, ...]) -> JavaObject:
        """An array of references to columns."""
        return self.array(V2 + "expressions.NamedReference", list(map(self.column, names)))

    def column(self, name: str) -> JavaObject:
        """A reference to a column. Spark parses what it is given, so the name is quoted."""
        return self.find(V2 + "expressions.Expressions").column(quoted_name(name))

    def strings(self, items: Iterable[str]) -> JavaObject:
        """A Java array of strings."""
        return self.array("java.lang.String", list(items))

    def seq(self, items: Sequence[Any]) -> JavaObject:
        """A Scala Seq."""
        return self.constant(PYTHON_UTILS, "toSeq")(list(items)) if items else self._empty_seq

    @functools.cached_property
    def _empty_seq(self) -> JavaObject:
        return self.find(PYTHON_UTILS).toSeq([])

    @functools.cached_property
    def empty_set(self) -> JavaObject:
        """An immutable Java set without elements."""
        return self.find("java.util.Collections").emptySet()

    def optional_long(self, value: int | None) -> JavaObject:
        """Java's optional number."""
        name = "java.util.OptionalLong"
        if value is None:
            return self.constant(name, "empty")()
        return self.constant(name, "of")(value)

    def hash_map(self, items: dict[str, str]) -> JavaObject:
        """A Java map."""
        return self.find("java.util.HashMap")(items)

    def struct_type(self, schema: StructType | str) -> JavaObject:
        """Spark's schema, or its JSON, in the JVM."""
        return self._struct_type(schema if isinstance(schema, str) else schema.json())

    @functools.lru_cache(maxsize=256)  # noqa: B019
    def _struct_type(self, text: str) -> JavaObject:
        return self.find("org.apache.spark.sql.types.DataType").fromJson(text)

    @functools.lru_cache(maxsize=256)  # noqa: B019
    def declared_struct(self, schema: str) -> JavaObject:
        """A schema (its JSON) with CHAR(n) and VARCHAR(n), which are texts with a note in the log.

        Spark pads and checks such columns by itself where a table declares them.
        """
        return self.find(_CHAR_VARCHAR).getRawSchema(self._struct_type(schema))

    def stored_struct(self, declared: JavaObject) -> JavaObject:
        """A schema in which CHAR(n) and VARCHAR(n) are texts with a note; see `declared_struct`."""
        return self.find(_CHAR_VARCHAR).replaceCharVarcharWithStringInSchema(declared)

    def plain_struct(self, schema: JavaObject, declared: StructType) -> JavaObject:
        """A schema, which is this one in Python, as it is of rows that come from Arrow."""
        plain = with_plain_texts(declared)
        return schema if plain == declared else self.struct_type(plain)

    @functools.lru_cache(maxsize=256)  # noqa: B019
    def v2_columns(self, schema: str) -> JavaObject:
        """The columns of a schema (its JSON) in the form of catalogs."""
        convert = self.find(V2 + "catalog.CatalogV2Util").structTypeToV2Columns
        try:
            return convert(self.declared_struct(schema), True)
        except Exception:  # Spark 4.1 takes one argument
            return convert(self.declared_struct(schema))

    def schema_of(self, java: JavaObject) -> StructType:
        """A schema of the JVM in Python."""
        return StructType.fromJson(json.loads(java.json()))

    def python_function(self, command: bytes) -> JavaObject:
        """A function for workers, which run this driver's Python."""
        empty = self.find("java.util.ArrayList")
        return self.find("org.apache.spark.api.python.SimplePythonFunction")(
            bytearray(command),
            self.hash_map(self.context.environment),
            empty(),
            self.context.pythonExec,
            f"{sys.version_info[0]}.{sys.version_info[1]}",
            empty(),
            self.context._javaAccumulator,
        )

    @functools.cached_property
    def _source(self) -> JavaObject:
        return self.find(_PYTHON_SOURCE + "UserDefinedPythonDataSource")(self.python_function(b""))

    def reader_factory(self, function: Any, schema: JavaObject) -> JavaObject:
        """Spark's own factory for readers that are Python functions."""
        declared = self.schema_of(schema)
        command = self._pickle.dumps((function, declared))
        return self.find(_PYTHON_SOURCE + "PythonPartitionReaderFactory")(
            self._source,
            bytearray(command),
            self.plain_struct(schema, declared),
            self.none,
            self.none,
        )

    def writer_factory(self, function: Any, schema: JavaObject) -> JavaObject:
        """Spark's own factory for writers that are Python functions."""
        command = self._pickle.dumps((function, StructType.fromDDL("message binary")))
        return self.find(_PYTHON_SOURCE + "PythonBatchWriterFactory")(
            self._source, bytearray(command), schema, self.none, self.none
        )

    def partitions(self, payloads: Sequence[bytes]) -> JavaObject:
        """Spark's input partitions, each with the payload of its task."""
        make = self.find(_PYTHON_SOURCE + "PythonInputPartition")
        return self.array(
            V2 + "read.InputPartition",
            [make(number, bytearray(payload)) for number, payload in enumerate(payloads)],
        )

    @functools.lru_cache(maxsize=64)  # noqa: B019
    def metrics(self, titles: tuple[tuple[str, str], ...]) -> JavaObject:
        """Metrics by name and title, for Spark to sum up.

        Spark makes metrics again from the name of their class, so they have to be Java's.
        """
        metric = self.find(_PYTHON_SOURCE + "PythonCustomMetric")
        return self.array(V2 + "metric.CustomMetric", [metric(*one) for one in titles])

    @functools.lru_cache(maxsize=256)  # noqa: B019
    def measured(self, values: tuple[tuple[str, int], ...]) -> JavaObject:
        """Values of metrics by name; those of a query that comes again are made once."""
        metric = self.find(_PYTHON_SOURCE + "PythonCustomTaskMetric")
        return self.array(V2 + "metric.CustomTaskMetric", [metric(*one) for one in values])

    def refusal(self, sentence: str, class_name: str = "IllegalArgumentException") -> Exception:
        """An exception that reaches the user as one sentence."""
        return self.exception(f"java.lang.{class_name}", sentence)

    def exception(self, name: str, *args: Any) -> Exception:
        """An exception of the JVM that a callback raises."""
        error: Exception = Py4JJavaError("", self.find(name)(*args))
        return error


def _keep_type_util(jvm: Any) -> None:
    """Look up once what PySpark looks up fourteen times to tell the kind of an error.

    Many statements begin with one: Spark refuses what it cannot do itself.
    """
    jvm.py4j = package = jvm.py4j
    package.reflection = reflection = package.reflection
    reflection.TypeUtil = reflection.TypeUtil


Class = TypeVar("Class", bound=type)


def implements(*interfaces: str) -> Callable[[Class], Class]:
    """Make a class one that the JVM can call, by these interfaces of `connector`.

    Errors of the package become Java exceptions with the same sentence. A class needs an attribute
    `java`, and every method that Spark may call: py4j finds no default methods.
    """

    def decorate(cls: Class) -> Class:
        methods: dict[str, Any] = {}
        for owner in reversed(cls.__mro__[:-1]):
            methods |= {n: m for n, m in vars(owner).items() if not n.startswith("_")}
        for name, member in methods.items():
            if callable(member) and name != "Java":
                setattr(cls, name, _guarded(member))
        names = [i if i.startswith(("org.", "java.", "scala.")) else V2 + i for i in interfaces]
        cls.Java = type("Java", (), {"implements": names})  # type: ignore[attr-defined]
        return cls

    return decorate


def _guarded(method: Callable[..., Any]) -> Callable[..., Any]:
    if getattr(method, "_guarded", False):
        return method

    @functools.wraps(method)
    def guarded(self: Any, *args: Any, **named: Any) -> Any:
        return guarded_call(self.java, functools.partial(method, self))(*args, **named)

    guarded._guarded = True  # type: ignore[attr-defined]
    return guarded


def guarded_call(java: Jvm, call: Callable[..., Any]) -> Callable[..., Any]:
    """A call whose errors are those of Java: one sentence, or the exception of the JVM itself."""

    def guarded(*args: Any, **named: Any) -> Any:
        try:
            return call(*args, **named)
        except IndexTablesError as error:
            raise java.refusal(str(error)) from error
        except Py4JJavaError:
            raise
        except CapturedException as error:  # PySpark's form of an exception of the JVM
            if error._origin is None:
                raise java.refusal(str(error)) from error
            raise Py4JJavaError("", error._origin) from error
        except Exception as error:
            logger.exception("An error inside indextables")
            raise java.refusal(
                f"An error inside indextables: {type(error).__name__}: {error}", "RuntimeException"
            ) from error

    return guarded


class Comparable:
    """Equality in the JVM. `equals` never receives the Python object, so contents are compared."""

    def key(self) -> str:
        """What two equal objects have in common and no others."""
        raise NotImplementedError

    def toString(self) -> str:  # noqa: N802 - Java's name
        return self.key()

    def hashCode(self) -> int:  # noqa: N802 - Java's name
        return hash(self.key()) & 0x7FFFFFFF

    def equals(self, other: JavaObject | None) -> bool:
        return other is not None and other.toString() == self.key()


class Unique(Comparable):
    """Equal to itself alone, as an object of Java is: what a plan holds while it is being made.

    Spark asks for the hash of a node's children where it has more than four of them.
    """

    def key(self) -> str:
        return f"{type(self).__name__} {id(self)}"


# --- Arrow rows as Spark's rows --------------------------------------------------------------

_ROW = "org.apache.spark.sql.catalyst.InternalRow"
_STREAM_BYTES = 16 << 20


def internal_rows(java: Jvm, table: pa.Table, schema: JavaObject) -> JavaObject:
    """A Java array of rows."""
    if not table.num_rows:
        return java.array(_ROW)
    if table.num_rows == 1 and all(map(pa.types.is_int64, table.schema.types)):
        return java.array(_ROW, [_counts(java, [column[0].as_py() for column in table.columns])])
    # Of a larger stream Spark makes a job that computes the rows.
    step = max(1, table.num_rows * _STREAM_BYTES // max(1, table.nbytes))
    pieces = [
        _streamed(java, table.slice(start, step), schema)
        for start in range(0, table.num_rows, step)
    ]
    if len(pieces) == 1:
        return pieces[0]
    every = java.gateway.new_array(java.find(_ROW), table.num_rows)
    for number, piece in enumerate(pieces):
        java.find("java.lang.System").arraycopy(piece, 0, every, number * step, len(piece))
    return every


def _counts(java: Jvm, numbers: list[int | None]) -> JavaObject:
    """One row of numbers in Spark's own form, bits for nulls and then the numbers.

    Counts are most of what is answered here, and this takes a few calls where a stream takes a
    query of its own.
    """
    nulls = sum(1 << at for at, number in enumerate(numbers) if number is None)
    data = nulls.to_bytes((len(numbers) + 63) // 64 * 8, sys.byteorder)
    data += b"".join((number or 0).to_bytes(8, sys.byteorder, signed=True) for number in numbers)
    row = java.find("org.apache.spark.sql.catalyst.expressions.UnsafeRow")(len(numbers))
    row.pointTo(bytearray(data), len(data))
    return row


def _streamed(java: Jvm, table: pa.Table, schema: JavaObject) -> JavaObject:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    stream_bytes = java.find("java.io.ByteArrayInputStream")(bytearray(sink.getvalue()))
    channel = java.constant("java.nio.channels.Channels", "newChannel")(stream_bytes)
    converters: Any = java.module("org.apache.spark.sql.execution.arrow.ArrowConverters")
    batches = converters.getBatchesFromStream(channel)
    frame = converters.toDataFrame(batches, schema.json(), java.session)
    rows = frame.logicalPlan().data()
    return rows.toArray(_row_tag(java))


@functools.lru_cache(maxsize=16)
def _row_tag(java: Jvm) -> JavaObject:
    return java.module("scala.reflect.ClassTag").apply(java.find("java.lang.Class").forName(_ROW))


# --- kept answers ----------------------------------------------------------------------------

_SOURCE = """
package indextables;

import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.BiFunction;

public class KEPT implements BiFunction {
    public Object apply(Object asked, Object names) {
        return Proxy.newProxyInstance(
            asked.getClass().getClassLoader(),
            asked.getClass().getInterfaces(),
            new Answers(asked, (Set) names));
    }

    public static class Answers implements InvocationHandler {
        private final Object asked;
        private final Set names;
        private final Map answers = new ConcurrentHashMap();
        private final ThreadLocal told = new ThreadLocal();

        public Answers(Object asked, Set names) {
            this.asked = asked;
            this.names = names;
        }

        public Object invoke(Object proxy, Method method, Object[] arguments) throws Throwable {
            String name = method.getName();
            if (arguments != null && arguments.length > 0) {
                if (name.equals("equals") && method.getDeclaringClass() == Object.class) {
                    Object other = arguments[0];
                    return Boolean.valueOf(other == proxy
                        || other != null && other.toString().equals(proxy.toString()));
                }
                if (name.equals("filter")) {
                    this.told.set(Boolean.TRUE);
                }
                return ask(method, arguments);
            }
            if (!this.names.contains(name)) {
                return ask(method, arguments);
            }
            if (name.equals("toBatch") && this.told.get() != null) {
                this.told.remove();
                return ask(method, arguments);
            }
            Object answer = this.answers.get(name);
            if (answer == null) {
                answer = ask(method, arguments);
                if (answer != null) {
                    this.answers.put(name, answer);
                }
            }
            return answer;
        }

        private Object ask(Method method, Object[] arguments) throws Throwable {
            try {
                return method.invoke(this.asked, arguments);
            } catch (InvocationTargetException error) {
                throw error.getCause();
            }
        }
    }
}
"""

_TABLE = (
    "name", "id", "version", "schema", "columns", "partitioning", "properties", "capabilities",
    "constraints", "metadataColumns", "canRenameConflictingMetadataColumns", "partitionSchema",
)  # fmt: skip
_SCAN = (
    "readSchema", "description", "columnarSupportMode", "supportedCustomMetrics",
    "reportDriverMetrics", "estimateSizeInBytes", "estimateStatistics", "filterAttributes",
    "reflectsFullyPushedDownFilters", "supportsIterativePushdown", "pushedPredicates",
    # A join's keys, told by `filter`, make the next one of that thread another batch.
    "toBatch", "rows",
)  # fmt: skip
_OF_ALL = ("toString", "hashCode")


def kept(java: Jvm, proxy: Comparable) -> JavaObject:
    """A table or a scan for Spark, whose unchanging answers stay in the JVM."""
    prepared = _prepared(java.gateway)
    if prepared is None:
        return proxy
    proxies, names = prepared
    return proxies.apply(proxy, names)


@functools.lru_cache(maxsize=16)
def _prepared(gateway: Any) -> tuple[JavaObject, JavaObject] | None:
    """What makes proxies in a JVM, and the names of the methods that are asked once."""
    # py4j distinguishes classes by their names, also those of two loaders.
    name = f"Kept{secrets.token_hex(8)}"
    try:
        compiler = gateway.jvm.org.codehaus.janino.SimpleCompiler()
        compiler.cook(_SOURCE.replace("KEPT", name))
        proxies = compiler.getClassLoader().loadClass(f"indextables.{name}").newInstance()
        return proxies, gateway.jvm.java.util.HashSet([*_TABLE, *_SCAN, *_OF_ALL])
    except Exception as error:
        logger.info("Spark asks Python for every answer of a table: %s", error)
        return None
