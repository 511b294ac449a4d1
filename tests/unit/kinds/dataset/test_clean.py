"""What becomes of a CSV file (kinds.dataset.cleaning.clean)."""

from __future__ import annotations

import csv
import io
from datetime import date
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from core.errors import CountMismatch
from kinds.dataset.cleaning import chunks, table
from kinds.dataset.cleaning.clean import require_columns
from kinds.dataset.errors import (
    AmbiguousColumn,
    ColumnMissing,
    EmptyFile,
    NoRows,
    NotDelimitedText,
    TooManyColumns,
    TooManyRejects,
    TooManyRows,
    UnbalancedQuotes,
    UnknownEncoding,
)
from kinds.dataset.reading import records
from tests.unit.kinds.dataset.conftest import cleaned

CELL = st.text(st.characters(exclude_categories=["Cs"]), max_size=6) | st.sampled_from(
    ["", "1", "007", "1.7", "-5", "1e5", '"', '""', "a,b", "x\ny", "x\r\ny", "\r", "NA", "=1+1", "é", "2024-01-02"]
)
TABLES = st.integers(1, 4).flatmap(
    lambda width: st.lists(st.lists(CELL, min_size=width, max_size=width), min_size=1, max_size=12)
)


LINES = ["1,a", "1,a", "2,b", "3", "4,d,e", '"5,f', '6,"g\nh"', '7,"i"j', "", '8,5" nail']


def written(rows: list[list[str]], **options: Any) -> bytes:
    """The table as Python's `csv` writes it, with a header."""
    target = io.StringIO()
    writer = csv.writer(target, **options)
    writer.writerow([f"name {place}" for place in range(len(rows[0]))])
    writer.writerows(rows)
    return target.getvalue().encode()


def same(value: Any, text: str, kind: str) -> bool:
    """Whether the cleaned value is what the text says. An unreadable one is null."""
    if value is None:
        return True
    if kind == "boolean":
        return value == (text.strip().lower() in ("true", "yes", "y", "t", "on", "1"))
    if kind in ("integer", "number"):
        return float(value) == float(text.strip().strip("$€£¥%").replace(",", ""))
    return str(value) == text.strip() if kind == "date" else str(value).startswith(text.strip()[:10])


@settings(deadline=None, max_examples=60)
@given(TABLES, st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]), st.sampled_from([1, 5, 64]))
@example([["a,b", 'c"d', "e\nf"]], csv.QUOTE_MINIMAL, 1)
@example([["\x00"], [""], ["\r"]], csv.QUOTE_MINIMAL, 64)
def test_round_trip(rows: list[list[str]], quoting: Any, block: int) -> None:
    """What Python's `csv` writes comes back with the same values, whatever the blocks are in which it is read."""
    found = cleaned(written(rows, quoting=quoting), block=block, drop_duplicates=False)
    assert (found.cleaned.rows_in, found.rejects) == (len(rows), [])
    unreadable = {(each["record"], each["column"]): each["text"] for each in found.unreadable}
    for number, (given_row, row) in enumerate(zip(rows, found.rows, strict=True), 1):
        assert row[0] == number
        for text, value, name, kind in zip(given_row, row[1:], found.names[1:], found.types, strict=True):
            if kind == "text":
                assert value == (text or None)
            else:
                assert same(value, text, kind), (text, value, kind)
            if (number, name) in unreadable:
                assert (value, text) == (None, unreadable[number, name])


@settings(deadline=None, max_examples=60)
@given(st.lists(st.sampled_from(LINES), min_size=1, max_size=30))
def test_every_record_is_accounted_for(lines: list[str]) -> None:
    """Rejected records, duplicates and rows are all records, and each row has its number in the file."""
    data = "\n".join(["n,t", *lines, *(f"{n},ok" for n in range(100, 160))]).encode() + b"\n"
    found = cleaned(data)
    facts = found.cleaned
    assert facts.rows_in == sum(facts.rejected.values()) + facts.duplicates + facts.rows_out
    assert facts.rows_out == len(found.rows)
    numbers = [row[0] for row in found.rows] + [each["record"] for each in found.rejects]
    assert len(set(numbers)) == len(numbers)
    assert max(row[0] for row in found.rows) == facts.rows_in
    by_line = data.decode().split("\n")
    for each in found.rejects:
        assert by_line[each["line"] - 1] == each["text"].partition("\n")[0]


