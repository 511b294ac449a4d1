"""local.model.server: HTTP on loopback, and what a closed connection ends."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from local.model.events import Caller
from local.model.server import HOST, server, upstream
from local.model.service import Service
from local.model.upstreams import Fake, HttpUpstream, Llama
from tests.unit.local.model.calls import CHAT, switch

pytestmark = pytest.mark.enable_socket
STREAMED = {**CHAT, "stream": True}


@contextlib.contextmanager
def serving(service: Service) -> Iterator[int]:
    listening = server(service)
    thread = threading.Thread(target=listening.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield listening.server_port
    finally:
        listening.shutdown()
        listening.server_close()
        thread.join()


class Watched(Fake):
    """`open_calls`: those that still compute. `made`: words."""

    open_calls = made = 0

    def chunks(self, body: dict[str, Any], caller: Caller) -> Iterator[dict[str, Any]]:
        self.open_calls += 1
        try:
            for chunk in super().chunks(body, caller):
                self.made += 1
                yield chunk
        finally:
            self.open_calls -= 1


@pytest.fixture
def fake() -> Watched:
    return Watched(words=6)


@pytest.fixture
def model(fake: Watched) -> Service:
    """A server of OpenAI's protocol somewhere."""
    return Service(fake)


@pytest.fixture
def port(model: Service) -> Iterator[int]:
    """Our server before that one."""
    with (
        serving(model) as behind,
        serving(Service(HttpUpstream(lambda: f"http://{HOST}:{behind}/v1", name="theirs"))) as port,
    ):
        yield port


@contextlib.contextmanager
def requested(port: int, body: dict[str, Any]) -> Iterator[http.client.HTTPConnection]:
    """A connection on which a completion has been asked for."""
    with contextlib.closing(http.client.HTTPConnection(HOST, port, timeout=5)) as connection:
        connection.request("POST", "/v1/chat/completions", json.dumps(body))
        yield connection


def soon(what: Callable[[], object]) -> bool:
    deadline = time.monotonic() + 1
    while not what():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def test_answers_pass_through_another_server(port: int) -> None:
    """Text, finish reason and usage; one connection serves several requests."""
    with requested(port, CHAT) as connection:
        for _ in range(2):
            answer = json.load(connection.getresponse())
            assert answer["choices"][0]["message"]["content"] == "one two three one two three"
            assert answer["choices"][0]["finish_reason"] == "stop"
            assert answer["usage"]["total_tokens"] == 9
            connection.request("POST", "/v1/chat/completions", json.dumps(CHAT))


def test_text_arrives_while_it_is_made(port: int, fake: Watched) -> None:
    """The first word is here while the model has most of its answer before it."""
    fake.set({"words": 100_000, "seconds_per_word": 0.001})
    with requested(port, STREAMED) as connection, connection.getresponse() as response:
        assert b"assistant" in response.readline() + response.readline()
        assert b"one" in response.readline() + response.readline()
        assert fake.made < 10_000


@pytest.mark.parametrize("seconds_per_word", [0.001, 1000], ids=["talking", "silent"])
@pytest.mark.parametrize("body", [CHAT, STREAMED], ids=["whole", "streamed"])
def test_a_caller_that_leaves_ends_the_call(
    port: int, fake: Watched, body: dict[str, Any], seconds_per_word: float
) -> None:
    """Within a second the model behind both servers computes no more, also if it has not said a word yet."""
    fake.set({"words": 100_000, "seconds_per_word": seconds_per_word})
    with requested(port, body):
        assert soon(lambda: fake.open_calls)
    assert soon(lambda: not fake.open_calls)


def test_a_caller_that_leaves_in_mid_stream_ends_the_call(port: int, model: Service, fake: Watched) -> None:
    """What was computed until then is counted, and the answer is not counted as completed."""
    fake.set({"words": 100_000, "seconds_per_word": 0.001})
    with requested(port, STREAMED) as connection, connection.getresponse() as response:
        response.read(1000)
    assert soon(lambda: not fake.open_calls)
    assert 0 < model.calls.total("output_tokens") < 100_000
    assert model.calls.total("completed") == 0


def test_a_cut_is_no_orderly_end(port: int, model: Service) -> None:
    """The client sees that the answer is incomplete, through both servers."""
    switch(model, cut_after_deltas=2)
    with (
        requested(port, STREAMED) as connection,
        connection.getresponse() as response,
        pytest.raises(http.client.IncompleteRead),
    ):
        response.read()


@pytest.mark.parametrize(("status", "retry_after"), [(429, "7"), (500, None)])
def test_errors_pass_through(port: int, model: Service, status: int, retry_after: str | None) -> None:
    """With their status, their words and Retry-After."""
    switch(model, status=status, **({"retry_after": retry_after} if retry_after else {}))
    with requested(port, CHAT) as connection, connection.getresponse() as response:
        assert (response.status, response.headers["retry-after"]) == (status, retry_after)
        assert "switched on" in json.load(response)["error"]["message"]


def test_a_model_that_is_not_reached_is_unavailable() -> None:
    """The status is 503. /health names its URL."""
    service = Service(HttpUpstream(lambda: f"http://{HOST}:1/v1"))
    response = service.handle("POST", "/v1/chat/completions", {}, json.dumps(CHAT).encode())
    assert response.status == 503
    health = service.handle("GET", "/health", {}, b"")
    assert f"nothing answers at http://{HOST}:1/v1" in json.loads(b"".join(health.body))["status"]


def test_a_model_that_cannot_start_is_unavailable(tmp_path: Any, capfd: pytest.CaptureFixture[str]) -> None:
    """Its server runs all the same, and says what is missing."""
    service = Service(Llama(tmp_path / "python", tmp_path / "model.gguf"))
    body = json.dumps({**CHAT, "model": "smollm2-135m-instruct"}).encode()
    response = service.handle("POST", "/v1/chat/completions", {}, body)
    assert response.status == 503
    assert "make setup" in json.loads(b"".join(response.body))["error"]["message"]
    assert "does not start" in capfd.readouterr().out


def test_where_answers_come_from(tmp_path: Any) -> None:
    """From another server, if RECADO_MODEL_URL names one."""
    assert isinstance(upstream({"RECADO_MODEL_URL": "fake"}), Fake)
    assert type(upstream({"RECADO_MODEL_URL": "http://127.0.0.1:11434/v1"})) is HttpUpstream


def test_other_paths_are_not_found(service: Service) -> None:
    """The message says which path it was."""
    response = service.handle("GET", "/v1/embeddings", {}, b"")
    assert response.status == 404
    assert "/v1/embeddings" in json.loads(b"".join(response.body))["message"]
