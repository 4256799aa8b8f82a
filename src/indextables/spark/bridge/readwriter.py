"""`spark.read.format("indextables")` and `df.write.format("indextables")`.

Spark finds a data source by the name of a JVM class or in its list of Python sources, and neither
way reaches the bridge. So `load` and `save` of the reader and writer are wrapped: for index tables
they go through the bridge where a session has one, and through the public data source elsewhere.
Other formats are passed on unchanged. The wrapper also decides what Spark leaves undecided for
Python sources: the save modes `error` and `ignore`, `partitionBy`, and the session's configuration.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from indextables.config import is_own_key, session_keys
from indextables.errors import ConfigError, SchemaError, StatementError
from indextables.jobs.write_job import Exclusive, WriteKind, plan_write
from indextables.lake.opening import view_of
from indextables.plan.access import NAME, PROVIDERS, ChosenRows, SourceOptions, TableAccess
from indextables.predicate.literals import quoted_name, time_zone
from indextables.predicate.search_names import SEVERAL_COLUMNS
from indextables.predicate.spark_tokens import ALL_FIELDS
from indextables.schema import SCORE
from indextables.spark.bridge import patches
from indextables.spark.bridge.sessions import (
    bridge_of,
    is_enabled,
    is_registered,
    make_active,
    new_session,
    scala_dict,
    session_settings,
    without_analysis_log,
)
from indextables.spark.schemas import table_schema
from indextables.spark.streams import StreamOptions, check_stream, is_stream_option
from indextables.statements.forms import form, words_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def install(spark: SparkSession) -> None:
    """Route the reads and writes of a classic session."""
    patches.install(
        spark,
        {
            "DataFrameReader.load": _load,
            "DataFrameWriter.save": _save,
            "DataFrameWriter.saveAsTable": _save_as_table,
            "DataStreamReader.load": _load_stream,
            "DataStreamReader.table": _stream_of_table,
            "DataStreamWriter.start": _start_stream,
            "DataStreamWriter.toTable": _stream_to_table,
            "Catalog.listTables": _list_tables,
            "Catalog.tableExists": _table_exists,
            "SparkSession.newSession": new_session,
        },
    )


def install_remote(spark: SparkSession) -> None:
    """Complete the reads and writes of a client of Spark Connect; the server does the rest."""
    patches.install(spark, {"DataFrameReader.load": _load_remotely,
                            "DataFrameWriter.save": _save_remotely})  # fmt: skip


def _load_remotely(
    original: Callable[..., DataFrame],
    reader: Any,
    path: Any = None,
    format: str | None = None,  # noqa: A002 - Spark's name
    schema: Any = None,
    **options: Any,
) -> DataFrame:
    provider, spark = format or reader._format or "", reader._client
    if provider.lower() in PROVIDERS and is_enabled(spark):
        options = {**_of_session(spark), **reader._options, **options}
    return original(reader, path, format, schema, **options)


def _save_remotely(  # noqa: PLR0917 - Spark's arguments
    original: Callable[..., None],
    writer: Any,
    path: str | None = None,
    format: str | None = None,  # noqa: A002 - Spark's name
    mode: str | None = None,
    partitionBy: Any = None,  # noqa: N803 - Spark's name
    **options: Any,
) -> None:
    """Spark refuses `partitionBy` of a Python source; to ours it is an option."""
    provider, spark = format or writer._write.source or "", writer._spark
    if provider.lower() in PROVIDERS and is_enabled(spark):
        if partitionBy is not None:
            writer.partitionBy(partitionBy)
            partitionBy = None  # noqa: N806
        if columns := list(writer._write.partitioning_cols or ()):
            writer.option("partitionBy", json.dumps(columns))
            writer._write.partitioning_cols = []
        writer.options(**{**_of_session(spark), **writer._write.options})
    return original(writer, path, format, mode, partitionBy, **options)


def _of_session(spark: Any) -> dict[str, str]:
    """What a worker of the server is not told of the session: our keys, and the time zone."""
    settings = session_settings(spark)
    texts = {name: str(value) for name, value in session_keys(settings).items()}
    return {**texts, "timezone": settings.get("spark.sql.session.timeZone") or "UTC"}


# --- reading ---------------------------------------------------------------------------------


def _load(
    original: Callable[..., DataFrame],
    reader: Any,
    path: str | list[str] | None = None,
    format: str | None = None,  # noqa: A002 - Spark's name
    schema: Any = None,
    **options: Any,
) -> DataFrame:
    provider = format if format is not None else reader._jreader.source()
    spark = reader._spark
    if provider.lower() not in PROVIDERS or not is_enabled(spark):
        return original(reader, path, format, schema, **options)
    if schema is not None:
        reader.schema(schema)
    reader.options(**options)
    if reader._jreader.userSpecifiedSchema().isDefined():
        raise SchemaError("An index table has a schema of its own. Leave out schema(…).")
    set_options = scala_dict(reader._jreader.extraOptions())
    paths = [path] if isinstance(path, str) else list(path or ())
    if paths:
        set_options |= {"path": paths[0], "paths": json.dumps(paths)}
    settings = session_settings(spark)
    parsed = SourceOptions.parse(set_options, settings)
    if parsed.timestamp is not None:
        parsed = replace(parsed, timestamp=_in_session_zone(spark, parsed.timestamp))
    frames = [
        _load_one(original, reader, parsed, place)
        for place in parsed.paths or (parsed.access().path,)
    ]
    return functools.reduce(lambda left, right: left.unionByName(right), frames)


def _load_one(
    original: Callable[..., DataFrame], reader: Any, options: SourceOptions, path: str
) -> DataFrame:
    spark = reader._spark
    access = options.access(path)
    bridge = bridge_of(spark)
    view = functools.partial(view_of, access, version=options.version, timestamp=options.moment)
    if bridge is not None and not options.chosen.needs_table(lambda: view().config):
        return chosen_rows(bridge.read(access, options), options.chosen)
    view()  # an error here is a sentence, in a worker it is a traceback
    fresh = spark.read.format(NAME)
    for name, value in scala_dict(reader._jreader.extraOptions()).items():
        if name.lower() not in ("path", "paths"):
            fresh = fresh.option(name, value)
    if options.timestamp is not None:
        fresh = fresh.option("timestampAsOf", options.timestamp)
    fresh = fresh.option("timezone", spark.conf.get("spark.sql.session.timeZone") or "UTC")
    handed = {
        name if is_own_key(name) else f"spark.hadoop.{name}": value
        for name, value in options.stores.items()
    }
    for name, setting in {**options.config, **options.storage, **handed}.items():
        fresh = fresh.option(name, str(setting))
    return original(fresh, path)


def chosen_rows(frame: DataFrame, chosen: ChosenRows) -> DataFrame:
    """The rows of an index table that a read asks for; those of a search have scores."""
    from pyspark.sql import functions as f

    if chosen.where is not None:
        frame = frame.where(chosen.where)
    if chosen.search is None:
        return frame
    query = f.lit(chosen.search)
    if len(chosen.fields) == 1:
        matches = f.call_function("indexquery", f.col(quoted_name(chosen.fields[0])), query)
    elif chosen.fields:
        fields = f.struct(*(f.col(quoted_name(name)) for name in chosen.fields))
        matches = f.call_function(SEVERAL_COLUMNS, fields, query)
    else:
        matches = f.call_function("indexqueryall", f.col(ALL_FIELDS), query)
    shown = [
        f.call_function("indextables_snippet", f.col(quoted_name(name)), query).alias(
            f"_snippet_{name}"
        )
        for name in chosen.snippets
    ]
    ranked = frame.where(matches).select("*", SCORE, *shown).orderBy(f.desc(SCORE))
    return ranked if chosen.limit is None else ranked.limit(chosen.limit)


def _in_session_zone(spark: SparkSession, text: str) -> str:
    """A time without a zone is meant in the session's, as in TIMESTAMP AS OF."""
    try:
        moment = datetime.datetime.fromisoformat(text.strip())
    except ValueError:
        return text
    if moment.tzinfo is not None or text.strip().isdecimal():
        return text
    zone = time_zone(spark.conf.get("spark.sql.session.timeZone") or "UTC")
    return moment.replace(tzinfo=zone).isoformat()