def test_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows keep the order of the file and their numbers, over several chunks and many rejects and duplicates."""
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 700_000)
    monkeypatch.setattr(records, "BLOCK_BYTES", 500_000)
    monkeypatch.setattr(records, "MAX_RECORD_BYTES", 10_000)
    lines = [f"{n},{'x' * (n % 50)}" for n in range(150_000)]
    for n in range(0, 150_000, 1000):
        lines[n], lines[n + 7] = "one", lines[n + 5]
    found = cleaned("\n".join(["n,t", *lines]).encode())
    assert (len(found.rejects), found.cleaned.duplicates) == (150, 150)
    assert [row[1] for row in found.rows] == [n for n in range(150_000) if n % 1000 not in (0, 7)]
    assert all(row[0] == row[1] + 1 for row in found.rows)


# ── types ────────────────────────────────────────────────────────────────────────────────────────────────────


def column(*values: str, **options: Any) -> Any:
    found = cleaned(written([[value, str(n)] for n, value in enumerate(values)]), **options)
    return found.types[0], [row[1] for row in found.rows], found.notes[0]


@pytest.mark.parametrize(
    ("values", "kind", "read", "note"),
    [
        (["1", " 2", "+3", "NA", ""], "integer", [1, 2, 3, None, None], ""),
        (["1", "0", "1"], "integer", [1, 0, 1], ""),
        (["1.5", "2", ".5", "1e3"], "number", [1.5, 2, 0.5, 1000], ""),
        (["0.30000000000000004", "5e-324"], "number", [0.30000000000000004, 5e-324], ""),
        (["06503545", "007"], "text", ["06503545", "007"], "leading_zeros"),
        (["29051_00040", "1_0"], "text", ["29051_00040", "1_0"], ""),
        (["inf", "nan", "epoch"], "text", ["inf", "nan", "epoch"], ""),
        (["123456789012345678901", "1"], "text", ["123456789012345678901", "1"], "beyond_64_bits"),
        (["0.1234567890123456789"], "text", ["0.1234567890123456789"], "too_many_digits"),
        (["$1,234.50", "5", "10%"], "number", [1234.5, 5, 10], "percent_sign_removed"),
        (["1.234,56", "1,20"], "number", [1234.56, 1.2], ""),
        (["1,234", "5,678"], "text", ["1,234", "5,678"], "ambiguous_decimal_sign"),
        (["yes", "NO", "y"], "boolean", [True, False, True], ""),
        (["yes", "yes"], "text", ["yes", "yes"], ""),
        (["2024-01-02", "2024-02-30"] + ["2024-01-02"] * 60, "date", [date(2024, 1, 2), None], ""),
        (["13/02/2024", "01/02/2024"], "date", [date(2024, 2, 13), date(2024, 2, 1)], ""),
        (["02/13/2024", "2024-05-06"], "date", [date(2024, 2, 13), date(2024, 5, 6)], ""),
        (["01/02/2024", "03/04/2024"], "text", ["01/02/2024", "03/04/2024"], "ambiguous_date_order"),
        (["1-1-19", "2-1-19"], "text", ["1-1-19", "2-1-19"], ""),
        (["None", "Paris"], "text", ["None", "Paris"], ""),
    ],
)
def test_types(values: list[str], kind: str, read: list[Any], note: str) -> None:
    """A type is chosen only where it keeps every value; else the column is text, and a note says why."""
    found, texts, said = column(*values)
    assert (found, texts[: len(read)], said) == (kind, read, note)


def test_date_order() -> None:
    """The caller may say how dates are written that no value proves."""
    kind, read, _ = column("01/02/2024", date_orders={"name 0": "dmy"})
    assert (kind, read) == ("date", [date(2024, 2, 1)])


def test_late_values() -> None:
    """Values past the sample are not cut to the type: they are null, and listed."""
    rows = [[str(n % 7 + 1), "x" * 20] for n in range(150_000)]
    late = {149_000: "1.7", 149_001: "007", 149_002: "1_000"}
    for place, text in late.items():
        rows[place][0] = text
    found = cleaned(written(rows), drop_duplicates=False)
    assert found.types == ["integer", "text"]
    assert [each["text"] for each in found.unreadable] == list(late.values())
    assert [each["record"] for each in found.unreadable] == [place + 1 for place in late]
    assert found.cleaned.unreadable == {"name 0": 3}


def test_many_late_values() -> None:
    """If more than 5 % of a column are not of the type of the sample, the whole column is text."""
    rows = [[str(n) if n < 130_000 else "n" + str(n), "x" * 20] for n in range(150_000)]
    found = cleaned(written(rows))
    assert (found.types[0], found.notes[0], found.cleaned.unreadable) == ("text", "not_integer", {})
    assert found.rows[0][1] == "0"


# ── hostile files ────────────────────────────────────────────────────────────────────────────────────────────

OK = b"".join(b"%d,x\n" % n for n in range(40))


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", EmptyFile),
        (b"\xef\xbb\xbf", EmptyFile),
        (b"\r\n \n", EmptyFile),
        (b"a,b\n", NoRows),
        (b"a,b\n\n\n", NoRows),
        (b"PK\x03\x04 a workbook", NotDelimitedText),
        (bytes(range(256)) * 2 + bytes(400), NotDelimitedText),
        (b",,\n1,2,3\n", NotDelimitedText),
        (b",".join(b"c%d" % n for n in range(10_000)) + b"\n", TooManyColumns),
        (b'"a,b\n' + OK, UnbalancedQuotes),
        (b"a,b\n" + b"1\n" * 100, TooManyRejects),
        (b"a,b\n" + b'1,"x"y\n' * 10_001, UnbalancedQuotes),
        ("a,b\n1,x\n".encode("utf-16") + b"\x00\xd8", UnknownEncoding),
        (b"a,b\n1,\x81\xff\xfe\n", UnknownEncoding),
    ],
)
def test_refused(data: bytes, error: type[Exception]) -> None:
    """A file that is no table has a code that says why."""
    with pytest.raises(error):
        cleaned(data)


def test_too_many_rows() -> None:
    """A file with more records than the limit is refused while it is counted."""
    assert cleaned(b"a,b\n" + OK, max_rows=40).cleaned.rows_in == 40
    with pytest.raises(TooManyRows, match="more than 39"):
        cleaned(b"a,b\n" + OK, max_rows=39)


@pytest.mark.parametrize(
    ("bad", "reason", "line"),
    [
        (b'1,"open\n', "bad_quotes", 42),
        (b'1,"a"b\n', "bad_quotes", 42),
        (b"1\n", "too_few_fields", 42),
        (b"1,2,3\n", "too_many_fields", 42),
        (b'1,"' + b"x" * 3_000_000 + b'"\n', "record_too_long", 42),
        (b"1," + b"x" * 20_000_000 + b"\n", "record_too_long", 42),
    ],
)
def test_bad_record(bad: bytes, reason: str, line: int) -> None:
    """A bad record is rejected with its number and its line, and the records around it are read."""
    found = cleaned(b"a,b\n" + OK + bad + OK.replace(b"x", b"y"))
    assert [(each["reason"], each["record"], each["line"]) for each in found.rejects] == [(reason, 41, line)]
    assert found.cleaned.rows_out == 80
    assert [row[0] for row in found.rows[39:41]] == [40, 42]


def test_unclosed_quote_at_the_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quote that is not closed costs its line, however many records follow, quoted ones included."""
    monkeypatch.setattr(records, "BLOCK_BYTES", 4096)
    monkeypatch.setattr(records, "MAX_RECORD_BYTES", 1000)
    rows = b"".join(b'%d,"a ""b"", %d"\n' % (n, n) for n in range(3000))
    found = cleaned(b'n,t\n0,"open\n' + rows)
    assert [each["text"] for each in found.rejects] == ['0,"open']
    assert (found.cleaned.rows_out, found.rows[-1][2]) == (3000, 'a "b", 2999')


