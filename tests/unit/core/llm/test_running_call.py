"""Deadlines and `close`: with any adapter, and for real connections on this machine."""

from __future__ import annotations

import contextvars
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import boto3
import httpx2
import pytest
import trustme
from botocore.config import Config

from core.errors import ModelUnavailable, StreamCut
from core.llm import running_call
from core.llm.bedrock import BedrockProvider
from core.llm.openai import OpenAIProvider
from core.llm.provider import Answer, End, Provider, TextPart
from core.llm.running_call import Connection, Part, RunningCall
from tests.support import converse
from tests.unit.core.llm.samples import request
from tests.unit.core.llm.test_openai import delta

ENDED = End(stop_reason="end", usage=None)


def call(*parts: Part | Exception, seconds: float = 5) -> RunningCall:
    """A call with these parts. An error among them is raised in its turn."""

    def make(_: Connection) -> Iterator[Part]:
        for part in parts:
            if isinstance(part, Exception):
                raise part
            yield part

    return RunningCall(make, seconds=seconds)


def test_the_parts_arrive_until_the_end() -> None:
    """Nothing follows the end."""
    assert list(call(TextPart("a"), TextPart("b"), ENDED, TextPart("c"))) == [TextPart("a"), TextPart("b"), ENDED]


def test_an_answer_without_its_end_is_cut() -> None:
    """Iteration never just stops."""
    parts = iter(call(TextPart("a")))
    assert next(parts) == TextPart("a")
    with pytest.raises(StreamCut) as caught:
        next(parts)
    assert caught.value.billed


def test_an_error_of_the_thread_is_raised_by_the_iteration() -> None:
    """Whatever it is, it reaches the caller."""
    with pytest.raises(ZeroDivisionError):
        list(call(TextPart("a"), ZeroDivisionError()))


def test_the_thread_has_the_context_of_the_caller() -> None:
    """Context variables have the same values, as with asyncio.to_thread."""
    variable = contextvars.ContextVar("variable", default="other")
    variable.set("caller's")
    first = next(iter(RunningCall(lambda _: iter([TextPart(variable.get()), ENDED]), seconds=5)))
    assert first == TextPart("caller's")


def test_no_request_is_sent_when_no_time_is_left() -> None:
    """Nothing was billed."""
    with pytest.raises(ModelUnavailable) as caught:
        list(call(ENDED, seconds=0))
    assert not caught.value.billed


def test_a_connection_that_opens_after_close_is_shut_down() -> None:
    """So a call that is closed while it connects does not go on; and each connection is shut down once."""
    connection, shut_down = Connection(), list[str]()
    connection.opened(lambda: shut_down.append("first"))
    connection.close()
    connection.close()
    connection.opened(lambda: shut_down.append("second"))
    assert shut_down == ["first", "second"]


# ── real connections ─────────────────────────────────────────────────────────────────────────────────────


AUTHORITY = trustme.CA()
TLS_SERVER, TLS_CLIENT = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
AUTHORITY.issue_cert("127.0.0.1").configure_cert(TLS_SERVER)
AUTHORITY.configure_trust(TLS_CLIENT)


@pytest.fixture(autouse=True)
def trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """boto3 trusts the servers of these tests."""
    bundle = tmp_path / "authority.pem"
    AUTHORITY.cert_pem.write_to_path(str(bundle))
    monkeypatch.setenv("AWS_CA_BUNDLE", str(bundle))


class SilentServer:
    """Accepts a connection, sends what it is given, and then only `drip` every 50 ms. Notes when it is closed."""

    def __init__(self, head: bytes, drip: bytes) -> None:
        self._head, self._drip = head, drip
        self._listener = TLS_SERVER.wrap_socket(socket.create_server(("127.0.0.1", 0)), server_side=True)
        self.url = f"https://127.0.0.1:{self._listener.getsockname()[1]}"
        self.closed_at = 0.0
        self.connections = 0
        self.sent = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        connection, _ = self._listener.accept()
        self.connections += 1
        with connection:
            received = b""
            while b"max" not in received:  # of the body
                received += connection.recv(65536)
            connection.sendall(self._head)
            self.sent.set()
            connection.settimeout(0.05)
            while not self._is_closed(connection):
                if self._drip:
                    connection.sendall(self._drip)
        self.closed_at = time.monotonic()

    def _is_closed(self, connection: socket.socket) -> bool:
        try:
            return connection.recv(1024) == b""
        except TimeoutError:
            return False
        except OSError:
            return True

    def join(self) -> None:
        self._thread.join(10)
        assert not self._thread.is_alive()
        self._listener.close()


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def head(content_type: str, first: bytes) -> bytes:
    fields = f"HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\nTransfer-Encoding: chunked\r\n\r\n"
    return fields.encode() + chunk(first)


def openai(url: str) -> Provider:
    return OpenAIProvider(f"{url}/v1", "", transport=httpx2.HTTPTransport(verify=TLS_CLIENT))


