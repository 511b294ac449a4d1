"""Patterns for the ends of paragraphs, lines, sentences and words, in scripts with and without spaces."""

from __future__ import annotations

import re

# A full stop ends no sentence after these, after single letters ("J. R.", "p. ej.") and numbers of a list.
_ABBREVIATIONS = (
    "Sr Sra Srta Sres Dr Dra Prof Profa Lic Ing Arq Gral Ud Uds Vd Vds EE UU FF CC Av Avda Cía núm Núm pág págs "
    "Pág Págs art arts Art Arts cap Cap fig figs Fig Figs vol Vol ed ej aprox tel Tel Mr Mrs Ms Jr St vs cf Cf al"
)
_LOWERCASE = "a-zß-öø-ÿ"


def _no_abbreviation(words: list[str]) -> str:
    """Lookbehinds for each length of word, since a lookbehind has a fixed width."""
    lengths = sorted({len(word) for word in words})
    alike = ("|".join(word for word in words if len(word) == length) for length in lengths)
    return "".join(rf"(?<!\b(?:{same})\.)" for same in alike) + r"(?<!\b[^\W\d]\.)(?<!\n\d\.)(?<!\n\d\d\.)"


_PARAGRAPH = r"\n[^\S\n]*+\n"
_LINE = rf"\n(?![ \t]*[{_LOWERCASE}])"  # a line that starts in lower case continues a sentence
# Begins with one character class, which makes the search fast.
_SENTENCE = (
    r"[.!?…؟۔।॥።。！？｡．](?:"
    rf"(?<![。！？｡．]){_no_abbreviation(_ABBREVIATIONS.split())}[\"'”’»)\]]*+(?=\s)(?!\s+—?[{_LOWERCASE}])"
    r"|(?<=[。！？｡．])[。！？｡．]*+[」』”’）】》〉]*+)"
)
_ITEM = r"\n(?=[^\S\n]*(?:[-*•]|\d{1,3}[.)])[^\S\n])"
_WORD = r"[\s，、；：。！？](?![」』”’）】》〉。！？])"


def _last(place: str) -> re.Pattern[str]:
    """Matches up to the last such place of a window. The last character of the window is only context."""
    return re.compile(rf"(?s:.*)(?:{place})(?!\Z)")


ENDS = tuple(map(_last, (_PARAGRAPH, _LINE, _SENTENCE, r"\n")))
"""Best first: each matches from the start of a window to its last end of a paragraph, line or sentence."""

WORD_END = _last(_WORD)
STARTS = (re.compile(rf"{_SENTENCE}|{_LINE}"), re.compile(_WORD))
"""Best first: a sentence, or else a word, starts after a match and the white space after it."""

SENTENCE_END = re.compile(rf"{_SENTENCE}|{_PARAGRAPH}|{_ITEM}")
"""Matches where a sentence, a paragraph or an item of a list ends in a text whose lines may be wrapped."""
