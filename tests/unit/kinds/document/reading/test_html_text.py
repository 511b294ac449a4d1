"""Text of HTML pages (kinds.document.reading.html_text)."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import UnsupportedType
from kinds.document.reading.html_text import html_text


def read(markup: str) -> str:
    return html_text(markup.encode())


def test_headings_and_paragraphs() -> None:
    """Headings become `#` lines, paragraphs are separated by blank lines, and inline text is joined."""
    page = "<h1>One</h1><p>a\n  b <b>c</b>d<p>e<br>f<div>g<h3>Three\n<br>deep</h3></div>h"
    assert read(page) == "# One\n\na b cd\n\ne\nf\n\ng\n\n### Three deep\n\nh"


def test_lists_and_tables() -> None:
    """An item or a row is a line. Visible numbers are kept, and cells are separated."""
    page = (
        "<ul><li>a<li><p>b</p><ol start=3><li>c</li><li>d</li></ol></li></ul>"
        "<table><tr><th>k<th>v</tr><tr><td>1</td><td>2</td></tr></table><dl><dt>t<dd>u</dl>"
    )
    assert read(page) == "- a\n- b\n3. c\n4. d\n\nk | v\n1 | 2\n\nt\nu"


def test_preformatted_text() -> None:
    """Preformatted text is fenced, by a fence longer than any inside."""
    assert read("<pre>\n# x\n  y &lt;\n</pre>") == "```\n# x\n  y <\n```"
    assert read("<pre>\n```\n</pre>") == "````\n```\n````"
    assert read("<pre> </pre>a") == "a"


@pytest.mark.parametrize(
    "unread",
    [
        "<script>NO</script>",
        "<style>NO</style>",
        "<template>NO</template>",
        "<noscript>NO</noscript>",
        "<nav><ul><li>NO</ul></nav>",
        "<p hidden>NO <b>NO</b></p>",
        "<div style='color: red; DISPLAY : none'>NO</div>",
        "<p style=visibility:hidden>NO</p>",
        "<select><option>NO</select>",
        "<svg><text>NO</text></svg>",
        "<!-- NO -->",
        "<![CDATA[NO]]>",
        "<a href='NO' title=NO>",
    ],
)
def test_hidden_elements(unread: str) -> None:
    """Scripts, styles, menus, comments and hidden elements are skipped."""
    assert read(f"<body><p>before</p>{unread}<p>after</p>") == "before\n\nafter"


def test_all_bodies() -> None:
    """Text in further bodies and after the end of the page is read."""
    page = "<html><body><p>one</body></html><body><p>two</body><html><body><p>three</html><p>four"
    assert read(page) == "one\n\ntwo\n\nthree\n\nfour"


def test_entities() -> None:
    """Entities are decoded, soft hyphens removed and lone surrogates replaced."""
    assert read("<p>&ntilde; &#x1F600; &lt;b&gt; a&shy;b a&nbsp;b &#xD800;") == "ñ 😀 <b> ab a\u00a0b \ufffd"


def test_title() -> None:
    """The title is the first heading of a page without an h1, unless the page is blank."""
    head = "<head><title> A\n title </title></head>"
    assert read(head + "<p>x") == "# A title\n\nx"
    assert read(head + "<h1>Own</h1>") == "# Own"
    assert read(head + "<body><script>x</script>") == ""


@pytest.mark.parametrize(
    ("label", "codec", "text"),
    [
        ("utf-8", "utf-8", "Año 中文 😀"),
        ("windows-1252", "cp1252", "Año “quoted” €"),
        ("ISO-8859-1", "cp1252", "Año “read as browsers do”"),
        ("us-ascii", "cp1252", "Año"),
        ("iso-8859-15", "iso8859-15", "Œuvre €"),
        ("windows-1251", "cp1251", "Привет"),
        ("koi8-r", "koi8-r", "Привет"),
        ("iso-8859-7", "iso8859-7", "Ελληνικά"),
        ("windows-1255", "cp1255", "שלום"),
        ("windows-1256", "cp1256", "مرحبا"),
        ("Shift_JIS", "cp932", "日本語①"),
        ("x-sjis", "cp932", "日本語"),
        ("EUC-JP", "euc_jp", "日本語"),
        ("iso-2022-jp", "iso2022_jp", "日本語"),
        ("gb2312", "gb18030", "中文镕"),
        ("gbk", "gb18030", "中文"),
        ("Big5", "big5hkscs", "繁體中文"),
        ("euc-kr", "cp949", "한국어똠"),
        ("utf-16", "utf-8", "Año"),
    ],
)
@pytest.mark.parametrize(
    "head",
    [
        '<meta charset="{}">',
        "<META content='text/html; charset={}' http-equiv=Content-Type>",
        "<!-- <meta charset=koi8-u> --><meta charset = {} >",
        "<?xml version='1.0' encoding='{}'?><meta charset=koi8-u>",
    ],
)
def test_declared_encodings(label: str, codec: str, text: str, head: str) -> None:
    """The declared encoding is used as browsers do."""
    assert html_text(f"{head.format(label)}<p>{text}</p>".encode(codec)) == text


@pytest.mark.parametrize(
    ("mark", "codec"), [(b"\xef\xbb\xbf", "utf-8"), (b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be")]
)
def test_byte_order_mark(mark: bytes, codec: str) -> None:
    """A byte order mark takes precedence over the declared encoding."""
    assert html_text(mark + "<meta charset=windows-1251><p>ñ 中".encode(codec)) == "ñ 中"


@pytest.mark.parametrize(
    ("data", "advice"),
    [
        (b"<p>caf\xe9", "not valid utf-8.*Save it as UTF-8"),
        (b"<meta charset=utf-8><p>caf\xe9", "not valid utf-8"),
        (b"<meta charset=rot13><p>x", "'rot13' is unknown"),
        (b"<meta charset=unicode_escape><p>\\x41", "unknown"),
        (b"<meta charset=utf-7><p>+AGE-", "unknown"),
        (b"<meta charset=zlib><p>x", "unknown"),
        (b"<meta charset=nonsense><p>x", "unknown"),
    ],
)
def test_invalid_encodings(data: bytes, advice: str) -> None:
    """Invalid bytes and unknown encodings are refused."""
    with pytest.raises(UnsupportedType, match=advice):
        html_text(data)


def test_deep_nesting() -> None:
    """Five thousand nested elements do not overflow the stack."""
    assert read("<div>" * 5000 + "deep") == "deep"


def test_cost_is_linear() -> None:
    """Repetitive pages take linear time."""
    started = time.perf_counter()
    for piece in ("<p>x", "<b>x ", "<li>x", "<td>x", "<br>", "<pre>`</pre>", "<ol></ol>", "<!--x-->", "   \n"):
        read("<body>" + piece * (100_000 // len(piece)))
    assert time.perf_counter() - started < 15


@given(st.text(st.characters(codec="utf-8", exclude_characters="\x00\r\u00ad"), min_size=1).filter(str.strip))
def test_escaped_text(text: str) -> None:
    """Escaped text in a paragraph is read unchanged, except for spaces."""
    escaped = "".join(f"&#{ord(char)};" if char in "<>&" else char for char in text)
    assert read(f"<body><p>{escaped}</p>").split() == text.split()


@given(st.text(alphabet="<>/!-&;= \n'\"`aphrefpoltdu123", max_size=200))
def test_any_markup(markup: str) -> None:
    """Invalid markup raises no error."""
    assert isinstance(read(markup), str)
