"""local.model.faults: each switch, in both protocols, and the counts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError

from local.model.events import Caller, CallerGone, ConnectionCut
from local.model.faults import COUNTED, LASTING, Faults
from local.model.service import Response, Service, prompt_key
from tests.unit.local.model.calls import CHAT, HELLO, sent_events, switch, text_of

Post = Callable[[dict[str, Any]], tuple[int, bytes]]
STREAMED = {**CHAT, "stream": True}


class Impatient(Caller):
    """A caller that leaves instead of waiting. `waits`: for how long it was to wait."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float | None] = []

    def wait(self, seconds: float | None = None) -> None:
        self.waits.append(seconds)
        if seconds is None or len(self.waits) > 3:
            raise CallerGone


def chat(service: Service, body: dict[str, Any], caller: Caller | None = None) -> Response:
    return service.handle("POST", "/v1/chat/completions", {}, json.dumps(body).encode(), caller)


def test_throttles_are_counted(service: Service, bedrock: Any, post: Post) -> None:
    """The next n calls are refused with 429 and Retry-After, in the provider's words; then one is answered."""
    switch(service, throttle=2, retry_after="120")
    with pytest.raises(bedrock.exceptions.ThrottlingException) as raised:
        bedrock.converse_stream(**HELLO)
    assert raised.value.response["ResponseMetadata"]["HTTPHeaders"]["retry-after"] == "120"
    refused = chat(service, CHAT)
    assert (refused.status, refused.headers["retry-after"]) == (429, "120")
    assert json.loads(b"".join(refused.body))["error"]["code"] == "rate_limit_exceeded"
    assert post(CHAT)[0] == 200


def test_a_status(service: Service, bedrock: Any, post: Post) -> None:
    """Every call gets it until the switches are reset."""
    switch(service, status=503)
    for _ in range(2):
        with pytest.raises(bedrock.exceptions.ServiceUnavailableException):
            bedrock.converse(**HELLO)
    assert post(CHAT)[0] == 503
    assert service.handle("DELETE", "/faults", {}, b"").status == 200
    assert post(CHAT)[0] == 200


@pytest.mark.parametrize("body", [CHAT, STREAMED])
def test_a_hang_before_the_headers(service: Service, body: dict[str, Any]) -> None:
    """There is no response until the caller leaves."""
    switch(service, hang_before_headers=1)
    with pytest.raises(CallerGone):
        chat(service, body, Impatient())
    assert chat(service, body).status == 200


def test_a_hang_in_mid_stream(service: Service) -> None:
    """The first pieces arrive, and nothing after them."""
    switch(service, hang_after_deltas=2)
    caller, got = Impatient(), list[bytes]()
    with pytest.raises(CallerGone):
        got += chat(service, STREAMED, caller).body
    assert [b'"content": "one"' in piece or b'"content": " two"' in piece for piece in got] == [False, True, True]
    assert caller.waits == [None]


@pytest.mark.parametrize("after", [0, 2, 100])
def test_a_cut(service: Service, bedrock: Any, after: int) -> None:
    """The connection ends after so many pieces, at the latest before the end of the answer."""
    switch(service, cut_after_deltas=after)
    got: list[dict[str, Any]] = []
    with pytest.raises(ConnectionCut):
        got += bedrock.converse_stream(**HELLO)["stream"]
    assert len(text_of(got).split()) == min(after, 6)
    assert not [event for event in got if "messageStop" in event]
    with pytest.raises(ConnectionCut):
        chat(service, CHAT)


def test_an_end_without_the_end(service: Service, bedrock: Any, post: Post) -> None:
    """The stream ends in good order, but nothing says that the answer is complete."""
    switch(service, end_after_deltas=2)
    events = list(bedrock.converse_stream(**HELLO)["stream"])
    assert text_of(events) == "one two"
    assert next(iter(events[-1])) == "contentBlockDelta"
    _, body = post(STREAMED)
    assert body.count(b'"content": ') == 3
    assert b"[DONE]" not in body
    assert b'"stop"' not in body


def test_malformed_answers(service: Service, bedrock: Any, post: Post) -> None:
    """Their JSON ends in the middle, streamed or not. botocore reads such JSON as an empty object."""
    switch(service, malformed=4)
    assert "output" not in bedrock.converse(**HELLO)
    assert list(bedrock.converse_stream(**HELLO)["stream"])[-1] == {"contentBlockDelta": {}}
    for body in (CHAT, STREAMED):
        status, content = post(body)
        assert status == 200
        with pytest.raises(ValueError, match=r".+"):
            json.loads(content.decode().rstrip().rsplit("data: ")[-1])
    assert post(CHAT)[0] == 200