@pytest.mark.parametrize(
    ("data", "encoding"),
    [
        ("a,b\n1,café\n".encode(), "utf-8"),
        ("a,b\n1,café\n".encode("utf-8-sig"), "utf-8"),
        ('"a",b\n1,café\n'.encode("utf-8-sig"), "utf-8"),
        ("a,b\n1,café\n".encode("cp1252"), "cp1252"),
        ("a,b\n1,café\n".encode("utf-16"), "utf-16-le"),
        ("a,b\n1,café\n".encode("utf-16-be"), "utf-16-be"),
    ],
)
def test_encodings(data: bytes, encoding: str) -> None:
    """The encoding is found, and a byte order mark is not part of the first name."""
    found = cleaned(data)
    assert (found.cleaned.encoding, found.names, found.rows) == (
        encoding,
        ["record_number", "a", "b"],
        [(1, 1, "café")],
    )


def test_shift_jis_far_from_the_beginning() -> None:
    """An encoding that shows only late is found as well: the file is read again."""
    found = cleaned(b"a,b\n" + OK * 10_000 + "7,日本語、\n".encode("cp932"))
    assert (found.cleaned.encoding, found.rows[-1][2]) == ("cp932", "日本語、")


def test_mixed_encodings() -> None:
    """In a file of UTF-8, records with other bytes are rejected."""
    found = cleaned("a,b\n1,é\n2,ü\n".encode() + b"3,\xe9\n")
    assert [(each["record"], each["reason"]) for each in found.rejects] == [(3, "invalid_encoding")]
    assert found.cleaned.rows_out == 2


