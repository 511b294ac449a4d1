"""Headings of plain text (kinds.document.reading.outline)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinds.document.reading.outline import MAX_TITLE, headings, skip_white


def outline(text: str) -> list[tuple[int, str]]:
    return [(heading.level, heading.title) for heading in headings(text)]


def titles(text: str) -> list[str]:
    return [title for _, title in outline(text)]


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("# Guide", "Guide"),
        ("###### Deep\n", "Deep"),
        ("#\tTab\r\nbody", "Tab"),
        ("## Closed ##\n", "Closed"),
        ("# C#\n", "C#"),
        ("prose\n# After prose\nprose", "After prose"),
        ("Setext\n======", "Setext"),
        ("Setext\n---\nbody", "Setext"),
        ("prose\n\nSetext\r\n======\r\nbody", "Setext"),
        ("Modules\n*******\n", "Modules"),
        ("=====\nTitle\n=====\n", "Title"),
        ("  Indented under a line \n~~~~~~~~~~~~~~~~~~~~~~~~\n", "Indented under a line"),
        ("¿Qué es?\n^^^^^^^^\n", "¿Qué es?"),
        ("说明\n====\n", "说明"),
    ],
)
def test_heading(text: str, title: str) -> None:
    """Headings of Markdown and reStructuredText are found."""
    assert titles(text) == [title]


@pytest.mark.parametrize(
    "text",
    [
        "#hashtag",
        "#",
        "# ",
        "# #\n",
        "####### seven",
        "    # indented code",
        "\n\n---\n\n",
        "---\n---",
        "two lines\nof prose\n---\n",
        "Title\n==",
        "A long title\n*****",
        "Title\n=== =",
        "Title\n===x",
        "***\n\n***",
        "col | col\n--- | ---",
        "# " + "x" * (MAX_TITLE + 1),
        "x" * (MAX_TITLE + 1) + "\n-----",
        "```\n# comment\n```",
        "```sh\n# comment\n",
    ],
)
def test_no_heading(text: str) -> None:
    """Rules, tables, comments in code, prose and long lines are not headings."""
    assert titles(text) == []


def test_after_code() -> None:
    """Headings are found again after code has ended."""
    assert titles("```\n# no\n```\n# yes") == ["yes"]


def test_levels() -> None:
    """`=` has the level of `#`, `-` that of `##`, and `*` is above both, as in the Python documentation."""
    levels = [level for level, _ in outline("A\n***\n\nB\n===\n\n# C\n\nD\n---\n\n## E\n\n### F")]
    assert levels == [levels[0], *[levels[0] + 1] * 2, *[levels[0] + 2] * 2, levels[0] + 3]


def test_rule_below_a_heading() -> None:
    """A line below a heading is a rule."""
    assert titles("# Title\n-----\n") == ["Title"]


def test_offsets() -> None:
    """A heading starts with its overline, and its body with the first character below it."""
    text = "intro\n\n===\nTop\n===\n\n## Sub\n\n body"
    top, sub = headings(text)
    assert text[top.start :].startswith("===\nTop")
    assert text[top.body :].startswith("## Sub")
    assert text[sub.body :] == "body"


def test_top() -> None:
    """Headings directly below each other share `top`; with text between them they do not."""
    text = "# A\n\n## B\n# C\nbody\n# D"
    assert [text[heading.top :][:3] for heading in headings(text)] == ["# A", "# A", "# A", "# D"]


@given(st.text("#=-* \n\rab`", max_size=60))
def test_order(text: str) -> None:
    """Headings are in order, do not overlap, and contain their titles."""
    last = 0
    for heading in headings(text):
        assert last <= heading.start < heading.body <= len(text)
        assert heading.title in text[heading.start : heading.body]
        assert heading.top <= heading.start
        last = heading.body


@pytest.mark.parametrize(
    "text",
    ["# " + " " * 10**6, "=" * 10**6, "#" * 10**6, "\n#" * 10**6, "a\n---" + " " * 10**6 + "x", "`" * 10**6],
)
def test_linear_time(text: str) -> None:
    """A megabyte of lines that are almost headings takes little time."""
    assert titles(text) == []


def test_skip_white() -> None:
    """White space ends at the next other character or at the end of the text."""
    assert skip_white("a \n b", 1) == 4
    assert skip_white("a  ", 1) == 3
