from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError, ConnectionClosedError, EndpointConnectionError, ReadTimeoutError
from hypothesis import given
from hypothesis import strategies as st

from core.live.sockets import WORKERS, SendOutcome, Sockets
from tests.unit.gateway import GONE, THROTTLED, Gateway

URL = "https://live.example.com"
TROUBLES: dict[str | Exception, SendOutcome] = {
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


@pytest.mark.parametrize("trouble", TROUBLES, ids=str)
def test_outcomes(gateway: Gateway, trouble: str | Exception) -> None:
    """Only what the gateway calls gone is gone; whatever else goes wrong may have been sent, and is not raised."""
    gateway.troubles["a"] = trouble
    assert Sockets(gateway).tell("a", ["x"]) is TROUBLES[trouble]


def test_sent(gateway: Gateway) -> None:
    """Texts go out as UTF-8, in order; with none of them a connection is not spoken to."""
    assert Sockets(gateway).tell("a", ["1", "ñ👩‍🚀"]) is SendOutcome.SENT
    assert gateway.sent["a"] == ["1", "ñ👩‍🚀"]
    gateway.troubles["b"] = GONE
    assert Sockets(gateway).tell("b", []) is SendOutcome.SENT


def test_nothing_is_said_after_what_could_not_be(gateway: Gateway) -> None:
    """At the first message that fails a connection is left alone: a gap is worse than an end."""
    post = gateway.post_to_connection

    def post_but_the_second(**options: Any) -> None:
        gateway.troubles = {"a": THROTTLED} if options["Data"] == b"2" else {}
        post(**options)

    gateway.post_to_connection = post_but_the_second  # type: ignore[method-assign]
    assert Sockets(gateway).tell("a", ["1", "2", "3"]) is SendOutcome.FAILED
    assert gateway.sent["a"] == ["1"]


@given(
    st.dictionaries(st.text(min_size=1), st.tuples(st.lists(st.text()), st.none() | st.sampled_from([*TROUBLES])))
)
def test_many_at_once(facts: dict[str, tuple[list[str], str | Exception | None]]) -> None:
    """Each connection has its own outcome and its messages in order, whatever becomes of the others."""
    gateway = Gateway()
    gateway.troubles = {who: trouble for who, (_, trouble) in facts.items() if trouble}
    outcomes = Sockets(gateway).send_all({who: texts for who, (texts, _) in facts.items()})
    assert outcomes == {
        who: TROUBLES[trouble] if trouble and texts else SendOutcome.SENT
        for who, (texts, trouble) in facts.items()
    }
    for who, (texts, trouble) in facts.items():
        assert gateway.sent.get(who, []) == ([] if trouble else texts)


def test_a_thousand(gateway: Gateway) -> None:
    """More connections than there are threads are all offset."""
    said = {str(number): [str(number)] for number in range(WORKERS * 32)}
    assert set(Sockets(gateway).send_all(said).values()) == {SendOutcome.SENT}
    assert gateway.sent == said


@pytest.mark.parametrize("trouble", TROUBLES, ids=str)
def test_closing(gateway: Gateway, trouble: str | Exception, logged: Callable[[], list[dict[str, Any]]]) -> None:
    """A connection is closed; one that cannot be is logged, and that is all."""
    gateway.troubles["a"] = trouble
    Sockets(gateway).close("a")
    Sockets(gateway).close("b")
    assert gateway.closed == ["b"]
    assert [line["message"] for line in logged()] == ["a WebSocket was not closed"]


def test_what_is_logged(gateway: Gateway, logged: Callable[[], list[dict[str, Any]]]) -> None:
    """A failure is logged by its code, without what was to be said; one that is gone is no failure."""
    gateway.troubles = {"a": THROTTLED, "b": GONE}
    Sockets(gateway).send_all({"a": ["secret"], "b": ["secret"]})
    (line,) = logged()
    assert line["reason"] == THROTTLED
    assert "secret" not in str(line)
