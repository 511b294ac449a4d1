"""Texts that the service returns, such as those of documents, must not control the terminal."""

from __future__ import annotations

import io
import json
import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from recado._cli.output import Output, TextPrinter
from recado._cli.progress import StageProgress
from recado.models import Delta, JobEvent

BIDI_CLASSES = frozenset({"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"})
MARKS = frozenset("\u061c\u200e\u200f")
"""Arabic letter mark, left-to-right mark, right-to-left mark: the rest of Unicode's Bidi_Control."""

hostile = st.text(
    st.sampled_from('\x00\x07\x1b\x7f\x9b\x9d\u2028\u2029\u202e\u2066\u2069\u200f\u061ca"\\é😊[]0;m')
)
values = st.recursive(
    hostile | st.text() | st.none() | st.integers(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(hostile, inner, max_size=3),
    max_leaves=5,
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def controls(printed: str) -> set[str]:
    """The characters that control a terminal or the direction of its text. Line ends are those of the output."""
    return {
        character
        for character in printed
        if character != "\n"
        and (
            unicodedata.category(character) in ("Cc", "Zl", "Zp")
            or unicodedata.bidirectional(character) in BIDI_CLASSES
            or character in MARKS
        )
    }


def output_to(file: io.StringIO, *, as_json: bool) -> Output:
    return Output(as_json=as_json, out=Console(file=file, color_system=None, soft_wrap=True, highlight=False))


@given(value=values)
def test_json_on_a_terminal_is_the_same_json_without_control_characters(value: Any) -> None:
    """They are escaped, so that a program that reads the copied line gets the same value."""
    terminal = Terminal()
    output_to(terminal, as_json=True).json(value)
    printed = terminal.getvalue()
    assert controls(printed) == set()
    assert printed.count("\n") == 1
    assert json.loads(printed) == value


@given(value=values)
def test_json_in_a_pipe_is_unchanged(value: Any) -> None:
    """A program gets the characters that the service sent."""
    pipe = io.StringIO()
    output_to(pipe, as_json=True).json(value)
    text = json.dumps(value, ensure_ascii=False, separators=(", ", ": "))
    assert pipe.getvalue() == f"{text}\n"


@given(text=hostile)
def test_nothing_that_is_printed_for_people_has_control_characters(text: str) -> None:
    """Whatever the field: ids, names, messages, deltas."""
    terminal = Terminal()
    output = output_to(terminal, as_json=False)
    output.err = output.out
    event = {"event": text, "event_id": text, "job_id": text, "sequence": 1, "timestamp": text, text: text}
    output.print(text, (text, "bold"))
    output.note(text, (text, "bold"))
    output.fields(text)
    output.table(("a", "b"), [(text, text)])
    output.event(JobEvent.of(event), is_result=True, with_job=True)
    assert controls(terminal.getvalue()) == set()


def test_a_stage_cannot_contain_markup() -> None:
    """A progress bar prints it as it is: markup could make a link of it."""
    event = {"event": "document.started", "event_id": "e", "job_id": "j", "sequence": 1, "timestamp": ""}
    terminal = Terminal()
    with StageProgress(Console(file=terminal, force_terminal=True, width=200)) as progress:
        progress.update(
            JobEvent.of(event | {"status": "running", "stage": "[link=https://evil.test]embed[/link]"})
        )
    assert "[link=https://evil.test]embed[/link]" in terminal.getvalue()


@pytest.mark.parametrize("is_snapshot", [False, True])
def test_deltas_are_cleaned_in_json_on_a_terminal(is_snapshot: bool) -> None:
    """A text that a model writes is printed while it is written."""
    terminal = Terminal()
    delta = {"index": 1, "text": "\x9b31m\u202e", "is_snapshot": is_snapshot}
    TextPrinter(output_to(terminal, as_json=True)).print(Delta.of(delta))
    assert json.loads(terminal.getvalue())["text"] == "\x9b31m\u202e"
    assert controls(terminal.getvalue()) == set()
