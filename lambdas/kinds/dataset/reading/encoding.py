"""The encoding of a text file, and its bytes as UTF-8.

- A byte order mark decides. Without one, NUL at every second byte means UTF-16.
- A file that is valid UTF-8 is UTF-8.
- A file with more bytes that are invalid in UTF-8 than valid characters beyond ASCII is Windows-1252, or Shift-JIS
  if Windows-1252 has no character for some of its bytes.
- Otherwise encodings are mixed: it is read as UTF-8, and records with invalid bytes are rejected.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator

from kinds.dataset.errors import EmptyFile, NotDelimitedText, UnknownEncoding

UTF_8 = "utf-8"
LEGACY = ("cp1252", "cp932")
"""Windows-1252 and Shift-JIS."""
MARKS = ((codecs.BOM_UTF8, UTF_8), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
MAGIC = {
    b"PK\x03\x04": "a ZIP archive or a spreadsheet",
    b"PAR1": "a Parquet file",
    b"\x1f\x8b": "compressed with gzip",
    b"%PDF": "a PDF",
    b"SQLite format 3": "a database",
}
HEAD_BYTES = 64 * 1024
MANY_NULS = 0.3
_INVALID, _VALID = re.compile("[\udc80-\udcff]"), re.compile("[\u0080-\ud7ff\ue000-\U0010ffff]")


def sniff(head: bytes) -> tuple[str, int]:
    """(encoding, bytes of the byte order mark) by the beginning of the file. UTF-8 is only an assumption.

    Raises EmptyFile and NotDelimitedText.
    """
    if not head.strip(b"\x00 \t\r\n") or head in {mark for mark, _ in MARKS}:
        raise EmptyFile("The file is empty. Upload a CSV file with a header and records.")
    for magic, name in MAGIC.items():
        if head.startswith(magic):
            raise NotDelimitedText(f"The file is {name}. Upload it as plain CSV.")
    for mark, encoding in MARKS:
        if head.startswith(mark):
            return encoding, len(mark)
    return _without_mark(head[:HEAD_BYTES]), 0


def _without_mark(head: bytes) -> str:
    even, odd = head[::2].count(0) / len(head), head[1::2].count(0) / len(head)
    if odd > MANY_NULS > even:
        return "utf-16-le"
    if even > MANY_NULS > odd:
        return "utf-16-be"
    if even + odd > MANY_NULS:
        raise NotDelimitedText("The file is binary. Upload it as plain CSV.")
    return UTF_8


def detect(blocks: Iterable[bytes]) -> str:
    """The encoding of a file that is not valid UTF-8, by all of its bytes. Raises UnknownEncoding."""
    decoder = codecs.getincrementaldecoder(UTF_8)(errors="surrogateescape")
    legacy = {name: codecs.getincrementaldecoder(name)(errors="strict") for name in LEGACY}
    invalid = valid = 0
    for block in blocks:
        text = decoder.decode(block)
        invalid += len(_INVALID.findall(text))
        valid += len(_VALID.findall(text))
        for name in list(legacy):
            try:
                legacy[name].decode(block)
            except UnicodeDecodeError:
                del legacy[name]
    if valid >= invalid:
        return UTF_8
    if not legacy:
        raise UnknownEncoding("The file is neither UTF-8 nor Windows-1252 nor Shift-JIS. Save it as UTF-8.")
    return next(iter(legacy))


def as_utf_8(blocks: Iterable[bytes], encoding: str) -> Iterator[bytes]:
    """Raises UnknownEncoding for bytes that the encoding does not have. UTF-8 is not checked here."""
    if encoding == UTF_8:
        yield from blocks
        return
    decoder = codecs.getincrementaldecoder(encoding)(errors="strict")
    try:
        for block in blocks:
            yield decoder.decode(block).encode()
        yield decoder.decode(b"", final=True).encode()
    except UnicodeError:
        raise UnknownEncoding(f"The file begins as {encoding} and is not. Save it as UTF-8.") from None
