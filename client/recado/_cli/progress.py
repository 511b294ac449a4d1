"""Progress bars for uploads and for the stages of a job."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Column
from rich.text import Text

from recado._cli.format import STYLES, count, format_cost, format_duration, format_fields, local_time, sanitize
from recado._cli.output import Output
from recado.models import JobEvent, JobStatus

MAX_NOTE_CHARACTERS = 40
_ATTEMPT_FIELDS = frozenset({"attempts", "error", "not_before"})


class _RemainingTimeColumn(ProgressColumn):
    """The time until the expected end, or an estimate from the progress so far."""

    def render(self, task: Task) -> Text:
        if task.finished or task.fields.get("ended"):
            return Text("")
        until = task.fields.get("until")
        left = until - time.time() if until else task.time_remaining
        if left is None:
            return Text("")
        return Text(f"about {format_duration(left)} left" if left > 0 else "any moment", style="cyan")


class _StateColumn(SpinnerColumn):
    """A spinner while the stage runs, then a check mark or a cross."""

    def render(self, task: Task) -> Any:
        ended = task.fields.get("ended")
        if ended or task.finished:
            return Text("✗", style=STYLES[ended]) if ended else Text("✓", style="green")
        return super().render(task)


class _CountColumn(ProgressColumn):
    """The stage's note, else `done/total`."""

    def render(self, task: Task) -> Text:
        note = task.fields.get("note", "")
        return Text(note or (f"{task.completed:.0f}/{task.total:.0f}" if (task.total or 0) > 1 else ""))


class StageProgress:
    """One bar for every stage of a job. The bar of the current stage moves."""

    def __init__(self, console: Console) -> None:
        self.progress = Progress(
            _StateColumn(),
            TextColumn("{task.description}", markup=False),
            _bar(),
            _CountColumn(table_column=Column(no_wrap=True)),
            TimeElapsedColumn(table_column=Column(min_width=7)),
            _RemainingTimeColumn(table_column=Column(no_wrap=True)),
            console=console,
        )
        self._current: TaskID | None = None
        self._stage = self._status = ""

    def __enter__(self) -> StageProgress:
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def show_expected_end(self, status: JobStatus) -> None:
        until = _timestamp(status.expected_completion)
        if self._current is not None and until:
            self.progress.update(self._current, until=until)

    def update(self, event: JobEvent) -> bool:
        """Show the event. Returns whether a stage has begun."""
        if event.is_final:
            self._end(event)
            return False
        has_begun = self._enter_stage(event)
        self._show_progress(event)
        self._status = event.status
        return has_begun

    def _end(self, event: JobEvent) -> None:
        if event.status == "completed":
            self._complete_stage(_stage_note(event))
        else:
            self._fail_stage(event.status, event.status)

    def _enter_stage(self, event: JobEvent) -> bool:
        """Add a bar if the event has another stage than the current one. Returns whether it has."""
        stage = sanitize(event.stage or event.status or self._stage or "work")
        if self._current is not None and stage == self._stage:
            return False
        if event.status == "queued" and self._status == "running":  # the attempt failed
            self._fail_stage("failed", _attempt(event))
        else:
            self._complete_stage(_stage_note(event))
        self._stage, self._current = stage, self.progress.add_task(f"{stage:<8}", total=None)
        return True

    def _show_progress(self, event: JobEvent) -> None:
        """The progress of the current stage, or the number of its attempt."""
        if self._current is None:
            return
        done, total = event.get("done"), event.get("total")
        if isinstance(done, int | float) and isinstance(total, int | float) and total:
            self.progress.update(self._current, total=float(total), completed=float(done), note="")
        elif event.get("not_before"):
            self.progress.update(self._current, note=f"next attempt at {local_time(str(event['not_before']))}")
        elif event.get("attempts", 1) != 1:
            self.progress.update(self._current, note=f"attempt {sanitize(event['attempts'])}")

    def _complete_stage(self, note: str) -> None:
        if self._current is not None:
            total = self.progress.tasks[self._current].total or 1
            self.progress.update(self._current, total=total, completed=total, note=note)
        self._current = None

    def _fail_stage(self, ended: str, note: str) -> None:
        if self._current is not None:
            note = note[:MAX_NOTE_CHARACTERS]
            self.progress.update(self._current, note=note, total=1, completed=0, ended=ended, until=None)
            self.progress.stop_task(self._current)
        self._current = None


def _attempt(event: JobEvent) -> str:
    """The number of the attempt that failed, and the error's code."""
    error = event.get("error")
    reason = f": {sanitize(error.get('code'))}" if isinstance(error, Mapping) else ""
    return f"attempt {sanitize(event.get('attempts', '?'))}{reason}"


def _stage_note(event: JobEvent) -> str:
    """What the stage that ended with this event has found out."""
    if "estimated_cost_usd" in event.raw:
        return _plan(event)
    return "" if "usage" in event.raw else _result_fields(event)  # a model's text and cost are too long


def _plan(event: JobEvent) -> str:
    """How many calls of a model will follow, and about what they cost."""
    parts, calls = count(event.get("parts"), "part"), count(event.get("calls"), "call")
    usd = event["estimated_cost_usd"]
    cost = format_cost(usd) if usd is None else f"~{format_cost(usd)}"
    return sanitize(f"{parts}, {calls}, {cost}")


def _result_fields(event: JobEvent) -> str:
    """The event's fields about the work that fit into the note, without ids and attempts."""
    note = ""
    for name, value in event.raw.items():
        field = "" if name in _ATTEMPT_FIELDS or name.endswith("_id") else format_fields({name: value})
        if field and len(note) + len(field) < MAX_NOTE_CHARACTERS:
            note += f"{' ' if note else ''}{field}"
    return note


@contextmanager
def upload_bar(output: Output) -> Iterator[Callable[[int, int], None]]:
    """Yields a function that shows how many bytes of how many were sent."""
    columns = (TextColumn("  upload  "), _bar(), DownloadColumn(), _RemainingTimeColumn())
    with Progress(*columns, console=output.err, transient=True, disable=not output.can_animate) as bar:
        task = bar.add_task("upload", visible=False)

        def show(sent: int, total: int) -> None:
            bar.update(task, completed=sent, total=total, visible=True)

        yield show


@contextmanager
def spinner(output: Output) -> Iterator[Callable[[bool], None]]:
    """Yields a function that shows or hides a spinner, on a terminal. Hide it before text is printed."""
    status = output.err.status("", spinner="dots", spinner_style="dim")
    is_shown = output.can_animate and not output.as_json
    try:
        yield lambda is_on: status.start() if is_on and is_shown else status.stop()
    finally:
        status.stop()


def _bar() -> BarColumn:
    """In the 16 standard colors."""
    return BarColumn(bar_width=30, complete_style="cyan", finished_style="green", pulse_style="cyan")


def _timestamp(moment: str | None) -> float | None:
    try:
        return datetime.fromisoformat(moment or "").timestamp()
    except ValueError:
        return None