def test_an_error_in_the_stream(service: Service, bedrock: Any, post: Post) -> None:
    """After some pieces, and without an HTTP status; a response that is not streamed has the status."""
    switch(service, error_in_stream=429, error_after_deltas=1)
    got: list[dict[str, Any]] = []
    with pytest.raises(ClientError) as raised:
        got += bedrock.converse_stream(**HELLO)["stream"]
    assert raised.value.response["Error"]["Code"] == "throttlingException"
    assert text_of(got) == "one"
    status, body = post(STREAMED)
    *_, last = body.decode().strip().split("\n\n")
    assert status == 200
    assert json.loads(last.removeprefix("data: "))["error"]["code"] == "rate_limit_exceeded"
    assert post(CHAT)[0] == 429


def test_an_error_as_the_first_event(service: Service, post: Post) -> None:
    """The status is 200 all the same."""
    switch(service, error_in_stream=500, error_after_deltas=0)
    status, body = post(STREAMED)
    assert status == 200
    assert b'"content": "one"' not in body
    assert b'"error"' in body


def test_keep_alives_without_text(service: Service) -> None:
    """They come at the given pace until the caller leaves."""
    switch(service, drip=0.5)
    caller, got = Impatient(), list[bytes]()
    with pytest.raises(CallerGone):
        got += chat(service, STREAMED, caller).body
    assert got[1:] == [b": keep-alive\n\n"] * 4
    assert caller.waits == [0.5] * 4
    body = json.dumps({"messages": HELLO["messages"]}).encode()
    frames = service.handle("POST", "/model/m/converse-stream", {}, body, Impatient()).body
    with pytest.raises(CallerGone):
        assert all(b'"text": ""' in frame for frame in list(frames)[1:])


def test_no_usage(service: Service, bedrock: Any, post: Post) -> None:
    """Answers are whole, but nobody says how many tokens they have."""
    switch(service, no_usage=True)
    events = list(bedrock.converse_stream(**HELLO)["stream"])
    assert next(iter(events[-1])) == "messageStop"
    assert "usage" not in bedrock.converse(**HELLO)
    with_usage = {**STREAMED, "stream_options": {"include_usage": True}}
    assert all(chunk["choices"] for chunk in sent_events(post(with_usage)[1]))


def test_faults_at_random_are_the_same_for_a_seed() -> None:
    """All kinds occur, with the given probability."""

    def drawn(seed: int) -> list[str]:
        faults = Faults()
        faults.set({"probability": 0.5, "seed": seed, **dict.fromkeys((*COUNTED, *LASTING), 10_000)})
        return [faults.draw().kind for _ in range(1000)]

    assert drawn(1) == drawn(1) != drawn(2)
    assert set(drawn(1)) == {"", *COUNTED, *LASTING}
    assert 400 < drawn(1).count("") < 600


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"throtle": 1}', b'{"throttle": "x"}'])
def test_unknown_switches_are_refused(service: Service, body: bytes) -> None:
    """So no test runs without the fault that it means."""
    assert service.handle("PUT", "/faults", {}, body).status == 400


def calls(service: Service) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(b"".join(service.handle("GET", "/calls", {}, b"").body))
    return body


def counts(number: dict[str, Any]) -> Iterator[int]:
    return (number[name] for name in ("requests", "completed", "input_tokens", "output_tokens"))


def test_calls_and_what_was_billed_are_counted(service: Service, bedrock: Any) -> None:
    """Of an answer that was cut, the tokens that were computed; by the last message, or by an idempotency key."""
    switch(service, cut_after_deltas=2)
    with pytest.raises(ConnectionCut):
        list(bedrock.converse_stream(**HELLO)["stream"])
    switch(service)
    bedrock.converse(**HELLO)
    body = json.dumps(CHAT).encode()
    service.handle("POST", "/v1/chat/completions", {"idempotency-key": "k1"}, body)
    found = calls(service)
    requests, completed, input_tokens, output_tokens = counts(found["by_key"][prompt_key("one two three")])
    assert (requests, completed) == (2, 1)
    assert input_tokens == 3
    assert 6 + 2 <= output_tokens <= 6 + 3
    assert list(counts(found["by_key"]["k1"])) == [1, 1, 3, 6]
    assert found["requests"] == 3
    service.handle("DELETE", "/calls", {}, b"")
    assert calls(service)["requests"] == 0


def test_a_refused_request_is_a_call_too(service: Service, post: Post) -> None:
    """One that is throttled is counted, and computes nothing."""
    switch(service, throttle=1)
    post(CHAT)
    assert list(counts(calls(service))) == [1, 0, 0, 0]
