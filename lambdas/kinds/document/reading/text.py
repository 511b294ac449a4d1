"""Plain text: strict decoding, and removal of invisible characters."""

from __future__ import annotations

import codecs
import re

from core.errors import UnsupportedType

# UTF-32 before UTF-16: the little-endian mark of UTF-32 begins with that of UTF-16.
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_LINE_ENDS = re.compile(r"\r\n?|\v")
_INVISIBLE = re.compile(r"[\x00-\x08\x0e-\x1f\x7f\ufffe\uffff]")
_LONE_SURROGATE = re.compile(r"[\ud800-\udfff]")
_MAX_CONTROL_SHARE = 0.01


def byte_order_mark(data: bytes) -> tuple[bytes, str | None]:
    """The byte order mark at the start of `data` and its encoding, or `(b"", None)`."""
    return next(((mark, name) for mark, name in _BYTE_ORDER_MARKS if data.startswith(mark)), (b"", None))


def decode(data: bytes) -> str:
    """Decode UTF-8, or UTF-16 and UTF-32 with a byte order mark. Raises UnsupportedType for other encodings."""
    mark, encoding = byte_order_mark(data)
    try:
        text = data[len(mark) :].decode(encoding or "utf-8")
    except UnicodeDecodeError as error:
        raise UnsupportedType(_not_text(data, error)) from None
    if _control_share(text) > _MAX_CONTROL_SHARE:
        raise UnsupportedType(_BINARY)
    return text


_BINARY = (
    "The document is a binary file of an unsupported type. "
    "Export it as PDF, HTML or plain text, and save text as UTF-8."
)


def _not_text(data: bytes, error: UnicodeDecodeError) -> str:
    if _control_share(data[:4096].decode("latin-1")) > _MAX_CONTROL_SHARE:
        return _BINARY
    return (
        f"The text is not valid {error.encoding.upper()} (first at byte {error.start}). "
        "It is probably in an older encoding: save it as UTF-8."
    )


def _control_share(text: str) -> float:
    return (len(text) - len(_INVISIBLE.sub("", text))) / max(len(text), 1)


def clean(text: str) -> str:
    r"""`text` with `\n` for every line end, a blank line for a form feed, and U+FFFD for lone surrogates.

    Removes C0 controls except tab, DEL, and the noncharacters U+FFFE and U+FFFF. Does not normalize.
    """
    text = _LINE_ENDS.sub("\n", text).replace("\f", "\n\n")
    return _LONE_SURROGATE.sub("\ufffd", _INVISIBLE.sub("", text))


def is_blank(text: str) -> bool:
    """Whether nothing is visible: only spaces, format characters, private use characters or U+FFFD."""
    return not any(char.isprintable() and char not in " \ufffd" for char in text)
