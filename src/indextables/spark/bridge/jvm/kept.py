"""Answers of tables and scans that the JVM keeps.

Every call between Spark and Python is a round trip between two processes, and to plan, print and
compare a query Spark asks each table and scan for its name hundreds of times. What does not change
is asked once: a proxy in the JVM stands before the Python object and keeps its answers. Its class
is compiled by Janino, the compiler that Spark itself makes the code of queries with; where there is
none, Spark asks the Python object as often as it likes.
"""

from __future__ import annotations

import functools
import logging
import secrets
from typing import Any

from indextables.spark.bridge.jvm.handles import Comparable, JavaObject, Jvm

logger = logging.getLogger(__name__)

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
    "name", "id", "version", "schema", "columns", "partitioning", "capabilities", "constraints",
    "metadataColumns", "canRenameConflictingMetadataColumns", "partitionSchema",
)  # fmt: skip
_SCAN = (
    "readSchema", "description", "columnarSupportMode", "supportedCustomMetrics",
    "reportDriverMetrics", "estimateSizeInBytes", "estimateStatistics", "filterAttributes",
    "reflectsFullyPushedDownFilters", "supportsIterativePushdown", "pushedPredicates",
    # A join's keys, told by `filter`, make the next one of that thread another batch.
    "toBatch", "rows",
)  # fmt: skip
_OF_ALL = ("toString", "hashCode")


def kept(java: Jvm, asked: Comparable) -> JavaObject:
    """A table or a scan for Spark, whose unchanging answers stay in the JVM."""
    prepared = _prepared(java.gateway)
    if prepared is None:
        return asked
    proxies, names = prepared
    return proxies.apply(asked, names)


@functools.lru_cache(maxsize=16)
def _prepared(gateway: Any) -> tuple[JavaObject, JavaObject] | None:
    """What makes proxies in a JVM, and the names of the methods that are asked once."""
    # py4j tells classes by their names, also those of two loaders.
    name = f"Kept{secrets.token_hex(8)}"
    try:
        compiler = gateway.jvm.org.codehaus.janino.SimpleCompiler()
        compiler.cook(_SOURCE.replace("KEPT", name))
        proxies = compiler.getClassLoader().loadClass(f"indextables.{name}").newInstance()
        return proxies, gateway.jvm.java.util.HashSet([*_TABLE, *_SCAN, *_OF_ALL])
    except Exception as error:
        logger.info("Spark asks Python for every answer of a table: %s", error)
        return None
