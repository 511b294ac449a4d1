"""What the commands print, for people or for programs.

Results go to standard output, everything else to standard error. If standard output is not a terminal, tables are
lines of fields separated by tabs. With `--json` everything is JSON, one document per line. On a terminal, control
and bidirectional characters are replaced, or escaped in JSON: text from elsewhere must not control the terminal.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from recado._cli.format import (
    STYLES,
    escape_in_json,
    format_fields,
    local_date,
    local_time,
    sanitize,
    styled,
)
from recado.models import Delta, JobEvent, Record

Part = str | tuple[str, str]
"""Text, or (text, style)."""


class Output:
    """`as_json`: the option --json. rich honors NO_COLOR and similar variables.

    Characters that the encoding of a terminal or pipe lacks, such as `✓` in cp1252, become `?`.
    """

    def __init__(self, *, as_json: bool = False, out: Console | None = None, err: Console | None = None) -> None:
        self.as_json = as_json
        self.out = out or Console(highlight=False, soft_wrap=True)
        self.err = err or Console(stderr=True, highlight=False, soft_wrap=True)
        for console in (self.out, self.err):
            if isinstance(console.file, io.TextIOWrapper):
                console.file.reconfigure(errors="replace")

    @property
    def is_for_people(self) -> bool:
        # Not rich's `is_terminal`: with FORCE_COLOR it is True for a pipe that a program reads.
        return self.out.file.isatty() and not self.as_json

    @property
    def can_animate(self) -> bool:
        """Whether standard error can show progress bars."""
        return self.err.file.isatty()

    def json(self, data: Any) -> None:
        text = json.dumps(data, ensure_ascii=False, separators=(", ", ": "))
        if not _can_encode(self.out, text):
            text = json.dumps(data, separators=(", ", ": "))
        # A program that reads a pipe gets the characters that the service sent.
        self._write_line(escape_in_json(text) if self.out.file.isatty() else text)

    def fields(self, *fields: object) -> None:
        """One line for programs: fields separated by tabs."""
        self._write_line("\t".join(" ".join(sanitize(field).split()) for field in fields))

    def print(self, *parts: Part) -> None:
        """For people, to standard output. Control characters are replaced."""
        self.out.print(_assemble(parts))

    def note(self, *parts: Part) -> None:
        """For people, to standard error."""
        self.err.print(_assemble(parts))

    def record(self, record: Record, *fields: object) -> None:
        """The record as JSON, or a line of these fields."""
        if self.as_json:
            self.json(record.raw)
        else:
            self.fields(*fields)

    def records(
        self,
        records: Iterable[Record],
        headings: Sequence[str],
        rows: Iterable[Sequence[object]],
        *,
        right: Sequence[str] = (),
    ) -> None:
        """The records as JSON, or a table of these rows. `right`: the headings of right-aligned columns."""
        if not self.as_json:
            self.table(headings, rows, right=right)
            return
        for record in records:
            self.json(record.raw)

    def table(
        self, headings: Sequence[str], rows: Iterable[Sequence[object]], *, right: Sequence[str] = ()
    ) -> None:
        """A table for people, or lines of fields for programs."""
        if not self.is_for_people:
            for row in rows:
                self.fields(*row)
            return
        table = Table(box=None, pad_edge=False, header_style="bold", show_header=any(headings))
        for heading in headings:
            table.add_column(heading, justify="right" if heading in right else "left", overflow="fold")
        for row in rows:
            table.add_row(*(styled(field) for field in row))
        self.out.print(table, soft_wrap=False)

    def event(self, event: JobEvent, *, is_result: bool = False, with_job: bool = False) -> None:
        """One line for an event, to standard output if events are the command's result."""
        name = (event.event, STYLES[event.status] if event.is_final else "bold")
        show, job = self.print if is_result else self.note, f"  {event.job_id}" if with_job else ""
        moment, fields = local_time(event.timestamp), format_fields(event.raw)
        show((moment, "dim"), job, f"  {event.sequence:>4}  ", name, f"  {fields}")

    def moment(self, moment: str) -> str:
        """An RFC 3339 time for a table: in local time for people."""
        return local_date(moment) if self.is_for_people else moment

    def text(self, text: str) -> None:
        """A text that is the command's result, with a line end. Programs get its characters unchanged."""
        shown = sanitize(text) if self.is_for_people else text
        self.write(shown if shown.endswith("\n") else f"{shown}\n")

    def write(self, text: str) -> None:
        """Unchanged, without a line end, and flushed."""
        self.out.file.write(text)
        self.out.file.flush()

    def _write_line(self, text: str) -> None:
        self.write(text + "\n")


class TextPrinter:
    """Prints a text while a job writes it: for people in place, with --json as one document per delta."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._text = ""
        self._line_is_open = False

    def __enter__(self) -> TextPrinter:
        return self

    def __exit__(self, *_: object) -> None:
        self.end_line()

    def print(self, delta: Delta) -> None:
        if self._output.as_json:
            message_type = "snapshot" if delta.is_snapshot else "delta"
            self._output.json({"type": message_type, "index": delta.index, "text": delta.text})
        elif self._output.is_for_people:
            self._show(delta.text if delta.is_snapshot else self._text + delta.text)

    def append(self, text: str) -> None:
        """For people only: the next part of the text."""
        if self._output.is_for_people:
            self._show(self._text + text)

    def restart(self) -> None:
        """The job writes the text anew. What is printed next begins on a line of its own."""
        self.end_line()
        self._text = ""

    def finish(self, text: str) -> None:
        """Print what is not printed yet of the whole text; without a terminal all of it, with --json nothing.

        What was printed may have had other text before it.
        """
        if self._output.is_for_people:
            if not self._text.endswith(text):
                self._show(text)
            self.end_line()
        elif not self._output.as_json:
            self._output.text(text)

    def end_line(self) -> None:
        if self._line_is_open:
            self._output.write("\n")
        self._line_is_open = False

    def _show(self, text: str) -> None:
        """Print what is new. If the earlier text has changed, print all of it on a new line."""
        shown, self._text = self._text, text
        if not text.startswith(shown):
            self.end_line()
            shown = ""
        if added := sanitize(text[len(shown) :]):
            self._output.write(added)
            self._line_is_open = not added.endswith("\n")


def _assemble(parts: Iterable[Part]) -> Text:
    pairs = [(part, "") if isinstance(part, str) else part for part in parts]
    return Text.assemble(*((sanitize(text), style) for text, style in pairs))


def _can_encode(console: Console, text: str) -> bool:
    try:
        text.encode(console.encoding or "utf-8")
    except UnicodeError:
        return False
    return True
