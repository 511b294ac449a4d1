"""Where a text may be cut without breaking what a reader sees as one character.

The rules are those of Unicode Standard Annex 29 (extended grapheme clusters, GB3 to GB13, conjuncts
included). Each character is first reduced to a letter for its role, and the rules are then one regular
expression over those letters:

    r n c   carriage return, line feed, other control      L V T   Hangul jamo: leading, vowel, trailing
    e z     mark, zero width joiner                        v t     Hangul syllable: open, closed
    k l     letter of a script without case, virama        R x     regional indicator, pictograph
    P       prepended mark                                 o       anything else

Python knows neither the pictographs nor the consonants of Indic scripts, so both roles are wider here than
in the standard: a joiner or virama holds a few characters more together, and no cluster is ever broken.
A code point that this Python does not know yet may be a mark, so it stays with what precedes it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from itertools import pairwise

_CHARACTERS = {
    "r": "\r",
    "n": "\n",
    "z": "\u200d",
    "e": "\u0e33\u0eb3\u200c\uff9e\uff9f\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f",
    "l": "\u094d\u09cd\u0acd\u0b4d\u0c4d\u0d4d\u1039\u17d2\u1a60\u1b44\u1bab\u1cf5\u1cf6\ua9c0\uaaf6\U00010a3f"
    "\U00011133\U000113d0\U0001193e\U00011a3a\U00011a47\U00011a99\U00011f42",
    "P": "\u0600-\u0605\u06dd\u070f\u0890\u0891\u08e2\u0d4e\U000110bd\U000110cd\U000111c2\U000111c3\U000113d1"
    "\U0001193f\U00011941\U00011a84-\U00011a89\U00011d46\U00011f02",
    "L": "\u1100-\u115f\ua960-\ua97c",
    "V": "\u1160-\u11a7\ud7b0-\ud7c6\U00016d63\U00016d67-\U00016d6a",
    "T": "\u11a8-\u11ff\ud7cb-\ud7fb",
    "R": "\U0001f1e6-\U0001f1ff",
    "x": "©®‼⁉™ℹ\u2190-\u2bff〰〽㊗㊙\U0001f000-\U0001faff\U0001fc00-\U0001fffd",
}
_CATEGORIES = {"e": ("Mn", "Me", "Mc", "Cn"), "c": ("Cc", "Cf", "Zl", "Zp"), "k": ("Lo",)}
_KNOWN = re.compile("|".join(f"(?P<{role}>[{characters}])" for role, characters in _CHARACTERS.items()))
_BY_CATEGORY = {category: role for role, categories in _CATEGORIES.items() for category in categories}

_CLUSTER = re.compile(
    r"""rn | [rnc]
    | (?!\Z) P*+ (?: L*+ (?: [Vv]V*+T*+ | tT*+ ) | L++ | T++
                    | RR
                    | x (?: [el]*+ z x )*+
                    | [^rncelz] )?
      (?: [ez]*+ l [elz]*+ k )*+ [elz]*+""",
    re.VERBOSE,
)
_JOINED = re.compile("[^rnc][elz]|P[^rnc]|rn")
_CERTAIN = re.compile("(?s:.*)(?:[^P](?=o)|[^Pz](?=x)|[^PL](?=[Lvt])|[okx](?=k))")  # one look back is enough
_NEAR = 64  # characters; most clusters are far shorter, and a longer one only costs time


class _Roles(dict[int, str]):
    """Code point to role, worked out when first met."""

    def __missing__(self, code: int) -> str:
        self[code] = role = _role(chr(code))
        return role


def _role(char: str) -> str:
    if "가" <= char <= "힣":
        return "t" if (ord(char) - ord("가")) % 28 else "v"
    known = _KNOWN.match(char)
    return (known and known.lastgroup) or _BY_CATEGORY.get(unicodedata.category(char), "o")


_ROLES = _Roles()


def is_joined(text: str, at: int) -> bool:
    """Whether the two characters around `at` alone show that it is no boundary: marks, CRLF, prepended marks."""
    return 0 < at < len(text) and _JOINED.match(text[at - 1 : at + 1].translate(_ROLES)) is not None


def last_boundary(text: str, start: int, limit: int) -> int:
    """The last boundary in `start < b <= limit`, or the end of the first cluster if that is longer.

    `start` is a boundary itself.
    """
    last = 0
    for at in boundaries(text, start, limit):
        if at >= limit:
            return last if last and at > limit else at
        last = at
    return last


def first_boundary(text: str, start: int, target: int) -> int:
    """The first boundary at or after `target`, which lies beyond the boundary `start`."""
    return next((at for at in boundaries(text, start, target) if at >= target), len(text))


def boundaries(text: str, start: int = 0, near: int = 0) -> Iterator[int]:
    """The boundaries after `start`, itself one, in order; those far before `near` may be left out."""
    look = max(start, near - _NEAR)
    certain = _CERTAIN.match(text[look : near + 1].translate(_ROLES))
    at = look + certain.end() if certain else start
    if at > start:
        yield at
    span = _NEAR
    while at < len(text):
        base, roles = at, text[at : at + span].translate(_ROLES)
        for cluster, _ in pairwise(_CLUSTER.finditer(roles)):  # the last may go on beyond the window
            at = base + cluster.end()
            yield at
        if base + span >= len(text):
            at = len(text)
            yield at
        span *= 2
