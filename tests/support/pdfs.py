"""PDF files written by hand, so that a test can say exactly what is in them and what is wrong with them."""

from __future__ import annotations

import re
import zlib

HEADER = b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n"
CATALOG, PAGES, FONT, FIRST_PAGE = 1, 2, 3, 4  # object numbers; page n is followed by its content
_HELVETICA = b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>"
_PAGE = (
    b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] "
    b"/Resources << /Font << /F1 3 0 R >> >> /Contents %d 0 R >>"
)

Objects = dict[int, bytes]


def show(*lines: str) -> bytes:
    """A content stream that writes lines one under the other."""
    shown = b"".join(b"(%s) Tj T*\n" % line.encode("cp1252") for line in lines)
    return b"BT /F1 12 Tf 14 TL 72 700 Td\n" + shown + b"ET"


def stream(data: bytes, *, entries: bytes = b"") -> bytes:
    return b"<< /Length %d %s>>\nstream\n%s\nendstream" % (len(data), entries, data)


def packed(data: bytes) -> bytes:
    return stream(zlib.compress(data, 9), entries=b"/Filter /FlateDecode ")


def document(*contents: bytes, font: bytes = _HELVETICA) -> Objects:
    """The objects of a document with one page for each content stream."""
    numbers = [FIRST_PAGE + 2 * index for index in range(len(contents))]
    objects = {CATALOG: b"<< /Type /Catalog /Pages 2 0 R >>", PAGES: page_tree(*numbers), FONT: font}
    for number, content in zip(numbers, contents, strict=True):
        objects[number] = _PAGE % (number + 1)
        objects[number + 1] = packed(content)
    return objects


def page_tree(*kids: int, count: int | None = None) -> bytes:
    references = b" ".join(b"%d 0 R" % kid for kid in kids)
    return b"<< /Type /Pages /Count %d /Kids [%s] >>" % (len(kids) if count is None else count, references)


def write(objects: Objects, *, after: bytes = b"", trailer: bytes = b"") -> bytes:
    """A file with a classic cross-reference table; or, with `after`, that file and an incremental update."""
    out = bytearray(after or HEADER)
    offsets = _write_bodies(out, objects)
    start, size = len(out), max(objects) + 1
    out += b"xref\n0 1\n0000000000 65535 f \n"
    for number, offset in sorted(offsets.items()):
        out += b"%d 1\n%010d 00000 n \n" % (number, offset)
    if after:
        trailer += b"/Prev %d " % last_xref(after)
    out += b"trailer\n<< /Size %d /Root 1 0 R %s>>\nstartxref\n%d\n%%%%EOF\n" % (size, trailer, start)
    return bytes(out)


def write_compressed(objects: Objects) -> bytes:
    """A file as modern programs write it: objects within an object stream, cross-references in a stream."""
    plain = {number: body for number, body in objects.items() if b"stream\n" not in body}
    box, index = max(objects) + 1, max(objects) + 2
    out = bytearray(HEADER)
    streams = {number: body for number, body in objects.items() if number not in plain}
    offsets = _write_bodies(out, {**streams, box: _object_stream(plain)})
    start = len(out)
    rows = [b"\0\0\0\0\0\xff\xff"]
    for number in range(1, index):
        kind, field, extra = (2, box, list(plain).index(number)) if number in plain else (1, offsets[number], 0)
        rows.append(bytes([kind]) + field.to_bytes(4, "big") + extra.to_bytes(2, "big"))
    rows.append(b"\1" + start.to_bytes(4, "big") + b"\0\0")
    entries = b"/Type /XRef /Size %d /Root 1 0 R /W [1 4 2] " % (index + 1)
    out += b"%d 0 obj\n%s\nendobj\n" % (index, stream(b"".join(rows), entries=entries))
    out += b"startxref\n%d\n%%%%EOF\n" % start
    return bytes(out)


def last_xref(data: bytes) -> int:
    return int(re.findall(rb"startxref\s+(\d+)", data)[-1])


def _write_bodies(out: bytearray, objects: Objects) -> dict[int, int]:
    offsets = {}
    for number, body in objects.items():
        offsets[number] = len(out)
        out += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    return offsets


def _object_stream(objects: Objects) -> bytes:
    offsets, bodies = [], bytearray()
    for number, body in objects.items():
        offsets.append(b"%d %d" % (number, len(bodies)))
        bodies += body + b"\n"
    first = b" ".join(offsets) + b"\n"
    entries = b"/Type /ObjStm /N %d /First %d " % (len(objects), len(first))
    return stream(first + bytes(bodies), entries=entries)
