"""Ends of paragraphs, lines, sentences and words (kinds.document.reading.breaks)."""

from __future__ import annotations

from itertools import pairwise

import pytest

from kinds.document.reading.breaks import ENDS, STARTS, WORD_END


def sentences(text: str) -> list[str]:
    """The text split where a sentence or line starts."""
    cuts = [0, *(found.end() for found in STARTS[0].finditer(text)), len(text)]
    return [part for start, end in pairwise(cuts) if (part := text[start:end].strip())]


@pytest.mark.parametrize(
    "expected",
    [
        ["Llegó el lunes.", "Nadie lo vio."],
        ["¿Vienes?", "¡Claro!", "Vamos."],
        ["Habló con el Sr. Gil y la Dra. Paz.", "Luego se fue."],
        ["Nació en EE. UU. en 1980.", "Murió en 2020."],
        ["Frutas, p. ej. peras, y J. R. R. Tolkien.", "Fin."],
        ["Véase la pág. 7 del art. 4.", "Eso es todo."],
        ["—¿Quién? —dijo.", "Nadie."],
        ["—¡Corre! gritó ella.", "Y corrió."],
        ["«Está bien.»", "Se rio."],
        ["He said “No.”", "Then he left."],
        ["It works (so far…)", "And 3.14 is fine, e.g. here.", "See Fig. 3."],
        ["هل أنت هنا؟", "نعم."],
        ["यह पहला है।", "यह दूसरा है।"],
    ],
    ids=ascii,
)
def test_sentences(expected: list[str]) -> None:
    """Sentences do not end at abbreviations, initials, decimals or before lower case."""
    assert sentences(" ".join(expected)) == expected


@pytest.mark.parametrize(
    "expected",
    [
        ["今天很好。", "明天呢？！", "走吧！"],
        ["他说：「好。」", "我走了。"],
        ["これは文です。", "（本当。）", "はい。"],
    ],
    ids=ascii,
)
def test_sentences_without_spaces(expected: list[str]) -> None:
    """Chinese and Japanese sentences end with their punctuation and closing brackets."""
    assert sentences("".join(expected)) == expected


@pytest.mark.parametrize(
    ("level", "text", "end"),
    [
        (0, "one\n\ntwo\n \t\r\n three\nfour", "one\n\ntwo\n \t\r\n"),
        (1, "One\nTwo\nthree. Four", "One\n"),
        (2, "One. Two. three", "One."),
        (3, "one\ntwo three", "one\n"),
    ],
)
def test_last_end(level: int, text: str, end: str) -> None:
    """Each level finds the last end of its kind in a window."""
    found = ENDS[level].match(text)
    assert found
    assert found[0] == end


def test_last_word() -> None:
    """A word ends with white space or CJK punctuation, but not before a closing bracket."""
    for text, end in [("one two", "one "), ("一，二，三", "一，二，"), ("一。」二", None), ("one", None)]:
        found = WORD_END.match(text)
        assert (found and found[0]) == end