def test_mixed_line_ends() -> None:
    """CR, LF and CRLF end records, and stay as they are in quotes."""
    found = cleaned(b'a,b\r\n1,x\n2,"y\r\nz"\r3,w\r\n')
    assert [row[1:] for row in found.rows] == [(1, "x"), (2, "y\r\nz"), (3, "w")]
    assert found.cleaned.line_ends == ("cr", "crlf", "lf")


def test_kept_as_they_are() -> None:
    """NUL and formulas are texts like others in the table; a quote inside an unquoted field is a character."""
    found = cleaned(b'a,b\n1,\x00x\n2,=1+1\n3,5" nail\n')
    assert [row[2] for row in found.rows] == ["\x00x", "=1+1", '5" nail']


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_delimiters(delimiter: str) -> None:
    """The delimiter is found, although texts contain others."""
    found = cleaned(written([["a, b; c", "x | y"], ["d", "e"]], delimiter=delimiter))
    assert [row[1:] for row in found.rows] == [("a, b; c", "x | y"), ("d", "e")]


def test_names() -> None:
    """Empty and repeated names are replaced; a name that the request uses must be there once."""
    found = cleaned(b"a,A,,record_number\n1,2,3,4\n")
    assert found.names == ["record_number", "a", "A_2", "column_3", "record_number_2"]
    assert found.cleaned.dialect.renamed == {
        "2: A": "A_2",
        "3: ": "column_3",
        "4: record_number": "record_number_2",
    }
    require_columns(found.cleaned.dialect, {"target": "column_3"})
    with pytest.raises(AmbiguousColumn, match="2 columns 'a'"):
        require_columns(found.cleaned.dialect, {"target": "a"})
    with pytest.raises(ColumnMissing, match=r"target: the file has no column 'x'. Its columns are: a, A_2"):
        require_columns(found.cleaned.dialect, {"target": "x"})


def test_independent_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the engine reads other records than were counted, the job fails."""
    monkeypatch.setattr(table, "scalar", lambda *_: 39)
    with pytest.raises(CountMismatch, match="40 records were counted, but 39 were read"):
        cleaned(b"a,b\n" + OK)
