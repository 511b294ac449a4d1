"""Progress bars for the stages of a job."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from recado._cli.progress import StageProgress
from recado.models import JobEvent, JobStatus
from tests.unit.client.stub_service import FINAL, OPEN, Payload, payload, payloads, without_status


def bars(*events: Payload, expected_end: str | None = None) -> list[str]:
    """The lines of the bars after these events."""
    console = Console(file=io.StringIO(), force_terminal=True, width=100, color_system=None, legacy_windows=False)
    status = {"job_id": "j", "status": "running", "stage": "", "expected_completion": expected_end}
    progress = StageProgress(console)
    for event in events:
        if progress.update(JobEvent.of(event)) and expected_end:
            progress.show_expected_end(JobStatus.of(status))
    console.print(progress.progress.get_renderable())
    return [line for line in console.file.getvalue().splitlines() if line.strip()]  # type: ignore[attr-defined]


def event(number: int, verb: str, stage: str, status: str = "running", **fields: Any) -> Payload:
    return payload(number, verb, status=status, stage=stage) | fields


def test_each_stage_has_a_bar() -> None:
    """Completed stages have a check mark, the current one shows its progress. Verbs do not matter."""
    lines = bars(
        event(1, "ordered", "queued", "queued"),
        event(2, "begun", "chop"),
        event(3, "tasted", "chop"),
        event(4, "chopped", "simmer", pieces=99, document_id="stew"),
        event(5, "progressed", "simmer", done=4, total=8),
    )
    assert [line.split()[1] for line in lines] == ["queued", "chop", "simmer"]
    assert lines[1].startswith("✓")
    assert "pieces=99" in lines[1]
    assert "stew" not in lines[1]
    assert "4/8" in lines[2]
    assert not lines[2].startswith("✓")


def test_the_plan_of_a_summary_is_shown() -> None:
    """The stage that planned it shows how many calls will follow and about what they cost."""
    plan = {"parts": 12, "input_tokens": 30211, "calls": 13, "estimated_cost_usd": 0.0012}
    first, second = bars(event(1, "started", "plan"), event(2, "planned", "summarize", **plan))
    assert "12 parts, 13 calls, ~0.0012 USD" in first
    assert second.split()[1] == "summarize"


def test_long_fields_are_left_out() -> None:
    """A note has the fields that fit into it. The result of a model is printed elsewhere."""
    (line,) = bars(event(1, "begun", "write"), event(2, "written", "", "completed", text="x" * 50, words=9))
    assert "x" not in line
    assert line.split()[3] == "words=9"
    (line,) = bars(event(1, "begun", "write"), event(2, "written", "", "completed", usage={}, sample=False))
    assert "sample" not in line


def test_the_last_stage_is_completed_with_the_job() -> None:
    """The last stage is completed, whatever stage the last event has."""
    lines = bars(event(1, "begun", "chop"), event(2, "served", "notify", "completed", plates=2))
    assert [line.split()[:2] for line in lines] == [["✓", "chop"]]
    assert "plates=2" in lines[0]


@pytest.mark.parametrize("status", ["failed", "canceled"])
def test_a_failed_stage_has_a_cross(status: str) -> None:
    """A failed stage is marked, and no other bar follows it."""
    *_, last = bars(event(1, "ordered", "queued", "queued"), event(2, "b", "chop"), event(3, "c", "chop", status))
    assert last.startswith("✗ chop")
    assert status in last


def test_a_retried_stage_keeps_its_bar() -> None:
    """The bar shows the number of the attempt."""
    lines = bars(event(1, "begun", "chop"), event(2, "retried", "chop", attempts=2))
    assert len(lines) == 1
    assert "attempt 2" in lines[0]


def test_a_job_that_is_queued_again_shows_its_failed_attempt() -> None:
    """The bars show why the attempt failed, when the next one begins, and then its number."""
    error = {"code": "provider_timeout", "message": "…", "stage": "write"}
    queued = event(
        3, "retried", "queued", "queued", attempts=1, error=error, not_before="2026-11-29T08:00:05.000Z"
    )
    log = [
        event(1, "requested", "queued", "queued"),
        event(2, "started", "write", attempts=1),
        queued,
        event(4, "started", "write", attempts=2),
    ]
    waiting = bars(*log[:3])
    assert [line.split()[:2] for line in waiting] == [
        ["✓", "queued"],
        ["✗", "write"],
        [waiting[2].split()[0], "queued"],
    ]
    assert "attempt 1: provider_timeout" in waiting[1]
    assert re.search(r"next attempt at \d\d:00:05", waiting[2])
    *_, running = bars(*log)
    assert running.split()[1] == "write"
    assert "attempt 2" in running


def test_events_without_a_stage_have_one_bar() -> None:
    """Older services do not send the stage."""
    log = [without_status(event) for event in payloads(5)]
    assert [line.split()[1] for line in bars(*log)] == ["work"]


@given(
    st.lists(
        st.fixed_dictionaries(
            {"stage": st.sampled_from(["", "queued", "a", "b"]), "status": st.sampled_from(["", *OPEN, *FINAL])},
            optional={
                "done": st.integers(0, 9) | st.none(),
                "total": st.integers(0, 9) | st.text(max_size=2),
                "attempts": st.integers(0, 3) | st.none(),
                "error": st.none() | st.just({}) | st.just({"code": "c"}),
                "not_before": st.none() | st.text(max_size=3),
            },
        ),
        max_size=8,
    )
)
def test_any_log_can_be_shown(log: list[dict[str, Any]]) -> None:
    """There are never more bars than events."""
    events = [payload(number, "x") | fields for number, fields in enumerate(log, 1)]
    assert len(bars(*events)) <= len(log)


def test_the_expected_end_is_shown() -> None:
    """The remaining time is shown."""
    assert "left" in bars(payload(1, "uploaded"), expected_end="2099-01-01T00:00:00Z")[0]
    assert "any moment" in bars(payload(1, "uploaded"), expected_end="2020-01-01T00:00:00Z")[0]
