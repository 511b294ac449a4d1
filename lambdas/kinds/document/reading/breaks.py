"""Where prose may be broken: after paragraphs, lines, sentences and words, in scripts with and without spaces."""

from __future__ import annotations

import re

# What a full stop does not end, besides single letters ("J. R.", "p. ej.") and the numbers of a list.
_ABBREVIATIONS = (
    "Sr Sra Srta Sres Dr Dra Prof Profa Lic Ing Arq Gral Ud Uds Vd Vds EE UU FF CC Av Avda Cía núm Núm pág págs "
    "Pág Págs art arts Art Arts cap Cap fig figs Fig Figs vol Vol ed ej aprox tel Tel Mr Mrs Ms Jr St vs cf Cf al"
)
_LOWERCASE = "a-zß-öø-ÿ"


def _no_abbreviation(words: list[str]) -> str:
    """Lookbehinds for each length of word, since one lookbehind must have one width."""
    lengths = sorted({len(word) for word in words})
    alike = ("|".join(word for word in words if len(word) == length) for length in lengths)
    return "".join(rf"(?<!\b(?:{same})\.)" for same in alike) + r"(?<!\b[^\W\d]\.)(?<!\n\d\.)(?<!\n\d\d\.)"


_PARAGRAPH = r"\n[^\S\n]*+\n"
_LINE = rf"\n(?![ \t]*[{_LOWERCASE}])"  # a line that starts in lower case goes on with a sentence
# One class first, because that is what the search looks for at every character.
_SENTENCE = (
    r"[.!?…؟۔।॥።。！？｡．](?:"
    rf"(?<![。！？｡．]){_no_abbreviation(_ABBREVIATIONS.split())}[\"'”’»)\]]*+(?=\s)(?!\s+—?[{_LOWERCASE}])"
    r"|(?<=[。！？｡．])[。！？｡．]*+[」』”’）】》〉]*+)"
)
_WORD = r"[\s，、；：。！？](?![」』”’）】》〉。！？])"


def _last(place: str) -> re.Pattern[str]:
    """Matches up to the last such place of a window, whose final character is only looked at."""
    return re.compile(rf"(?s:.*)(?:{place})(?!\Z)")


ENDS = tuple(map(_last, (_PARAGRAPH, _LINE, _SENTENCE, r"\n")))
"""Best first: each matches from the start of a window up to its last end of a paragraph, line or sentence."""

WORD_END = _last(_WORD)
STARTS = (re.compile(rf"{_SENTENCE}|{_LINE}"), re.compile(_WORD))
"""Best first: a sentence, or else a word, starts after a match and the white space behind it."""
