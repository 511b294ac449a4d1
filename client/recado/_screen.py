"""What the command says, to a person or to a program.

Answers go to standard output, all else to standard error. Where standard output is no terminal, tables become
lines of fields with tabs between, and with `--json` everything is JSON, one document a line.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
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
from rich.table import Table
from rich.text import Text

from recado.models import Delta, JobEvent, JobStatus, Record

STYLES = {
    "completed": "green",
    "delivered": "green",
    "failed": "red",
    "canceled": "yellow",
    "discarded": "yellow",
    "running": "cyan",
    "queued": "blue",
}
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
FACT_CHARACTERS = 200
_ENVELOPE = frozenset({"event", "event_id", "job_id", "sequence", "timestamp", "status", "stage"})
_OF_ATTEMPTS = frozenset({"attempts", "error", "not_before"})


class Screen:
    """`as_json`: programs read it. NO_COLOR and the like are honoured by rich."""

    def __init__(self, *, as_json: bool = False, out: Console | None = None, err: Console | None = None) -> None:
        self.as_json = as_json
        self.out = out or Console(highlight=False, soft_wrap=True)
        self.err = err or Console(stderr=True, highlight=False, soft_wrap=True)

    @property
    def for_people(self) -> bool:
        # Not rich's `is_terminal`: with FORCE_COLOR that holds for a pipe as well, which programs read from.
        return self.out.file.isatty() and not self.as_json

    @property
    def can_move(self) -> bool:
        """Whether bars can move where notes go."""
        return self.err.file.isatty()

    def json(self, data: Any) -> None:
        text = json.dumps(data, ensure_ascii=False, separators=(", ", ": "))
        if not _can_write(self.out, text):
            text = json.dumps(data, separators=(", ", ": "))
        self._write(text)

    def line(self, *fields: object) -> None:
        """For programs: fields with tabs between."""
        self._write("\t".join(" ".join(clean(field).split()) for field in fields))

    def say(self, *parts: str | tuple[str, str] | Text) -> None:
        """For people, on standard output; a part can be (text, style)."""
        self.out.print(Text.assemble(*parts))

    def note(self, *parts: str | tuple[str, str] | Text) -> None:
        """For people, beside the answer."""
        self.err.print(Text.assemble(*parts))

    def record(self, one: Record, *fields: object) -> None:
        """The record whole as JSON, else a line of these fields of it."""
        if self.as_json:
            self.json(one.raw)
        else:
            self.line(*fields)

    def records(
        self,
        found: Iterable[Record],
        headings: Sequence[str],
        rows: Iterable[Sequence[object]],
        *,
        right: Sequence[str] = (),
    ) -> None:
        """The records whole as JSON, else a table of these rows, which tell of them."""
        if not self.as_json:
            self.table(headings, rows, right=right)
            return
        for one in found:
            self.json(one.raw)

    def table(
        self, headings: Sequence[str], rows: Iterable[Sequence[object]], *, right: Sequence[str] = ()
    ) -> None:
        """A table, or lines with tabs between the fields."""
        if not self.for_people:
            for row in rows:
                self.line(*row)
            return
        table = Table(box=None, pad_edge=False, header_style="bold", show_header=any(headings))
        for heading in headings:
            table.add_column(heading, justify="right" if heading in right else "left", overflow="fold")
        for row in rows:
            table.add_row(*(styled(field) for field in row))
        self.out.print(table, soft_wrap=False)

    def event(self, event: JobEvent, *, is_answer: bool = False, with_job: bool = False) -> None:
        """One line for one event, on standard output if that is what was asked for."""
        name = (clean(event.event), STYLES[event.status] if event.is_final else "bold")
        show, about = self.say if is_answer else self.note, f"  {clean(event.job_id)}" if with_job else ""
        show(
            (local_time(event.timestamp), "dim"), about, f"  {event.sequence:>4}  ", name, f"  {facts(event.raw)}"
        )

    def write(self, text: str) -> None:
        """As it is, at once and without an end of line."""
        self.out.file.write(text)
        self.out.file.flush()

    def _write(self, text: str) -> None:
        self.write(text + "\n")


class Typed:
    """A text as it is being made: in place for people, each piece of it as JSON for programs that want that."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._text = ""
        self._is_open = False

    def __enter__(self) -> Typed:
        return self

    def __exit__(self, *_: object) -> None:
        self.end_line()

    def take(self, delta: Delta) -> None:
        if self._screen.as_json:
            kind = "snapshot" if delta.is_snapshot else "delta"
            self._screen.json({"type": kind, "index": delta.index, "text": delta.text})
        elif self._screen.for_people:
            self._show(delta.text if delta.is_snapshot else self._text + delta.text)

    def end_line(self) -> None:
        if self._is_open:
            self._screen.write("\n")
        self._is_open = False

    def _show(self, text: str) -> None:
        """What is new of it; all of it on a line of its own where it has changed before that."""
        known, self._text = self._text, text
        if not text.startswith(known):
            self.end_line()
            known = ""
        if added := clean(text[len(known) :]):
            self._screen.write(added)
            self._is_open = not added.endswith("\n")


