"""The port by which the JVM calls objects of this process, closed to everybody else.

PySpark opens it for streams without authentication: another user of the machine could call every
object behind it, and answer the questions that a call asks the JVM. So callbacks have a secret of
their own, which both ends hold before the first object can be called: the JVM sends it on each new
connection, and py4j's server here ends a connection that does not begin with it, in few bytes and
soon. It is not the gateway's own token, which would then be sent to whatever listens on that port.

What may be called is what an object's interfaces declare, as the JVM knows them.
"""

from __future__ import annotations

import functools
import re
import secrets
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from py4j import clientserver, java_gateway, protocol  # type: ignore[import-untyped]
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

from indextables.errors import UnsafeCallbacksError
from indextables.spark.bridge.sockets import close_idle_connections

_LOOPBACK = "127.0.0.1"
_OF_EVERY_OBJECT = frozenset(("equals", "hashCode", "toString"))
_METHOD = re.compile(r"\.([\w$]+)\(")
GREETING_BYTES = 256
"""A connection begins with three lines: a command, the secret of 64 letters, an end."""
GREETING_SECONDS = 10.0


def start(spark: SparkSession) -> None:
    """Start the port, or close one that PySpark opened to strangers. Doing it twice does nothing.

    Raises:
        UnsafeCallbacksError: The port is open already and a stream may be using it.
    """
    gateway: Any = spark.sparkContext._gateway
    _allow_declared_methods_only()
    _limit_greetings()
    close_idle_connections()
    parameters = gateway.callback_server_parameters
    # Looked up in the dictionary: py4j asks the JVM for an attribute that it does not find.
    server = gateway.__dict__.get("_callback_server")
    if server is None:
        parameters.address = _LOOPBACK
        parameters.auth_token = secrets.token_hex(32)
        ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
        set_java_token(gateway, parameters.auth_token)
    elif parameters.auth_token is None:
        session: Any = spark._jsparkSession
        if session.sharedState().activeStreamingQueries().size():
            raise UnsafeCallbacksError
        parameters.auth_token = secrets.token_hex(32)
        ours = _java_server(gateway)
        # A new client of the JVM: the old one holds connections that are closed below.
        ours.resetCallbackClient(ours.getCallbackClient().getAddress(), server.port)
        set_java_token(gateway, parameters.auth_token)
        for connection in list(server.connections):
            java_gateway.quiet_shutdown(connection.socket)
    parameters.propagate_java_exceptions = True


def set_java_token(gateway: Any, token: str | None) -> None:
    """Let the JVM begin each connection to this process with a token.

    py4j has no method for it: its client forgets the token whenever its port is set.
    """
    classes = gateway.jvm.java.lang.Class
    field = classes.forName("py4j.CallbackClient").getDeclaredField("authToken")
    field.setAccessible(True)
    field.set(_java_server(gateway).getCallbackClient(), token)


def _java_server(gateway: Any) -> Any:
    return java_gateway.JavaObject("GATEWAY_SERVER", gateway._gateway_client)


def _allow_declared_methods_only() -> None:
    for owner in (clientserver.ClientServerConnection, java_gateway.CallbackConnection):
        original = owner._call_proxy
        if not getattr(original, "_checks_method", False):
            owner._call_proxy = _checked(original)


def _limit_greetings() -> None:
    for owner, name, stream in (
        (clientserver.ClientServerConnection, "wait_for_commands", "stream"),
        (java_gateway.CallbackConnection, "run", "input"),
    ):
        original = getattr(owner, name)
        if not getattr(original, "_limits_greeting", False):
            setattr(owner, name, _greeted(original, stream))


def _greeted(original: Any, stream: str) -> Any:
    @functools.wraps(original)
    def listen(self: Any) -> Any:
        parameters = getattr(self, "python_parameters", None) or self.callback_server_parameters
        if parameters.auth_token is not None:
            setattr(self, stream, _Greeting(self.socket, getattr(self, stream)))
        return original(self)

    listen._limits_greeting = True  # type: ignore[attr-defined]
    return listen


class _Greeting:
    """A stream whose first three lines are short and arrive soon; py4j would read for ever."""

    def __init__(self, socket: Any, stream: Any) -> None:
        self._socket, self._stream = socket, stream
        self._timeout = socket.gettimeout()
        self._until = time.monotonic() + GREETING_SECONDS
        self._bytes, self._lines = GREETING_BYTES, 3

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def readline(self) -> bytes:
        if not self._lines:
            line: bytes = self._stream.readline()
            return line
        greeting = bytearray()
        while not greeting.endswith(b"\n"):
            left = self._until - time.monotonic()
            if left <= 0 or len(greeting) >= self._bytes:
                raise protocol.Py4JAuthenticationError("A connection did not begin with a token.")
            self._socket.settimeout(left)
            byte = self._stream.read(1)
            if not byte:
                break
            greeting += byte
        self._bytes -= len(greeting)
        self._lines -= 1
        self._socket.settimeout(self._timeout)
        return bytes(greeting)


def _checked(original: Any) -> Any:
    @functools.wraps(original)
    def call(self: Any, obj_id: str, lines: Any) -> Any:
        if obj_id not in self.pool:
            return original(self, obj_id, lines)
        first = lines.readline()
        method = first.decode()[:-1]
        client = getattr(self, "java_client", None) or self.gateway_client
        declared = tuple(self.pool[obj_id].Java.implements)
        if method in _OF_EVERY_OBJECT or method in _methods(declared, client):
            return original(self, obj_id, _Again(first, lines))
        self._get_params(lines)  # what follows is the next command
        refusal = f"'{method}' is not a method of {', '.join(declared)}."
        return protocol.RETURN_MESSAGE + protocol.ERROR + protocol.get_command_part(refusal)

    call._checks_method = True  # type: ignore[attr-defined]
    return call


@functools.lru_cache(maxsize=256)
def _methods(interfaces: tuple[str, ...], client: Any) -> frozenset[str]:
    """The names of all methods of some interfaces, inherited ones too.

    py4j sends what a callback asks to its caller. This question is asked on another thread, which
    has a connection to the JVM of its own.
    """

    def ask() -> str:
        find = java_gateway.JavaClass("py4j.reflection.ReflectionUtil", client).classForName
        show = java_gateway.JavaClass("scala.runtime.ScalaRunTime", client).stringOf
        return "".join(show(find(name).getMethods()) for name in interfaces)

    with ThreadPoolExecutor(1) as thread:
        return frozenset(_METHOD.findall(thread.submit(ask).result()))


class _Again:
    """Lines of which the first one was read already."""

    def __init__(self, first: bytes, rest: Any) -> None:
        self._first: bytes | None = first
        self._rest = rest

    def readline(self) -> bytes:
        first, self._first = self._first, None
        line: bytes = self._rest.readline() if first is None else first
        return line
