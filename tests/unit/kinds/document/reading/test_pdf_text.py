"""Text of PDF files (kinds.document.reading.pdf_text)."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reportlab.lib import pdfencrypt
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.cidfonts import UnicodeCIDFont
from reportlab.pdfbase.ttfonts import TTFont
from reportlab.pdfgen.canvas import Canvas

from core.errors import (
    DocumentTooLarge,
    EncryptedDocument,
    TruncatedDocument,
    UnsupportedType,
)
from kinds.document.reading.pdf_text import pdf_text
from tests.support import pdfs

TWO_PAGES = pdfs.document(pdfs.show("hello"), pdfs.show("world"))
HELLO_WORLD = "hello\n\nworld", 2


def read(data: bytes) -> tuple[str, int]:
    return pdf_text(data, max_characters=1_000_000)


def draw(paint: Callable[[Canvas], object], **options: object) -> bytes:
    """A PDF made by reportlab."""
    file = io.BytesIO()
    canvas = Canvas(file, invariant=1, **options)
    paint(canvas)
    canvas.showPage()
    canvas.save()
    return file.getvalue()


def updated() -> bytes:
    """A complete file with an update that replaces a page and adds one."""
    first = pdfs.write(TWO_PAGES)
    added = pdfs.document(pdfs.show("new"), pdfs.show("world"), pdfs.show("added"))
    return pdfs.write({number: added[number] for number in (2, 4, 5, 8, 9)}, after=first)


def with_attachment() -> bytes:
    """A PDF with another, uncompressed, inside."""
    objects = pdfs.document(pdfs.show("outer"))
    objects[20] = pdfs.stream(pdfs.write(TWO_PAGES))
    return pdfs.write(objects)


@pytest.mark.parametrize("write", [pdfs.write, pdfs.write_compressed])
def test_pages(write: Callable[[pdfs.Objects], bytes]) -> None:
    """Pages are read in order with blank lines between them, with both kinds of cross-reference tables."""
    assert read(write(TWO_PAGES)) == HELLO_WORLD


def test_scripts() -> None:
    """Accented Latin, Chinese and Japanese are read."""
    pdfmetrics.registerFont(TTFont("Vera", "Vera.ttf"))
    pdfmetrics.registerFont(UnicodeCIDFont("STSong-Light"))
    pdfmetrics.registerFont(UnicodeCIDFont("HeiseiMin-W3"))
    lines = {"Vera": "Año: ¿qué tal? Œuvre, straße", "STSong-Light": "中文文档", "HeiseiMin-W3": "日本語の文書"}

    def paint(canvas: Canvas) -> None:
        for row, (font, line) in enumerate(lines.items()):
            canvas.setFont(font, 12)
            canvas.drawString(72, 700 - 30 * row, line)

    assert read(draw(paint))[0].splitlines() == list(lines.values())


def test_mapped_characters() -> None:
    """Emoji and ligatures are read, lone surrogates replaced, and invisible characters removed."""
    font = (
        b"<< /Type /Font /Subtype /Type0 /BaseFont /X /Encoding /Identity-H "
        b"/DescendantFonts [90 0 R] /ToUnicode 91 0 R >>"
    )
    objects = pdfs.document(b"BT /F1 12 Tf 72 700 Td <000100020003000400050006> Tj ET", font=font)
    objects[90] = (
        b"<< /Type /Font /Subtype /CIDFontType2 /BaseFont /X /DW 1000 "
        b"/CIDSystemInfo << /Registry (Adobe) /Ordering (Identity) /Supplement 0 >> >>"
    )
    objects[91] = pdfs.stream(
        b"begincmap 1 begincodespacerange <0000> <FFFF> endcodespacerange 6 beginbfchar "
        b"<0001> <D83DDE00> <0002> <00660069> <0003> <D83D> <0004> <0000> <0005> <D83DDE80> <0006> <00AD> "
        b"endbfchar endcmap"
    )
    assert read(pdfs.write(objects)) == ("😀fi\ufffd🚀", 1)


def test_hyphens() -> None:
    """A word that is hyphenated at the end of a line is joined, unless a capital, a digit or nothing follows."""
    lines = [
        "a hyphen-",
        "ated word, Anglo-",
        "Saxon, well-known, 2019-",
        "2020, soft\xad",
        "ly, and -",
        "the end-",
    ]
    text = "a hyphenated word, Anglo-Saxon, well-known, 2019-\n2020, softly, and -\nthe end-"
    assert read(pdfs.write(pdfs.document(pdfs.show(*lines))))[0] == text


def test_text_outside_the_box() -> None:
    """Text outside the page's box is read."""
    content = b"BT /F1 12 Tf 72 700 Td (inside) Tj 0 5000 Td (outside) Tj ET"
    assert read(pdfs.write(pdfs.document(content)))[0].splitlines() == ["inside", "outside"]


