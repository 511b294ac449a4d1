"""Extracts text from PDF with PDFium. Refuses files of which PDFium would read only a part."""

from __future__ import annotations

import re

import pypdfium2 as pdfium  # type: ignore[import-untyped]
import pypdfium2.raw as pdfium_c  # type: ignore[import-untyped]

from core.errors import DocumentTooLarge, EmptyDocument, EncryptedDocument, TruncatedDocument, UnsupportedType
from kinds.document.reading.text import clean

# If the end of a file is missing, PDFium reads the objects that it finds and silently drops the others.
_END = re.compile(rb"startxref\s+(\d{1,12})\s+%%EOF")
_OBJECT = re.compile(rb"\d\s+\d+\s+obj\b")
_XREF = re.compile(rb"\s*(?:xref\b|\d+\s+\d+\s+obj\b)")
_PDF_HEADER = b"%PDF-"
_FULL_LENGTH = re.compile(rb"/Linearized\b[^>]{0,200}?/L\s+(\d{1,12})")
_HEAD_BYTES = 2048
_EVERYWHERE = (-1e9, -1e9, 1e9, 1e9)  # points: includes text outside the page's box
_WRAPPED_HYPHEN = re.compile("\x02(?P<joined>[^\\W\\d_])?")  # PDFium's mark for a hyphen at the end of a line


def pdf_text(data: bytes, *, max_characters: int) -> tuple[str, int]:
    """The text of every page, with a blank line between pages, and the number of pages.

    Includes the values of form fields and the notes on a page. The text of a scan is blank. Raises a subclass of
    InvalidDocument.
    """
    if _is_cut_off(data):
        raise TruncatedDocument(
            "The PDF is cut off or damaged at its end. Send the whole file, or export it again."
        )
    document = _open(data)
    if document.get_formtype() == pdfium_c.FORMTYPE_XFA_FULL:
        raise UnsupportedType("The PDF is an XFA form, which has no pages. Print it to PDF and send the result.")
    pages, left = [], max_characters
    for number in range(len(document)):
        text = clean(_unwrap(_page_text(document, number))).strip("\n")
        left -= len(text)
        if left < 0:
            raise DocumentTooLarge(f"The PDF has more than {max_characters} characters. Split it.")
        pages.append(text)
    return "\n\n".join(filter(None, pages)), len(pages)


def _is_cut_off(data: bytes) -> bool:
    """Whether bytes are missing at the end.

    A complete file, and each complete update appended to it, ends with `startxref`, an offset and `%%EOF`, and no
    object follows (ISO 32000-1, 7.5.5 and 7.5.6). Two kinds of files also contain such an end before: linearized
    ones, which contain their length, and files with another PDF inside, to which the offset does not apply.
    """
    end = _END.match(data, max(data.rfind(b"startxref"), 0))
    if end is None or _OBJECT.search(data, end.end()):
        return True
    length = _FULL_LENGTH.search(data[:_HEAD_BYTES])
    if length and int(length[1]) > len(data):
        return True
    return data.count(_PDF_HEADER) > 1 and not _points_to_xref(data, int(end[1]))


def _points_to_xref(data: bytes, offset: int) -> bool:
    return any(_XREF.match(data, start + offset) for start in (0, data.find(_PDF_HEADER)))


def _open(data: bytes) -> pdfium.PdfDocument:
    try:
        return pdfium.PdfDocument(data)
    except pdfium.PdfiumError as error:
        if error.err_code in (pdfium_c.FPDF_ERR_PASSWORD, pdfium_c.FPDF_ERR_SECURITY):
            raise EncryptedDocument("The PDF needs a password. Remove the password and send it again.") from None
        if error.err_code == pdfium_c.FPDF_ERR_SUCCESS:
            raise EmptyDocument("The PDF has no pages.") from None
        raise TruncatedDocument(
            "The PDF is damaged or cut off. Open it in a PDF reader and export it again."
        ) from None


def _page_text(document: pdfium.PdfDocument, number: int) -> str:
    page = _load(document, number)
    if pdfium_c.FPDFPage_Flatten(page, pdfium_c.FLAT_NORMALDISPLAY) == pdfium_c.FLATTEN_SUCCESS:
        page.close()  # flattened content is visible only after loading the page again
        page = _load(document, number)
    textpage = page.get_textpage()
    text: str = textpage.get_text_bounded(*_EVERYWHERE, errors="replace")
    textpage.close()
    page.close()
    return text


def _load(document: pdfium.PdfDocument, number: int) -> pdfium.PdfPage:
    try:
        return document[number]
    except pdfium.PdfiumError:
        raise TruncatedDocument(
            f"Page {number + 1} of {len(document)} of the PDF cannot be read: the file is damaged or cut off."
        ) from None


def _unwrap(text: str) -> str:
    """Join words that were hyphenated at the end of a line. Keep the hyphen before a capital or a digit."""
    return _WRAPPED_HYPHEN.sub(_rejoined, text).replace("\u00ad", "")


def _rejoined(match: re.Match[str]) -> str:
    following = match["joined"] or ""
    return following if following.islower() else "-" + following
