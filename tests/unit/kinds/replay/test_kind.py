"""The kind `replay` (kinds.replay.kind)."""

from __future__ import annotations

from kinds.replay.kind import REPLAY
from tests.unit.examples import replay


def test_event_names() -> None:
    """A replay logs its request, its start, its final event, retries and progress."""
    assert REPLAY.event_names == (
        "replay.requested",
        "replay.started",
        "replay.completed",
        "replay.failed",
        "replay.canceled",
        "replay.retried",
        "replay.progressed",
    )
    assert REPLAY.final_events == ("replay.completed", "replay.failed", "replay.canceled")
    assert REPLAY.all_stages == ("queued", "send")


def test_subject() -> None:
    """The subject is the endpoint, and the first event has the other fields of the input."""
    given = dict(replay().input)
    assert REPLAY.subject_of(given) == replay().subject == {"webhook_id": "wh_01JDXQ3V8N2M4K6H8G0F2E4D6C"}
    assert REPLAY.submitted_fields(given) | REPLAY.subject_of(given) == given
