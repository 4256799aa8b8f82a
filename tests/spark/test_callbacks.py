"""Only the session's own JVM may call the objects of this process, and only what they declare."""

from __future__ import annotations

import socket
import time

import pytest

from indextables.errors import UnsafeCallbacksError
from indextables.spark.bridge.jvm import callbacks


class Recorder:
    """What the JVM could call, if somebody let it: a function of foreachBatch."""

    class Java:
        implements = (
            "org.apache.spark.sql.execution.streaming.sources.PythonForeachBatchFunction",
        )

    def __init__(self, jvm):
        self.jvm = jvm
        self.calls = []

    def call(self, *arguments):
        self.calls.append(arguments)
        return str(self.jvm.java.lang.System.nanoTime())  # a question to whoever called

    def helper(self):
        self.calls.append("helper")


class Stranger:
    """Another program on the machine, with the port and nothing else."""

    def __init__(self, gateway):
        server = gateway._callback_server
        self.socket = socket.create_connection(
            (server.get_listening_address(), server.get_listening_port()), timeout=60
        )
        self.lines = self.socket.makefile("rb")

    def say(self, *lines):
        """Send lines; the first line of the answer, empty where the connection was closed."""
        try:
            self.socket.sendall("".join(f"{line}\n" for line in lines).encode())
            return self.lines.readline().decode().strip()
        except ConnectionError:
            return ""

    def close(self):
        self.lines.close()
        self.socket.close()


@pytest.fixture
def gateway(spark):
    return spark.sparkContext._gateway


@pytest.fixture
def connect(gateway):
    """Makes a connection as any program can."""
    made = []

    def connect():
        made.append(Stranger(gateway))
        return made[-1]

    yield connect
    for stranger in made:
        stranger.close()


@pytest.fixture
def recorder(spark, gateway):
    pool = gateway.gateway_property.pool
    made = Recorder(spark.sparkContext._jvm)
    made.id = pool.put(made)
    yield made
    del pool[made.id]


@pytest.mark.parametrize("greeting", [(), ("A", "wrong", "e"), ("A", "", "e"), ("A", "None", "e")])
def test_a_program_without_the_token_calls_nothing(gateway, recorder, connect, greeting):
    stranger = connect()
    if greeting:
        assert not stranger.say(*greeting).startswith("!y")
    assert stranger.say("c", recorder.id, "call", "e") == ""
    assert stranger.say("!ys1") == ""
    assert not recorder.calls
    collected = connect()  # nor lets it go of the object
    assert collected.say("g", recorder.id, "e") == ""
    assert recorder.id in gateway.gateway_property.pool


@pytest.mark.parametrize("start", [b"", b"A\n", b"A\nx\n"])
def test_a_program_that_never_ends_its_line_is_cut_off(connect, start):
    stranger = connect()
    sent = 0
    with pytest.raises(ConnectionError):
        stranger.socket.sendall(start)
        while sent < 64 << 20:  # far more than the buffers of both ends
            stranger.socket.sendall(b"x" * 65_536)
            sent += 65_536


def test_a_program_that_says_nothing_is_cut_off(monkeypatch, connect, gateway):
    monkeypatch.setattr(callbacks, "GREETING_SECONDS", 0.2)
    silent = connect()
    assert silent.say("A") == ""
    slow = connect()
    with pytest.raises(ConnectionError):
        while True:  # a byte now and then is no greeting either
            slow.socket.sendall(b"x")
            time.sleep(0.05)
    monkeypatch.undo()
    friend = connect()
    assert friend.say("A", gateway.callback_server_parameters.auth_token, "e") == "!yv"


def test_the_port_is_on_this_machine_alone(gateway):
    assert gateway._callback_server.get_listening_address() == "127.0.0.1"


def test_the_gateways_own_token_is_not_told_to_who_listens(gateway):
    assert gateway.callback_server_parameters.auth_token
    assert gateway.callback_server_parameters.auth_token != gateway.gateway_parameters.auth_token


@pytest.mark.parametrize("method", ["__setattr__", "__init__", "helper", "calls", "jvm", "no_such"])
def test_only_methods_of_the_interfaces_are_called(gateway, recorder, connect, method):
    friend = connect()
    assert friend.say("A", gateway.callback_server_parameters.auth_token, "e") == "!yv"
    answer = friend.say("c", recorder.id, method, "sjvm", "sx", "e")
    assert answer.startswith("!x")
    assert method in answer
    assert not recorder.calls
    assert recorder.jvm != "x"


def test_queries_and_streams_call_as_ever(spark, gateway, tmp_path):
    import indextables

    before = gateway._callback_server
    assert indextables.enable(spark) is spark
    indextables.enable(spark.newSession())
    assert gateway._callback_server is before
    path = str(tmp_path / "t")
    seen = []

    def store(batch, number):
        batch.write.format("indextables").mode("append").save(path)
        seen.append(number)

    stream = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", 3)
        .load()
        .writeStream.foreachBatch(store)
        .trigger(availableNow=True)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    assert stream.awaitTermination(120)
    assert seen
    assert spark.sql(f"SELECT count(*) FROM indextables.`{path}`").collect()[0][0] == 3 * len(seen)


def test_a_port_that_was_open_before_is_closed_to_strangers(spark, gateway, recorder, connect):
    _open_to_all(gateway)
    early = connect()
    assert early.say("c", recorder.id, "helper", "e").startswith("!x")  # heard, so connected
    callbacks.start(spark)
    assert early.say("c", recorder.id, "call", "e") == ""
    assert connect().say("c", recorder.id, "call", "e") == ""
    assert not recorder.calls
    assert spark.read.format("indextables") is not None
    assert spark.sql("SHOW NAMESPACES IN indextables").collect() is not None


def test_a_port_that_a_stream_uses_is_refused_in_a_sentence(spark, gateway, tmp_path):
    query = spark.readStream.format("rate").load().writeStream.foreachBatch(lambda *_: None).start()
    _open_to_all(gateway)
    try:
        with pytest.raises(UnsafeCallbacksError, match="before the first stream"):
            callbacks.start(spark)
    finally:
        query.stop()
        callbacks.start(spark)


def _open_to_all(gateway):
    """The state that PySpark leaves when it starts the port itself."""
    gateway.callback_server_parameters.auth_token = None
    callbacks.set_java_token(gateway, None)