def clean(value: object) -> str:
    """Text for a terminal: whatever was in a document, it moves no cursor and turns no line around."""
    return "" if value is None else _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", str(value))


def styled(value: object) -> Text:
    return Text(clean(value), style=STYLES.get(str(value), ""))


def facts(payload: Mapping[str, Any]) -> str:
    """What an event says beyond its envelope, as `name=value`, in one line; long texts are cut. JSON has all."""
    return " ".join(f"{name}={_in_line(value)}" for name, value in payload.items() if name not in _ENVELOPE)


def _in_line(value: object) -> str:
    text = clean(" ".join(str("" if value is None else value).split()))
    return text if len(text) <= FACT_CHARACTERS else f"{text[:FACT_CHARACTERS]}…"


def local_time(moment: str) -> str:
    """The time of day here, of an RFC 3339 time."""
    try:
        return datetime.fromisoformat(moment).astimezone().strftime("%H:%M:%S")
    except ValueError:
        return clean(moment)


def local_date(moment: str | None) -> str:
    try:
        return datetime.fromisoformat(moment or "").astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except ValueError:
        return clean(moment)


def duration(seconds: float) -> str:
    """`42 s`, `3:20 min`, `2:05 h`."""
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if seconds < 10 and seconds != whole else f"{whole} s"
    return f"{whole // 60}:{whole % 60:02} min" if whole < 3600 else f"{whole // 3600}:{whole % 3600 // 60:02} h"


def _can_write(console: Console, text: str) -> bool:
    try:
        text.encode(console.encoding or "utf-8")
    except UnicodeError:
        return False
    return True


# ── progress ─────────────────────────────────────────────────────────────────────────────────────────────


class _Left(ProgressColumn):
    """How long it will take yet: until the expected end where it is known, else by the speed so far."""

    def render(self, task: Task) -> Text:
        if task.finished or task.fields.get("ended"):
            return Text("")
        until = task.fields.get("until")
        left = until - time.time() if until else task.time_remaining
        if left is None:
            return Text("")
        return Text(f"about {duration(left)} left" if left > 0 else "any moment", style="cyan")


class _Mark(SpinnerColumn):
    """Turns while the stage runs; then how it ended."""

    def render(self, task: Task) -> Any:
        ended = task.fields.get("ended")
        if ended or task.finished:
            return Text("✗", style=STYLES[ended]) if ended else Text("✓", style="green")
        return super().render(task)


class _Count(ProgressColumn):
    def render(self, task: Task) -> Text:
        note = task.fields.get("note", "")
        return Text(note or (f"{task.completed:.0f}/{task.total:.0f}" if (task.total or 0) > 1 else ""))