def create_view(
    spark: SparkSession, text: str, run: Callable[[str], DataFrame]
) -> DataFrame | None:
    """CREATE TEMPORARY VIEW … USING indextables, as a view that the index answers.

    Spark's would be one of the public data source: without the index, and, where the statement
    lists columns, with the default mapping. A view of a path is a query, which `run` makes the
    view of, and shows the newest version; with more options it is one of a read. Without a path it
    has no rows, as in Spark. None for other statements.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    try:
        plan = spark._jsparkSession.sessionState().sqlParser().parsePlan(text)
    except PySparkException:
        return None  # Spark reports the mistake
    if plan.getClass().getSimpleName() != "CreateTempViewUsing":
        return None
    view, options = plan.tableIdent(), scala_dict(plan.options())
    if plan.provider().lower() not in PROVIDERS or view.database().isDefined():
        return None
    name, is_global = view.table(), getattr(plan, "global")()
    has_path = "path" in map(str.lower, options)
    declared = plan.userSpecifiedSchema()
    if declared.isDefined() and has_path:
        raise SchemaError(
            "An index table has columns of its own. Leave them out: CREATE TEMPORARY VIEW "
            f"{quoted_name(name)} USING {NAME} OPTIONS (path '…')."
        )
    if has_path and len(options) == 1:
        kind = ("OR REPLACE " if plan.replace() else "") + ("GLOBAL " if is_global else "")
        (path,) = options.values()
        return run(
            f"CREATE {kind}TEMPORARY VIEW {quoted_name(name)} AS "
            f"SELECT * FROM {NAME}.{quoted_name(path)}"
        )
    if declared.isDefined():  # no table: columns without rows
        schema = StructType.fromJson(json.loads(declared.get().json()))
        frame = spark.createDataFrame([], schema)
    else:
        frame = spark.read.format(NAME).options(**options).load()
    create = ("createOrReplace" if plan.replace() else "create") + ("Global" if is_global else "")
    getattr(frame, f"{create}TempView")(name)
    return spark.createDataFrame([], StructType([]))


# --- writing ---------------------------------------------------------------------------------


def _save(  # noqa: PLR0917 - Spark's arguments
    original: Callable[..., None],
    writer: Any,
    path: str | None = None,
    format: str | None = None,  # noqa: A002 - Spark's name
    mode: str | None = None,
    partitionBy: Any = None,  # noqa: N803 - Spark's name
    **options: Any,
) -> None:
    java = writer._jwrite
    provider = format if format is not None else java.source()
    spark = writer._spark
    if provider.lower() not in PROVIDERS or not is_enabled(spark):
        return original(writer, path, format, mode, partitionBy, **options)
    writer.mode(mode).options(**options)
    if partitionBy is not None:
        writer.partitionBy(partitionBy)
    java = writer._jwrite
    _refuse_buckets(java)
    set_options = scala_dict(java.extraOptions())
    if path is not None:
        set_options |= {"path": path}
    columns = java.partitioningColumns()
    if columns.isDefined():
        names = _in_columns_case(spark, _as_list(columns.get()), writer._df.columns)
        set_options["partitionBy"] = json.dumps(names)
    parsed = SourceOptions.parse(set_options, session_settings(spark))
    parsed.chosen.refuse()
    access = parsed.access()
    kind, exclusive = _write_kind(java.curmode().name(), parsed)
    if exclusive == "ignore" and access.log().exists():
        return None
    # What is wrong is an error here; in a worker it would be a traceback.
    job = plan_write(
        access.log(),
        table_schema(writer._df.schema),
        settings=access.settings,
        kind=kind,
        where=parsed.replace_where,
        partition_by=parsed.partition_by,
        merge_schema=parsed.merge_schema,
        overwrite_schema=parsed.overwrite_schema,
        exclusive=exclusive,
        checked_by_spark=bridge_of(spark) is not None,
    )
    bridge = bridge_of(spark)
    if bridge is not None:
        bridge.write(writer._df, access, job)
        return None
    fresh = writer._df.write.format(NAME).mode("append" if kind == "append" else "overwrite")
    retry_options = {name: value for name, value in set_options.items() if name.lower() != "path"}
    retry_options["partitionOverwriteMode"] = "dynamic" if parsed.dynamic else "static"
    for name, value in {**parsed.config, **parsed.storage, **retry_options}.items():
        fresh = fresh.option(name, str(value))
    return original(fresh, access.path)


def _save_as_table(
    original: Callable[..., None], writer: Any, name: str, *args: Any, **kwargs: Any
) -> None:
    if is_enabled(writer._spark):
        make_active(writer._spark)
    return original(writer, name, *args, **kwargs)


# --- streams ---------------------------------------------------------------------------------


def _load_stream(
    original: Callable[..., DataFrame],
    reader: Any,
    path: str | None = None,
    format: str | None = None,  # noqa: A002 - Spark's name
    schema: Any = None,
    **options: Any,
) -> DataFrame:
    """`readStream`: the public source, with the session's configuration."""
    provider = format if format is not None else reader._jreader.source()
    if provider.lower() not in PROVIDERS or not is_enabled(reader._spark):
        return original(reader, path, format, schema, **options)
    reader.options(**options)
    set_options = scala_dict(reader._jreader.extraOptions())
    stream = {name: set_options.pop(name) for name in list(set_options) if is_stream_option(name)}
    since = {n: v for n, v in stream.items() if n.lower() == "startingtimestamp"}
    reader.options(**{n: _in_session_zone(reader._spark, v) for n, v in since.items()})
    parsed = _with_session(reader, set_options, path)
    # An error here is a sentence, in a worker it is a traceback.
    check_stream(parsed, StreamOptions.parse(stream))
    return original(reader, path, format, schema)


