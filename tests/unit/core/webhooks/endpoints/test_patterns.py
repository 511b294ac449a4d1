"""core.webhooks.endpoints.patterns"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.events import Event
from core.jobs import Kind
from core.webhooks.endpoints.patterns import all_patterns, check_pattern, event_names, matches
from kinds.document.kind import DOCUMENT
from kinds.registry import KINDS
from kinds.replay.kind import REPLAY
from tests.unit.examples import event

KNOWN = tuple(KINDS.values())
NAMES, PATTERNS = event_names(KNOWN), all_patterns(KNOWN)
COMPLETED_EVENTS = {"document.indexed", "replay.completed"} | {
    f"{kind.name}.{kind.completed_verb}" for kind in KNOWN
}


def logged(name: str) -> Event:
    """An event of this name, as its kind logs it."""
    kind = KINDS.get(name.partition(".")[0])
    if kind is None:
        return event(name=name, kind="endpoint", job_id=None, sequence=None, status=None, lifecycle=None)
    statuses = dict(zip(kind.final_events, ("completed", "failed", "canceled"), strict=True))
    facts = {"status": statuses.get(name, "running"), "lifecycle": "ended" if name in statuses else "progress"}
    return event(name=name, kind=kind.name, **facts)


names = st.sampled_from(NAMES)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_every_pattern_covers_an_event(pattern: str) -> None:
    """Each valid pattern is accepted, and covers at least one event."""
    assert check_pattern(pattern, KNOWN) == pattern
    assert any(matches([pattern], logged(name)) for name in NAMES)


@pytest.mark.parametrize(
    ("pattern", "covered"),
    [
        ("document.indexed", {"document.indexed"}),
        ("document.*", set(DOCUMENT.event_names)),
        ("endpoint.*", {"endpoint.disabled"}),
        ("*.disabled", {"endpoint.disabled"}),
        ("*.failed", {f"{name}.failed" for name in KINDS}),
        ("*.completed", COMPLETED_EVENTS),
        ("*.indexed", {"document.indexed"}),
        ("*", {"endpoint.disabled", *(name for kind in KINDS.values() for name in kind.event_names)}),
    ],
)
def test_what_a_pattern_covers(pattern: str, covered: set[str]) -> None:
    """A name covers itself, other patterns their kind, their verb or everything."""
    assert {name for name in NAMES if matches([pattern], logged(name))} == covered


def test_valid_names_and_patterns() -> None:
    """Names and patterns follow from the kinds, with one event of owners."""
    assert event_names((REPLAY,)) == (*REPLAY.event_names, "endpoint.disabled")
    assert all_patterns((REPLAY,)) == (
        *(*REPLAY.event_names, "endpoint.disabled", "replay.*", "endpoint.*"),
        *("*.requested", "*.started", "*.completed", "*.failed", "*.canceled", "*.retried", "*.progressed"),
        *("*.disabled", "*"),
    )
    assert all_patterns(()) == ("endpoint.disabled", "endpoint.*", "*.disabled", "*.completed", "*")


@pytest.mark.parametrize("kinds", [KNOWN, (DOCUMENT,), (REPLAY,), ()], ids=["both", "document", "replay", "none"])
def test_each_pattern_once(kinds: tuple[Kind, ...]) -> None:
    """A pattern of a verb that several kinds have is listed once, and all names are patterns."""
    found = all_patterns(kinds)
    assert len(set(found)) == len(found)
    assert set(event_names(kinds)) < set(found)
    assert "ping" not in found


@pytest.mark.parametrize("status", ["completed", "failed", "canceled", "running", "queued", None])
@pytest.mark.parametrize("lifecycle", ["ended", "progress", "submitted", None])
def test_completed_pattern(status: str | None, lifecycle: str | None) -> None:
    """`*.completed` covers the event with which a job completes, whatever its verb, and no other."""
    ended = event(name="document.indexed", status=status, lifecycle=lifecycle)
    assert matches(["*.completed"], ended) == ((status, lifecycle) == ("completed", "ended"))
    assert matches(["*.completed"], event(name="other.completed", status="failed"))


@pytest.mark.parametrize("pattern", PATTERNS)
def test_no_pattern_covers_ping(pattern: str) -> None:
    """No pattern covers a ping."""
    assert not matches([pattern, "ping"], logged("ping"))


@given(name=names, first=st.lists(st.sampled_from(PATTERNS)), second=st.lists(st.sampled_from(PATTERNS)))
def test_patterns_add_up(name: str, first: list[str], second: list[str]) -> None:
    """Several patterns cover what one of them covers. No patterns cover nothing."""
    subject = logged(name)
    assert matches([*first, *second], subject) == (matches(first, subject) or matches(second, subject))
    assert not matches([], subject)


@pytest.mark.parametrize(
    "text",
    [
        *("documents.*", "document.index", "*.fail", "Document.indexed", "document", "document.", ".failed", ""),
        *(
            "**",
            "*.*",
            "document*",
            "doc*.failed",
            "document.indexed ",
            "*\n",
            "endpoint.failed",
            "\ud800",
            "*" * 9999,
        ),
    ],
)
def test_misspelt_patterns(text: str) -> None:
    """A pattern that covers nothing is refused with a list of the valid ones, in bounded length."""
    with pytest.raises(ValueError, match="is not a valid pattern") as caught:
        check_pattern(text, KNOWN)
    message = str(caught.value)
    assert all(choice in message.rpartition("use one of ")[2].split(", ") for choice in PATTERNS)
    assert message.isascii()
    assert len(message) < 2000


def test_ping_cannot_be_subscribed() -> None:
    """The refusal of `ping` says which endpoint gets it."""
    with pytest.raises(ValueError, match="endpoint that is tested"):
        check_pattern("ping", KNOWN)


@given(st.text())
def test_only_the_listed_patterns(text: str) -> None:
    """Any other text is refused."""
    try:
        assert check_pattern(text, KNOWN) in PATTERNS
    except ValueError:
        assert text not in PATTERNS
