"""kinds.replay.kind"""

from __future__ import annotations

from kinds.replay.kind import REPLAY
from tests.unit.examples import replay


def test_names() -> None:
    """A replay logs that it was requested, what began and ended it, retries and progress."""
    assert REPLAY.names == (
        "replay.requested",
        "replay.started",
        "replay.completed",
        "replay.failed",
        "replay.canceled",
        "replay.retried",
        "replay.progressed",
    )
    assert REPLAY.final_names == ("replay.completed", "replay.failed", "replay.canceled")
    assert REPLAY.order == ("queued", "send")


def test_nobody_submits_it() -> None:
    """A replay is made by its own routes, worked by `notify`, and leaves no files."""
    assert (REPLAY.submittable, REPLAY.is_queued_to_worker, REPLAY.leaves_files) == (False, False, False)


def test_what_it_is_about() -> None:
    """A replay is about the endpoint, and its first event tells all that was asked."""
    asked = dict(replay().input)
    assert REPLAY.subject_of(asked) == replay().subject == {"webhook_id": "wh_01JDXQ3V8N2M4K6H8G0F2E4D6C"}
    assert REPLAY.announced(asked) | REPLAY.subject_of(asked) == asked