class Bars:
    """A bar for every stage of a job: the one that runs moves, those that are over keep their time."""

    def __init__(self, console: Console) -> None:
        self.progress = Progress(
            _Mark(),
            TextColumn("{task.description}"),
            _bar(),
            _Count(),
            TimeElapsedColumn(),
            _Left(),
            console=console,
        )
        self._active: TaskID | None = None
        self._stage = self._status = ""

    def __enter__(self) -> Bars:
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def expect(self, status: JobStatus) -> None:
        """Show the end that the service expects."""
        until = _seconds(status.expected_completion)
        if self._active is not None and until:
            self.progress.update(self._active, until=until)

    def take(self, event: JobEvent) -> bool:
        """Show what has happened; whether a stage has begun."""
        if event.is_final:
            self._end(event)
            return False
        has_begun = self._enter(event)
        self._move(event)
        self._status = event.status
        return has_begun

    def _end(self, event: JobEvent) -> None:
        if event.status == "completed":
            self._finish(_own_facts(event))
        else:
            self._stop(event.status, event.status)

    def _enter(self, event: JobEvent) -> bool:
        """Begin the bar of the stage that the job is in now; whether it was in another."""
        stage = clean(event.stage or event.status or self._stage or "work")
        if self._active is not None and stage == self._stage:
            return False
        if self._is_queued_again(event):
            self._stop("failed", _attempt(event))
        else:
            self._finish(_own_facts(event))
        self._stage, self._active = stage, self.progress.add_task(f"{stage:<8}", total=None)
        return True

    def _is_queued_again(self, event: JobEvent) -> bool:
        return event.status == "queued" and self._status == "running"

    def _move(self, event: JobEvent) -> None:
        """How far the stage is, or which attempt at it this is."""
        if self._active is None:
            return
        done, total = event.get("done"), event.get("total")
        if isinstance(done, int | float) and isinstance(total, int | float) and total:
            self.progress.update(self._active, total=float(total), completed=float(done), note="")
        elif event.get("not_before"):
            self.progress.update(self._active, note=f"tried again at {local_time(str(event['not_before']))}")
        elif event.get("attempts", 1) != 1:
            self.progress.update(self._active, note=f"attempt {clean(event['attempts'])}")

    def _finish(self, note: str) -> None:
        """The stage of the bar that moves is over."""
        if self._active is not None:
            total = self.progress.tasks[self._active].total or 1
            self.progress.update(self._active, total=total, completed=total, note=note[:40])
        self._active = None

    def _stop(self, ended: str, note: str) -> None:
        """The stage of the bar that moves has come to nothing."""
        if self._active is not None:
            self.progress.update(self._active, note=note[:40], total=1, completed=0, ended=ended, until=None)
            self.progress.stop_task(self._active)
        self._active = None


def _attempt(event: JobEvent) -> str:
    """Which attempt has failed, and why."""
    error = event.get("error")
    reason = f": {clean(error.get('code'))}" if isinstance(error, Mapping) else ""
    return f"attempt {clean(event.get('attempts', '?'))}{reason}"


def _own_facts(event: JobEvent) -> str:
    """What an event says of the work alone, not of ids and attempts."""
    own = {name: value for name, value in event.raw.items() if name not in _OF_ATTEMPTS and name[-3:] != "_id"}
    return facts(own)


def upload_bar(screen: Screen) -> Progress:
    columns = (TextColumn("  upload  "), _bar(), DownloadColumn(), _Left())
    return Progress(*columns, console=screen.err, transient=True, disable=not screen.can_move)


def _bar() -> BarColumn:
    """In colours that every terminal has."""
    return BarColumn(bar_width=30, complete_style="cyan", finished_style="green", pulse_style="cyan")


def _seconds(moment: str | None) -> float | None:
    try:
        return datetime.fromisoformat(moment or "").timestamp()
    except ValueError:
        return None


def is_terminal() -> bool:
    """Whether somebody sits at the keyboard."""
    return sys.stdin is not None and sys.stdin.isatty()