def _stream_of_table(original: Callable[..., DataFrame], reader: Any, tableName: str) -> DataFrame:  # noqa: N803 - Spark's name
    """`readStream.table`: the source at the place of the name.

    Spark itself would want a streaming read of the table, which Python cannot offer.
    """
    from pyspark.errors import AnalysisException

    bridge = bridge_of(reader._spark) if is_enabled(reader._spark) else None
    if bridge is None:
        return original(reader, tableName)
    try:
        with without_analysis_log():
            return original(reader, tableName)
    except AnalysisException as error:
        unable = error.getCondition() == "UNSUPPORTED_FEATURE.TABLE_OPERATION"
    access = _place_of(bridge, _name_of(tableName)) if unable else None
    if access is None:
        return original(reader, tableName)  # to raise the error again, and log it
    chosen = scala_dict(reader._jreader.extraOptions())  # come before the table's
    reader.options(**{**access.config, **access.storage, **chosen})
    rows: DataFrame = reader.load(access.path, NAME)
    return rows


def _name_of(text: str) -> tuple[str, ...]:
    """The parts of a table's name; none if it is not one."""
    named = form("TABLE <table>").match(words_of(f"TABLE {text}") or ())
    return named["table"].name if isinstance(named, Mapping) else ()


def _place_of(bridge: Any, name: tuple[str, ...]) -> TableAccess | None:
    """Where the index table of a name is; None if there is none, or no bridge."""
    with contextlib.suppress(StatementError):  # a name of another catalog
        return bridge.place_of(name) if bridge is not None and name else None
    return None


