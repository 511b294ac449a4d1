"""Sending to WebSockets (core.live.sockets)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError, ConnectionClosedError, EndpointConnectionError, ReadTimeoutError
from hypothesis import given
from hypothesis import strategies as st

from core.live.sockets import MAX_THREADS, SendOutcome, Sockets
from tests.unit.gateway import GONE, THROTTLED, Gateway

URL = "https://live.example.com"
OUTCOMES: dict[str | Exception, SendOutcome] = {
    GONE: SendOutcome.GONE,
    THROTTLED: SendOutcome.FAILED,
    "ForbiddenException": SendOutcome.FAILED,
    "PayloadTooLargeException": SendOutcome.FAILED,
    "InternalServerError": SendOutcome.FAILED,
    ReadTimeoutError(endpoint_url=URL): SendOutcome.FAILED,
    ConnectionClosedError(endpoint_url=URL): SendOutcome.FAILED,
    EndpointConnectionError(endpoint_url=URL): SendOutcome.FAILED,
    ClientError({}, "PostToConnection"): SendOutcome.FAILED,
}


@pytest.fixture
def gateway() -> Gateway:
    return Gateway()


@pytest.mark.parametrize("error", OUTCOMES, ids=str)
def test_outcomes(gateway: Gateway, error: str | Exception) -> None:
    """Only GoneException means GONE. Other errors mean FAILED and are not raised."""
    gateway.errors["a"] = error
    assert Sockets(gateway).send("a", ["x"]) is OUTCOMES[error]


def test_sent(gateway: Gateway) -> None:
    """Messages are sent in UTF-8, in order. Without messages nothing is sent."""
    assert Sockets(gateway).send("a", ["1", "ñ👩‍🚀"]) is SendOutcome.SENT
    assert gateway.sent["a"] == ["1", "ñ👩‍🚀"]
    gateway.errors["b"] = GONE
    assert Sockets(gateway).send("b", []) is SendOutcome.SENT


def test_no_message_after_a_failure(gateway: Gateway) -> None:
    """After a failed message no other is sent, so that there is no gap."""
    post = gateway.post_to_connection

    def post_but_the_second(**options: Any) -> None:
        gateway.errors = {"a": THROTTLED} if options["Data"] == b"2" else {}
        post(**options)

    gateway.post_to_connection = post_but_the_second  # type: ignore[method-assign]
    assert Sockets(gateway).send("a", ["1", "2", "3"]) is SendOutcome.FAILED
    assert gateway.sent["a"] == ["1"]


@given(
    st.dictionaries(st.text(min_size=1), st.tuples(st.lists(st.text()), st.none() | st.sampled_from([*OUTCOMES])))
)
def test_many_at_once(facts: dict[str, tuple[list[str], str | Exception | None]]) -> None:
    """Each connection has its own outcome, and its messages in order."""
    gateway = Gateway()
    gateway.errors = {name: error for name, (_, error) in facts.items() if error}
    outcomes = Sockets(gateway).send_all({name: texts for name, (texts, _) in facts.items()})
    assert outcomes == {
        name: OUTCOMES[error] if error and texts else SendOutcome.SENT for name, (texts, error) in facts.items()
    }
    for name, (texts, error) in facts.items():
        assert gateway.sent.get(name, []) == ([] if error else texts)


def test_more_connections_than_threads(gateway: Gateway) -> None:
    """More connections than threads all receive their messages."""
    messages = {str(number): [str(number)] for number in range(MAX_THREADS * 32)}
    assert set(Sockets(gateway).send_all(messages).values()) == {SendOutcome.SENT}
    assert gateway.sent == messages


@pytest.mark.parametrize("error", OUTCOMES, ids=str)
def test_close(gateway: Gateway, error: str | Exception, logged: Callable[[], list[dict[str, Any]]]) -> None:
    """A connection is closed. An error is logged and not raised."""
    gateway.errors["a"] = error
    Sockets(gateway).close("a")
    Sockets(gateway).close("b")
    assert gateway.closed == ["b"]
    assert [line["message"] for line in logged()] == ["WebSocket not closed"]


def test_log(gateway: Gateway, logged: Callable[[], list[dict[str, Any]]]) -> None:
    """Failures are logged with their code and without messages; a connection that is gone is not logged."""
    gateway.errors = {"a": THROTTLED, "b": GONE}
    Sockets(gateway).send_all({"a": ["secret"], "b": ["secret"]})
    (line,) = logged()
    assert line["reason"] == THROTTLED
    assert "secret" not in str(line)
