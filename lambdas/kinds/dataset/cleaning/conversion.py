"""SQL that reads a text as a type, as `types` decided: null for null tokens and for what is not of the type.

DuckDB's TRY_CAST alone would read `1.7` as 2, `007` as 7, `1_000` as 1000 and `epoch` as a date.
"""

from __future__ import annotations

from kinds.dataset.cleaning.types import (
    BOOLEANS,
    COMMA_NUMBER,
    CURRENCY,
    INTEGER,
    ISO_DATE,
    NULL_TOKENS,
    NUMBER,
    POINT_NUMBER,
    TIMESTAMP,
    ColumnType,
)

SQL_TYPES = {
    "boolean": "BOOLEAN",
    "integer": "BIGINT",
    "number": "DOUBLE",
    "date": "DATE",
    "timestamp": "TIMESTAMP",
    "text": "VARCHAR",
}
_MAX_PLAIN = 18
"""So many characters cannot have too many digits for a double."""


def identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def hash_below(share: float) -> str:
    """The largest 64-bit hash of this share of all, from 0 to 1."""
    return f"{min(int(share * 2**64), 2**64 - 1)}::UBIGINT"


def typed(column: str, kind: ColumnType) -> str:
    """The SQL expression of the typed value. `column` is an expression of a text."""
    text = f"trim({column}, ' \t\n\r\v\f')"
    match kind.name:
        case "boolean":
            return _boolean(text)
        case "integer":
            return (
                f"CASE WHEN TRY_CAST({column} AS BIGINT)::VARCHAR = {column} THEN TRY_CAST({column} AS BIGINT) "
                f"WHEN {_matches(text, INTEGER)} THEN TRY_CAST({text} AS BIGINT) END"
            )
        case "number":
            return _marked(column, text, kind) if kind.marks else _number(column, text)
        case "date":
            return _date(column, text, kind)
        case "timestamp":
            pattern = f"{ISO_DATE}|{TIMESTAMP}"
            return f"CASE WHEN {_matches(text, pattern)} THEN TRY_CAST({text} AS TIMESTAMP) END"
        case _:
            return column


def unreadable(column: str, value: str) -> str:
    """The SQL expression of the text if it is neither null nor of the type; `value` is the typed value."""
    tokens = ", ".join(literal(token) for token in sorted(NULL_TOKENS))
    empty = f"lower(trim({column}, ' \t\n\r\v\f')) IN ('', {tokens})"
    return f"CASE WHEN {value} IS NULL AND {column} IS NOT NULL AND NOT {empty} THEN {column} END"


def _boolean(text: str) -> str:
    yes, no = (", ".join(literal(w) for w, v in BOOLEANS.items() if v is value) for value in (True, False))
    return f"CASE WHEN lower({text}) IN ({yes}) THEN true WHEN lower({text}) IN ({no}) THEN false END"


def _number(column: str, text: str) -> str:
    value = f"TRY_CAST({text} AS DOUBLE)"
    digits = f"length(trim(regexp_replace(regexp_replace({text}, '[eE].*', ''), '[^0-9]', '', 'g'), '0')) <= 17"
    return (
        f"CASE WHEN {_is_plain(column)} AND isfinite(TRY_CAST({column} AS DOUBLE)) "
        f"THEN TRY_CAST({column} AS DOUBLE) "
        f"WHEN {_matches(text, NUMBER)} AND isfinite({value}) AND {digits} THEN {value} END"
    )


def _marked(column: str, text: str, kind: ColumnType) -> str:
    ends = literal(CURRENCY + "%")
    plain = f"trim(trim({text}, {ends}), ' ')"
    pattern = POINT_NUMBER if kind.marks == "point" else COMMA_NUMBER
    group, decimal = (",", ".") if kind.marks == "point" else (".", ",")
    number = f"replace(replace({plain}, '{group}', ''), '{decimal}', '.')"
    quick = f"{_is_plain(column)} AND NOT contains({column}, '{group}')"
    return (
        f"CASE WHEN {quick} AND isfinite(TRY_CAST({column} AS DOUBLE)) THEN TRY_CAST({column} AS DOUBLE) "
        f"WHEN {_matches(plain, pattern)} THEN TRY_CAST({number} AS DOUBLE) END"
    )


def _is_plain(column: str) -> str:
    """A short text that begins with a digit: what is then a finite double is a number without a closer look."""
    return (
        f"length({column}) <= {_MAX_PLAIN} AND ({column})[1] BETWEEN '1' AND '9' AND NOT contains({column}, '_')"
    )


def _date(column: str, text: str, kind: ColumnType) -> str:
    quick = f"WHEN length({column}) = 10 AND TRY_CAST({column} AS DATE)::VARCHAR = {column} "
    slow = f"WHEN {_matches(text, ISO_DATE)} THEN TRY_CAST({text} AS DATE)"
    iso = f"CASE {quick} THEN TRY_CAST({column} AS DATE) {slow}"
    if kind.order == "ymd":
        return f"{iso} END"
    first, second = ("%d", "%m") if kind.order == "dmy" else ("%m", "%d")
    formats = ", ".join(literal(f"{first}{sign}{second}{sign}%Y") for sign in "/.-")
    other = f"WHEN {_matches(text, '[0-9]{1,2}[/.-][0-9]{1,2}[/.-][0-9]{4}')} "
    return f"{iso} {other}THEN try_strptime({text}, [{formats}])::DATE END"


def _matches(text: str, pattern: str) -> str:
    return f"regexp_full_match({text}, {literal(pattern)})"
