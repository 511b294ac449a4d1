"""What is printed for people and for programs."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from recado._cli.output import Output, TextPrinter
from recado.models import Delta
from tests.unit.client.cli.conftest import Run
from tests.unit.client.stub_service import JOB_ID


@pytest.mark.enable_socket
def test_force_color_does_not_change_pipes(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """CI systems set FORCE_COLOR. Programs that read a pipe still get plain fields."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert run("status", JOB_ID)[1] == f"{JOB_ID}\tcompleted\tembed\t\t\n"


def test_json_is_ascii_if_the_encoding_is() -> None:
    """A terminal that cannot show a character gets its escape sequence."""
    file = io.TextIOWrapper(io.BytesIO(), "ascii")
    Output(as_json=True, out=Console(file=file)).json({"text": "é"})
    file.seek(0)
    assert file.read() == '{"text": "\\u00e9"}\n'


def test_other_characters_are_replaced() -> None:
    """What the encoding lacks becomes a question mark, in tables, fields and texts."""
    file = io.TextIOWrapper(io.BytesIO(), "cp1252")
    output = Output(out=Console(file=file))
    output.print("\u2713 caf\u00e9")
    output.fields("\u65e5\u672c")
    output.text("\u2713")
    file.seek(0)
    assert file.read() == "? caf\u00e9\n??\n?\n"


@pytest.mark.parametrize(
    ("deltas", "printed"),
    [
        ([("ab", False), ("c", False)], "abc\n"),
        ([("ab", False), ("abc", True)], "abc\n"),
        ([("ab", False), ("x", True), ("y", False)], "ab\nxy\n"),
        ([("ab\n", False)], "ab\n"),
        ([], ""),
    ],
)
def test_text_is_printed_in_place(for_people: None, deltas: list[tuple[str, bool]], printed: str) -> None:
    """A snapshot prints what is new. A text that was restarted is printed on another line."""
    out = io.StringIO()
    with TextPrinter(Output(out=Console(file=out))) as text:
        for piece, is_snapshot in deltas:
            text.print(Delta.of({"index": 1, "text": piece, "is_snapshot": is_snapshot}))
    assert out.getvalue() == printed