def _start_stream(  # noqa: PLR0917 - Spark's arguments
    original: Callable[..., Any],
    writer: Any,
    path: str | None = None,
    format: str | None = None,  # noqa: A002 - Spark's name
    outputMode: str | None = None,  # noqa: N803 - Spark's name
    partitionBy: Any = None,  # noqa: N803 - Spark's name
    queryName: str | None = None,  # noqa: N803 - Spark's name
    **options: Any,
) -> Any:
    """`writeStream`: the public source, with the session's configuration and `partitionBy`."""
    provider = format if format is not None else writer._jwrite.source()
    spark = writer._spark
    if provider.lower() not in PROVIDERS or not is_enabled(spark):
        return original(writer, path, format, outputMode, partitionBy, queryName, **options)
    writer.options(**options)
    if partitionBy is not None:
        writer.partitionBy(partitionBy)
    columns = writer._jwrite.partitioningColumns()
    if columns.isDefined():
        writer.option("partitionBy", json.dumps(_as_list(columns.get())))
    set_options = scala_dict(writer._jwrite.extraOptions())
    set_options.setdefault("partitionOverwriteMode", "static")
    _with_session(writer, set_options, path)
    return original(writer, path, format, outputMode, None, queryName)


def _stream_to_table(  # noqa: PLR0917 - Spark's arguments
    original: Callable[..., Any],
    writer: Any,
    tableName: str,  # noqa: N803 - Spark's name
    format: str | None = None,  # noqa: A002 - Spark's name
    outputMode: str | None = None,  # noqa: N803 - Spark's name
    partitionBy: Any = None,  # noqa: N803 - Spark's name
    queryName: str | None = None,  # noqa: N803 - Spark's name
    **options: Any,
) -> Any:
    """`toTable`: the sink at the place of the name. A table that is not there is created first.

    Spark itself would want a streaming write of the table, which Python cannot offer.
    """
    bridge = bridge_of(writer._spark) if is_enabled(writer._spark) else None
    name = _name_of(tableName)
    provider = format if format is not None else writer._jwrite.source()
    access = _place_of(bridge, name)
    if access is None and bridge is not None and name and provider.lower() in PROVIDERS:
        access = _created(writer, bridge, name, partitionBy, options)
    if access is None:
        return original(writer, tableName, format, outputMode, partitionBy, queryName, **options)
    merged = {**scala_dict(writer._jwrite.extraOptions()), **options}  # come before the table's
    writer.options(**{**access.config, **access.storage, **merged, "path": access.path})
    return writer.start(None, NAME, outputMode, partitionBy, queryName)


