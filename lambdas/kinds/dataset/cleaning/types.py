"""The type of a column, by a sample of its values.

A type is chosen if at least 98 % of the values that are not null have it, in this order: boolean, integer, number,
number with marks (currency, thousands, per cent), date, timestamp. Everything else is text. Leading zeros, numbers
with more digits than their type keeps, and orders that no value proves (1/2/2024; 1.234) make text, with a note.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Literal

NULL_TOKENS = frozenset(
    {"na", "n/a", "nan", "null", "none", "-", "?", "#n/a", "\\n", "nil", "missing"},
)
"""In any case. They mean null in columns that are not text; a text may be a town called None."""

BOOLEANS = {
    **dict.fromkeys(("true", "yes", "y", "t", "on", "1"), True),
    **dict.fromkeys(("false", "no", "n", "f", "off", "0"), False),
}
ENOUGH, MANY_LEADING_ZEROS = 0.98, 0.02
MAX_UNREADABLE = 0.05
"""Of the values in the whole column. With more, the column is text."""
DOUBLE_DIGITS = 17  # every double has a decimal form of so many digits that gives it back (IEEE 754)
LARGEST, SMALLEST = 2**63 - 1, -(2**63)
EXACT = 2**53
"""Larger integers are no doubles: they stay integers in the table, and are no features."""

CURRENCY = "$€£¥"
INTEGER = r"[+-]?(?:0|[1-9][0-9]*)"
NUMBER = r"[+-]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
POINT_NUMBER = r"[+-]?(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]+)?"
COMMA_NUMBER = r"[+-]?(?:[0-9]{1,3}(?:\.[0-9]{3})+|[0-9]+)(?:,[0-9]+)?"
TIMESTAMP = r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6})?)?"
ISO_DATE = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
OTHER_DATE = r"[0-9]{1,2}([/.-])[0-9]{1,2}\1[0-9]{4}"

_LEADING_ZEROS = re.compile(r"[+-]?0[0-9]+(?:[.,][0-9]*)?")

TypeName = Literal["boolean", "integer", "number", "date", "timestamp", "text"]
Order = Literal["ymd", "dmy", "mdy"]
Marks = Literal["", "point", "comma"]


@dataclass(frozen=True, slots=True)
class ColumnType:
    """`marks`: the decimal sign of numbers with marks. `order`: of dates. `note`: what the report says of it."""

    name: TypeName
    marks: Marks = ""
    order: Order = "ymd"
    note: str = ""

    @property
    def is_numeric(self) -> bool:
        return self.name in ("integer", "number")


TEXT = ColumnType("text")


def infer(values: Mapping[str, int], *, order: Order | None = None) -> ColumnType:
    """`values`: how often each value is in the sample, without empty ones. `order`: the caller knows of dates."""
    known = Counter[str]()
    for value, count in values.items():
        text = value.strip()
        if text and text.lower() not in NULL_TOKENS:
            known[text] += count
    if not known:
        return TEXT
    if order is not None:
        return _dates(known, order) or ColumnType("text", note="not_dates")
    if _share(known, lambda text: _LEADING_ZEROS.fullmatch(text) is not None) > MANY_LEADING_ZEROS:
        return ColumnType("text", note="leading_zeros")
    return _boolean(known) or _number(known) or _marked(known) or _dates(known, None) or TEXT


def _share(known: Counter[str], is_one: Callable[[str], bool]) -> float:
    return sum(count for text, count in known.items() if is_one(text)) / known.total()


def _is_most(known: Counter[str], pattern: str) -> bool:
    match = re.compile(pattern).fullmatch
    return _share(known, lambda text: match(text) is not None) >= ENOUGH


def _boolean(known: Counter[str]) -> ColumnType | None:
    words = {text.lower() for text in known}
    found = words & BOOLEANS.keys()
    if len(words) > 1000 or found <= {"0", "1"} or len({BOOLEANS[word] for word in found}) < 2:
        return None
    enough = _share(known, lambda text: text.lower() in BOOLEANS) >= ENOUGH
    return ColumnType("boolean") if enough else None


def _number(known: Counter[str]) -> ColumnType | None:
    if _is_most(known, INTEGER):
        integer = re.compile(INTEGER).fullmatch
        fits = all(SMALLEST <= int(text) <= LARGEST for text in known if integer(text) and len(text) > 17)
        return ColumnType("integer") if fits else ColumnType("text", note="beyond_64_bits")
    if not _is_most(known, NUMBER):
        return None
    if _share(known, lambda text: _digits(text) > DOUBLE_DIGITS) > 0:
        return ColumnType("text", note="too_many_digits")
    return ColumnType("number")


def _digits(text: str) -> int:
    return len(re.sub(r"[^0-9]", "", re.split("[eE]", text)[0]).strip("0"))


def _marked(known: Counter[str]) -> ColumnType | None:
    plain = Counter[str]()
    for text, count in known.items():
        plain[without_marks(text)] += count
    point, comma = _is_most(plain, POINT_NUMBER), _is_most(plain, COMMA_NUMBER)
    if not (point or comma):
        return None
    if point and comma:
        point, comma = _proves(plain, ",", "."), _proves(plain, ".", ",")
        if not any("," in text for text in plain):
            point, comma = True, False
        if point == comma:
            return ColumnType("text", note="ambiguous_decimal_sign")
    percent = "percent_sign_removed" if any("%" in text for text in known) else ""
    return ColumnType("number", marks="point" if point else "comma", note=percent)


def without_marks(text: str) -> str:
    """Without a currency and a per cent sign at the ends."""
    return text.strip().strip(CURRENCY + "%").strip() if text else text


def _proves(plain: Iterable[str], group: str, decimal: str) -> bool:
    """Whether a value can only be read with these signs."""
    signs = re.compile(
        rf"[+-]?[0-9]{{1,3}}(?:\{group}[0-9]{{3}}){{2,}}|[+-]?[0-9\{group}]+\{decimal}(?:[0-9]{{1,2}}|[0-9]{{4,}})"
        rf"|[+-]?[0-9]{{1,3}}(?:\{group}[0-9]{{3}})+\{decimal}[0-9]+|[+-]?[0-9]{{4,}}\{decimal}[0-9]+"
    )
    return any(signs.fullmatch(text) for text in plain)


def _dates(known: Counter[str], order: Order | None) -> ColumnType | None:
    stamped = _share(known, _is_timestamp)
    iso = _share(known, _is_iso_date)
    if iso >= ENOUGH:
        return ColumnType("date")
    if stamped and stamped + iso >= ENOUGH:
        return ColumnType("timestamp")
    if order == "ymd":
        return None
    orders: dict[Order, float] = {
        "dmy": _share(known, lambda text: _is_other_date(text, "dmy")),
        "mdy": _share(known, lambda text: _is_other_date(text, "mdy")),
    }
    if order is not None:
        return ColumnType("date", order=order) if iso + orders[order] >= ENOUGH else None
    fitting = [each for each, share in orders.items() if share and iso + share >= ENOUGH]
    if len(fitting) == 2:
        return ColumnType("text", note="ambiguous_date_order")
    return ColumnType("date", order=fitting[0]) if fitting else None


def _is_iso_date(text: str) -> bool:
    return re.fullmatch(ISO_DATE, text) is not None and _exists(text[:4], text[5:7], text[8:])


def _is_timestamp(text: str) -> bool:
    return re.fullmatch(TIMESTAMP, text) is not None and _exists(text[:4], text[5:7], text[8:10])


def _is_other_date(text: str, order: Order) -> bool:
    if re.fullmatch(OTHER_DATE, text) is None:
        return False
    first, second, year = re.split("[/.-]", text)
    return _exists(year, second, first) if order == "dmy" else _exists(year, first, second)


def _exists(year: str, month: str, day: str) -> bool:
    try:
        date(int(year), int(month), int(day))
    except ValueError:
        return False
    return True
