"""The words and numbers of a text in any script, for comparing texts."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

# Marks and vowel signs are no letters to `\w`, and would cut the words of these scripts: combining marks, Hebrew,
# Arabic, the scripts of India, Thai to Tibetan, Burmese, Khmer.
_SIGNS = (
    r"\u0300-\u036f\u0591-\u05bd\u05bf\u05c1-\u05c7\u0610-\u061a\u064b-\u065f\u0900-\u0963\u0966-\u0dff"
    r"\u0e31-\u0e4e\u0eb1-\u0ecd\u0f71-\u0f84\u102b-\u103e\u17b4-\u17d3"
)
_WORD = re.compile(rf"(?:[^\W_]|[{_SIGNS}])+")
_ASCII_WORD = re.compile(r"[a-z0-9]+")  # four times as fast
# Scripts without spaces between words: Thai to Tibetan, Burmese, Khmer, kana, Chinese characters; Korean, whose
# words take endings.
_SPACELESS = re.compile(
    r"([\u0e00-\u0fff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff\u3400-\u9fff"
    r"\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]+)"
)
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_THOUSANDS = re.compile(r"(?<=\d)[.,](?=\d{3}(?!\d))")

_ENGLISH = frozenset(
    re.findall(
        r"\w+",
        """
        a an the and or of to in on at by for from with as is are was were be been being am it its this that these
        those there he she they we you i his her their our your my me him them us do does did has have had will
        would can could shall should if then than so such which who whom whose what when where why how
        """,
    )
)
_NEGATION = "no"
SHORT, FEW_SENTENCES, OFTEN = 3, 8, 0.25


def of(text: str) -> frozenset[str]:
    """Its words without regard to case. Scripts without spaces: each two characters that follow each other."""
    plain = _normal(text)
    if plain.isascii():
        return frozenset(_ASCII_WORD.findall(plain))
    return frozenset(part for word in _WORD.findall(plain) for part in _parts(word))


def numbers(text: str) -> frozenset[str]:
    """Its numbers: `1,000` is `1000`, `2,5` is `2.5`."""
    return frozenset(_THOUSANDS.sub("", number).replace(",", ".") for number in _NUMBER.findall(_normal(text)))


def is_in(text: str) -> bool:
    """Whether the text has a word or number."""
    return _WORD.search(text) is not None


def is_stop_word(word: str, *, sentences: int, of: int) -> bool:
    """Whether a word means little: an English one of a list, or, in any language with spaces, a short one.

    Short are one or two letters, and also three if a quarter of a text's sentences, `sentences` of `of`, have the
    word.
    """
    if word in _ENGLISH:
        return True
    if len(word) > SHORT or not word.isalpha() or word == _NEGATION or _SPACELESS.match(word):
        return False
    return len(word) < SHORT or (of >= FEW_SENTENCES and sentences >= OFTEN * of)


def _normal(text: str) -> str:
    return text.lower() if text.isascii() else unicodedata.normalize("NFKC", text).casefold()


def _parts(word: str) -> Iterator[str]:
    """The word, or pairs of characters where it is of a script without spaces."""
    for n, part in enumerate(_SPACELESS.split(word)):
        if n % 2 == 0 or len(part) == 1:
            yield from [part] if part else []
        else:
            yield from (part[at : at + 2] for at in range(len(part) - 1))