def _created(
    writer: Any, bridge: Any, name: Sequence[str], partition_by: Any, options: dict[str, Any]
) -> TableAccess | None:
    """A new table for a stream, with its columns and options; None if the name is taken."""
    spark = writer._spark
    if spark.catalog.tableExists(".".join(map(quoted_name, name))):
        return None
    merged = {**scala_dict(writer._jwrite.extraOptions()), **options}
    access: TableAccess = bridge.new_place(name, merged.pop("path", None))
    rows = spark.createDataFrame([], writer._df.schema).write.format(NAME).mode("ignore")
    if partition_by is not None:
        writer.partitionBy(partition_by)
    columns = writer._jwrite.partitioningColumns()
    if columns.isDefined():
        rows = rows.partitionBy(_as_list(columns.get()))
    rows.options(**merged).save(access.path)
    bridge.register(name, access)
    return access


def _with_session(stream: Any, options: dict[str, str], path: str | None) -> SourceOptions:
    """Set what the session says of index tables and stores; options come first."""
    if path is not None:
        options = {**options, "path": path}
    parsed = SourceOptions.parse(options, session_settings(stream._spark))
    for name, value in {**parsed.config, **parsed.storage}.items():
        stream.option(name, str(value))
    return parsed


def _refuse_buckets(java: Any) -> None:
    """Only a table with a name is declared with them, as of Spark's own formats."""
    for buckets, name in (
        (java.numBuckets(), "bucketBy"),
        (java.sortColumnNames(), "sortBy"),
        (java.clusteringColumns(), "clusterBy"),
    ):
        if buckets.isDefined():
            raise ConfigError(
                f"A path takes no {name}, which lays out no rows. Use partitionBy, or saveAsTable."
            )


def _in_columns_case(spark: SparkSession, names: list[str], columns: list[str]) -> list[str]:
    """Names of columns as the columns spell them, where the session takes either case."""
    if str(spark.conf.get("spark.sql.caseSensitive")).lower() == "true":
        return names
    spelled = {column.lower(): column for column in reversed(columns)}
    return [name if name in columns else spelled.get(name.lower(), name) for name in names]


def remember_names(spark: SparkSession) -> None:
    """Register the tables of the warehouse with Spark, which is about to list them."""
    bridge = bridge_of(spark)
    if bridge is not None:
        bridge.remember_names()


def _list_tables(original: Callable[..., Any], catalog: Any, *args: Any, **kwargs: Any) -> Any:
    if is_registered(catalog._sparkSession):
        remember_names(catalog._sparkSession)
    return original(catalog, *args, **kwargs)


# Of the sentences that our catalog has for a table that is not there.
_MISSING = ("There is no index table ", " is not an index table: ")


def _table_exists(original: Callable[..., bool], catalog: Any, *args: Any, **kwargs: Any) -> bool:
    from pyspark.errors import IllegalArgumentException

    try:
        return original(catalog, *args, **kwargs)
    except IllegalArgumentException as error:
        # Our catalog raises an error, since Spark would take its name for a file format.
        if any(sentence in str(error) for sentence in _MISSING):
            return False
        raise


def _write_kind(mode: str, options: SourceOptions) -> tuple[WriteKind, Exclusive]:
    other_options = options.replace_where is not None or options.dynamic or options.merge_schema
    if options.overwrite_schema and (mode != "Overwrite" or other_options):
        raise ConfigError(
            "overwriteSchema replaces all rows and columns: use it with mode('overwrite'), and "
            "without replaceWhere, mergeSchema and dynamic partition overwrite."
        )
    if mode == "Overwrite":
        if options.replace_where is not None:
            return "where", None
        return ("partitions" if options.dynamic else "overwrite"), None
    if options.replace_where is not None:
        raise ConfigError("replaceWhere replaces rows: use it with mode('overwrite').")
    exclusive: dict[str, Exclusive] = {"ErrorIfExists": "error", "Ignore": "ignore"}
    return "append", exclusive.get(mode)


# --- Scala's collections ---------------------------------------------------------------------


def _as_list(scala_seq: Any) -> list[str]:
    return [scala_seq.apply(i) for i in range(scala_seq.size())]