def test_form_fields() -> None:
    """The values of form fields are read."""

    def paint(canvas: Canvas) -> None:
        canvas.drawString(72, 700, "Name:")
        canvas.acroForm.textfield(name="name", value="Zoë Núñez", x=120, y=690, width=200, height=20)

    assert read(draw(paint))[0].split() == ["Name:", "Zoë", "Núñez"]


def test_scan() -> None:
    """A page without text is counted and adds nothing."""
    picture = draw(lambda canvas: canvas.rect(10, 10, 100, 100, fill=1))
    assert read(picture) == ("", 1)
    assert read(pdfs.write(pdfs.document(b"", pdfs.show("hello"), b""))) == ("hello", 3)


@pytest.mark.parametrize("strength", [40, 128])
def test_encrypted(strength: int) -> None:
    """A file with a password is refused; one with restrictions only is read."""

    def paint(canvas: Canvas) -> None:
        canvas.drawString(72, 700, "secret")

    locked = pdfencrypt.StandardEncryption("user", ownerPassword="owner", strength=strength)
    with pytest.raises(EncryptedDocument, match="Remove the password"):
        read(draw(paint, encrypt=locked))
    restricted = pdfencrypt.StandardEncryption("", ownerPassword="owner", canCopy=0, strength=strength)
    assert read(draw(paint, encrypt=restricted)) == ("secret", 1)


def test_unknown_encryption() -> None:
    """A file with an unknown encryption is refused as encrypted."""
    objects = TWO_PAGES | {40: b"<< /Filter /Unknown /V 4 >>"}
    with pytest.raises(EncryptedDocument):
        read(pdfs.write(objects, trailer=b"/Encrypt 40 0 R /ID [<00> <00>] "))


WHOLE = {
    "classic": pdfs.write(TWO_PAGES),
    "compressed": pdfs.write_compressed(TWO_PAGES),
    "attachment": with_attachment(),
    "reportlab": draw(lambda canvas: canvas.drawString(72, 700, "hello")),
}


@pytest.mark.parametrize("name", WHOLE)
def test_truncated_files(name: str) -> None:
    """A file that is cut anywhere is refused."""
    data = WHOLE[name]
    for length in range(len(data.rstrip())):
        with pytest.raises(TruncatedDocument):
            read(data[:length])


def test_truncated_updates() -> None:
    """A file that is cut within an update is refused, unless the file before it is complete."""
    data, before = updated(), pdfs.write(TWO_PAGES)
    first_object = len(before) + len(b"4 0 obj")
    for length in range(len(data.rstrip())):
        if len(before.rstrip()) <= length < first_object:
            assert read(data[:length]) == HELLO_WORLD
        else:
            with pytest.raises(TruncatedDocument):
                read(data[:length])
    assert read(data) == ("new\n\nworld\n\nadded", 3)