def bedrock(url: str) -> Provider:
    config = Config(retries={"total_max_attempts": 1}, read_timeout=30)
    return BedrockProvider(boto3.client("bedrock-runtime", endpoint_url=url, config=config))


OPENAI_HEAD = head("text/event-stream", delta(content="Hello"))
BEDROCK_HEAD = head(converse.EVENT_STREAM, converse.text_event("Hello"))
Make = Callable[[str], Provider]


@contextmanager
def running(
    make: Make, first: bytes, drip: bytes = b"", *, seconds: float = 20, stream: bool = True
) -> Iterator[tuple[SilentServer, Answer]]:
    server = SilentServer(first, drip)
    answer = make(server.url).call(request(stream=stream), seconds=seconds)
    assert server.sent.wait(10)
    yield server, answer
    server.join()
    assert server.connections == 1


@pytest.mark.enable_socket
@pytest.mark.parametrize(
    ("make", "first"),
    [(openai, OPENAI_HEAD), (openai, b""), (bedrock, BEDROCK_HEAD)],
    ids=["openai", "openai before the headers", "bedrock"],
)
def test_close_stops_a_call_while_another_thread_waits(make: Make, first: bytes) -> None:
    """The server sees the connection closed within a second, and the waiting thread gets StreamCut."""
    with running(make, first) as (server, answer):
        outcomes: list[object] = []
        waiting = threading.Thread(target=lambda: outcomes.extend(outcome(answer)))
        waiting.start()
        time.sleep(0.1)  # it waits for the next part by then
        closed = time.monotonic()
        answer.close()
        waiting.join(5)
    assert server.closed_at - closed < 1
    assert outcomes == [*([TextPart("Hello")] if first else []), StreamCut]


@pytest.mark.enable_socket
@pytest.mark.parametrize(
    ("make", "first"), [(openai, OPENAI_HEAD), (bedrock, BEDROCK_HEAD)], ids=["openai", "bedrock"]
)
def test_a_call_is_closed_with_the_iteration(make: Make, first: bytes) -> None:
    """A caller that has enough of an answer only stops iterating."""
    with running(make, first) as (server, answer):
        parts = iter(answer)
        assert next(parts) == TextPart("Hello")
        stopped = time.monotonic()
        del parts
    assert server.closed_at - stopped < 1


@pytest.mark.enable_socket
@pytest.mark.parametrize("make", [openai, bedrock])
@pytest.mark.parametrize(("stream", "least", "most"), [(True, 0.2, 1), (False, 1.5, 2.5)])
def test_a_silent_server(
    make: Make, stream: bool, least: float, most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream may be silent for a while only. An answer that is not streamed has all of its time."""
    monkeypatch.setattr(running_call, "LONGEST_SILENCE_SECONDS", 0.2)
    began = time.monotonic()
    with (
        running(make, b"", seconds=1.5, stream=stream) as (server, answer),
        pytest.raises(ModelUnavailable) as caught,
    ):
        list(answer)
    assert least <= server.closed_at - began < most
    assert caught.value.billed


def outcome(answer: Answer) -> Iterator[object]:
    """The parts, then the class of the error."""
    try:
        yield from answer
    except Exception as error:
        yield type(error)


@pytest.mark.enable_socket
@pytest.mark.parametrize(
    ("make", "first", "drip"),
    [
        (openai, OPENAI_HEAD, chunk(b": keep-alive\n\n")),
        (openai, b"HTTP/1.1 200 OK\r\n", b"X-Still: here\r\n"),
        (bedrock, BEDROCK_HEAD, chunk(converse.event("messageStart", {"role": "assistant"}))),
    ],
    ids=["openai", "openai in the headers", "bedrock"],
)
def test_the_deadline_ends_a_call_that_is_kept_alive(make: Make, first: bytes, drip: bytes) -> None:
    """A server that sends something, but no answer, is left after `seconds`, and it sees that."""
    began = time.monotonic()
    with running(make, first, drip, seconds=0.5) as (server, answer):
        with pytest.raises(ModelUnavailable, match=r"within 0\.5 s") as caught:
            list(answer)
        assert 0.5 <= time.monotonic() - began < 1.5
    assert caught.value.billed
    assert server.closed_at - began < 2


def test_a_call_to_bedrock_that_has_no_headers_yet() -> None:
    """boto3 cannot reach that connection. The iteration ends at once, the connection when its headers arrive."""
    release, response = threading.Event(), converse.Response(chunks=[converse.text_event("Hello")])

    def respond() -> converse.Response:
        assert release.wait(10)
        return response

    client, requests = converse.client(respond)
    answer = BedrockProvider(client).call(request(), seconds=20)
    answer.close()
    with pytest.raises(StreamCut, match="was stopped"):
        list(answer)
    release.set()
    assert response.shut_down.wait(10)
    assert len(requests) == 1