@given(st.binary(max_size=400), st.integers(0, 400))
def test_truncated_binary_content(noise: bytes, cut: int) -> None:
    """A cut file is refused, whatever bytes its streams contain."""
    data = pdfs.write(TWO_PAGES | {30: pdfs.stream(noise)})
    with pytest.raises(TruncatedDocument):
        read(data[: max(len(data) - 2 - cut, 0)])


def test_linearized() -> None:
    """A linearized file shorter than its length is refused; a longer one is read."""
    for length, whole in ((900, True), (99_999, False)):
        data = pdfs.write({40: b"<< /Linearized 1 /L %d /N 2 >>" % length, **TWO_PAGES})
        assert 900 < len(data) < 99_999
        if whole:
            assert read(data) == HELLO_WORLD
        else:
            with pytest.raises(TruncatedDocument):
                read(data)


@pytest.mark.parametrize(
    "data",
    [
        pdfs.write(TWO_PAGES) + b"\r\n<html>an error page</html>\x00\xff" * 200,
        pdfs.write(TWO_PAGES) + bytes(4096),
        b"HTTP/1.1 200 OK\r\n\r\n" + pdfs.write(TWO_PAGES),
        b"junk\n" + pdfs.write(TWO_PAGES) + b"junk",
        pdfs.write(TWO_PAGES).replace(b"startxref\n", b"startxref\n9"),
    ],
)
def test_harmless_damage(data: bytes) -> None:
    """Bytes before or after a complete file, or a wrong offset, do not prevent reading."""
    assert read(data) == HELLO_WORLD


@pytest.mark.parametrize(
    "damage",
    [
        {6: b"null"},
        {6: b"[1 2 3]"},
        {2: pdfs.page_tree(4, 6, 99)},
        {2: pdfs.page_tree(4, 6, count=5)},
        {2: pdfs.page_tree(2, count=1)},
        {2: pdfs.page_tree(4, 2, 6, count=3)},
    ],
)
def test_missing_pages(damage: pdfs.Objects) -> None:
    """A page that cannot be read, or a cyclic page tree, is an error."""
    with pytest.raises(TruncatedDocument, match=r"Page \d of \d of the PDF cannot be read"):
        read(pdfs.write(TWO_PAGES | damage))


def test_deep_page_tree() -> None:
    """A page three thousand levels deep is refused without a stack overflow."""
    tree = {number: pdfs.page_tree(number + 1) for number in range(2, 3000)}
    leaf = {3000: b"<< /Type /Page /MediaBox [0 0 9 9] >>"}
    with pytest.raises(TruncatedDocument):
        read(pdfs.write({1: TWO_PAGES[1], **tree, **leaf}))


@pytest.mark.parametrize("data", [b"%PDF-1.7", b"%PDF-1.7\nstartxref\n0\n%%EOF\n", b"%PDF-1.7\nnonsense"])
def test_header_only(data: bytes) -> None:
    """A header without a document is refused as truncated."""
    with pytest.raises(TruncatedDocument):
        read(data)


def test_xfa() -> None:
    """A form that only one vendor's reader can show is refused."""
    catalog = b"<< /Type /Catalog /Pages 2 0 R /AcroForm << /XFA (x) /Fields [] >> /NeedsRendering true >>"
    with pytest.raises(UnsupportedType, match="XFA"):
        read(pdfs.write(TWO_PAGES | {1: catalog}))


def test_very_many_pages() -> None:
    """All of five thousand pages are read."""
    text, pages = read(pdfs.write(pdfs.document(*[pdfs.show(f"p{number}") for number in range(5000)])))
    assert pages == 5000
    assert text.split() == [f"p{number}" for number in range(5000)]


def test_too_much_text() -> None:
    """Reading stops at the page that exceeds the limit."""
    broken_third = pdfs.write(TWO_PAGES | {2: pdfs.page_tree(4, 6, 99)})
    with pytest.raises(DocumentTooLarge, match="more than 9 characters"):
        pdf_text(broken_third, max_characters=9)
