"""Extracts text from HTML: headings as `#` lines, blank lines between blocks, without hidden elements."""

from __future__ import annotations

import re
from collections.abc import Iterator

import webencodings  # type: ignore[import-untyped]
from selectolax.lexbor import LexborHTMLParser, LexborNode, SelectolaxError

from core.errors import TooComplex, UnsupportedType
from kinds.document.reading.text import byte_order_mark, is_blank

_META_BYTES = 4096
_COMMENT = re.compile(rb"<!--.*?-->", re.DOTALL)
_META_CHARSET = re.compile(rb"<meta\b[^>]*?\bcharset\s*=\s*[\"']?\s*([\w.:-]+)", re.IGNORECASE)
_XML_ENCODING = re.compile(rb"\A\s*<\?xml\b[^>]*?\bencoding\s*=\s*[\"']([\w.:-]+)", re.IGNORECASE)
# A page in UTF-16 has a byte order mark: https://html.spec.whatwg.org/multipage/parsing.html#prescan-a-byte-stream-to-determine-its-encoding
# GBK is decoded as GB 18030: https://encoding.spec.whatwg.org/#gbk-decoder
_DECODED_AS = {"utf-16be": "utf-8", "utf-16le": "utf-8", "gbk": "gb18030"}
_NO_TEXT = ("replacement", "x-user-defined")

_SKIPPED = frozenset({
    "head", "script", "style", "template", "noscript", "nav", "svg", "iframe", "object",
    "audio", "video", "canvas", "select", "textarea", "button",
})  # fmt: skip
_BLOCKS = frozenset({
    "address", "article", "aside", "blockquote", "body", "caption", "center", "dd", "details", "dialog", "dir",
    "div", "dl", "dt", "fieldset", "figcaption", "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6",
    "header", "hgroup", "hr", "html", "legend", "li", "main", "menu", "ol", "p", "pre", "section", "summary",
    "table", "tbody", "tfoot", "thead", "tr", "ul",
})  # fmt: skip
_HEADINGS = {f"h{level}": "#" * level + " " for level in range(1, 7)}
_LINES = {"li": "list", "dt": "terms", "dd": "terms", "tr": "table"}  # no blank line between two of a group
_LISTS = frozenset({"ol", "ul", "menu", "dir"})
_INVISIBLE = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.IGNORECASE)
_SPACES = re.compile(r"[ \t\n\r\f]+")
_RUN_OF_SPACES = re.compile(r" {2,}")
_AROUND_BREAK = re.compile(r" *\n *")
_BLANK_LINES = re.compile(r"\n{3,}")


def html_text(data: bytes) -> str:
    """The visible text of the page, with entities decoded. It may be blank.

    If the page has no `h1`, its title is the first heading. Raises UnsupportedType if the encoding is unknown or
    wrong.
    """
    try:
        tree = LexborHTMLParser(_decode(data))
    except SelectolaxError:  # raised when memory runs out
        raise TooComplex("The page is too complex to read. Split or simplify it.") from None
    blocks = _Blocks()
    for node, entering in _walk(tree.root):
        blocks.add(node, entering=entering)
    return _titled(blocks.text(), tree)


def _titled(text: str, tree: LexborHTMLParser) -> str:
    title = tree.css_first("head > title")
    heading = _SPACES.sub(" ", title.text()).strip() if title else ""
    if not heading or is_blank(text) or re.search(r"^# ", text, re.MULTILINE):
        return text
    return f"# {heading}\n\n{text}"


def _decode(data: bytes) -> str:
    mark, encoding = byte_order_mark(data)
    encoding = encoding or _declared(data) or "utf-8"
    try:
        return data[len(mark) :].decode(encoding)
    except UnicodeDecodeError as error:
        raise UnsupportedType(
            f"The page is not valid {encoding} (first at byte {error.start}). Save it as UTF-8."
        ) from None


def _declared(data: bytes) -> str | None:
    head = _COMMENT.sub(b"", data[:_META_BYTES])
    found = _XML_ENCODING.search(head) or _META_CHARSET.search(head)
    return _codec(found[1].decode("latin-1")) if found else None


def _codec(label: str) -> str:
    """The Python codec of an encoding label: https://encoding.spec.whatwg.org/#names-and-labels

    Other codecs of Python do not decode text, or are not safe for untrusted bytes.
    """
    encoding = webencodings.lookup(label)
    if encoding is None or encoding.name in _NO_TEXT:
        raise UnsupportedType(f"The page's encoding {label[:40]!r} is unknown. Save it as UTF-8.")
    codec: str = encoding.codec_info.name
    return _DECODED_AS.get(encoding.name, codec)


def _walk(root: LexborNode | None) -> Iterator[tuple[LexborNode, bool]]:
    """Every visible node on entering it, and blocks also on leaving. Not recursive, because pages can be deep."""
    pending = [(root, True)] if root is not None else []
    while pending:
        node, entering = pending.pop()
        if entering and _is_hidden(node):
            continue
        yield node, entering
        if not entering or node.is_text_node:
            continue
        if node.tag in _BLOCKS:
            pending.append((node, False))
        child = node.last_child
        while child is not None:
            pending.append((child, True))
            child = child.prev


def _is_hidden(node: LexborNode) -> bool:
    if not node.is_element_node:
        return not node.is_text_node
    if node.tag in _SKIPPED:
        return True
    attributes = node.attributes
    return "hidden" in attributes or bool(_INVISIBLE.search(attributes.get("style") or ""))


class _Blocks:
    """Collects inline text into blocks. A block ends when a block element begins or ends."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._inline: list[str] = []
        self._prefix = ""
        self._group: str | None = None
        self._last_group: str | None = None
        self._numbers: list[int | None] = []  # per open list: its last number, or None
        self._preformatted = 0

    def add(self, node: LexborNode, *, entering: bool) -> None:
        tag = node.tag or ""
        if node.is_text_node:
            text = (node.text_content or "").replace("\u00ad", "")
            self._inline.append(text if self._preformatted else _SPACES.sub(" ", text))
        elif tag == "br":
            self._inline.append("\n")
        elif tag in ("td", "th") and self._inline:
            self._inline.append(" | ")
        elif tag in _BLOCKS:
            self._block_boundary(node, tag, entering=entering)

    def text(self) -> str:
        self._end_block()
        return "".join(self._parts)

    def _block_boundary(self, node: LexborNode, tag: str, *, entering: bool) -> None:
        self._end_block()
        if tag == "pre":
            self._preformatted += 1 if entering else -1
        elif tag in _LISTS:
            self._list_boundary(node, entering=entering)
        elif tag in _LINES or tag in _HEADINGS:
            self._group = _LINES.get(tag) if entering else None
            self._prefix = self._marker(tag) if entering else ""

    def _list_boundary(self, node: LexborNode, *, entering: bool) -> None:
        if not entering:
            self._numbers.pop()
        elif node.tag == "ol":
            start = re.fullmatch(r"\d{1,6}", node.attributes.get("start") or "1")
            self._numbers.append(int(start[0]) - 1 if start else 0)
        else:
            self._numbers.append(None)

    def _marker(self, tag: str) -> str:
        if tag != "li":
            return _HEADINGS.get(tag, "")
        number = self._numbers[-1] if self._numbers else None
        if number is None:
            return "- "
        self._numbers[-1] = number + 1
        return f"{number + 1}. "

    def _end_block(self) -> None:
        inline = "".join(self._inline)
        self._inline.clear()
        block = _fenced(inline) if self._preformatted else _flowed(inline)
        if not block:
            return
        if self._prefix.startswith("#"):
            block = block.replace("\n", " ")
        if self._parts:
            self._parts.append("\n" if self._group and self._group == self._last_group else "\n\n")
        self._parts.append(self._prefix + block)
        self._prefix, self._last_group = "", self._group


def _flowed(inline: str) -> str:
    text = _AROUND_BREAK.sub("\n", _RUN_OF_SPACES.sub(" ", inline)).strip(" \n")
    return _BLANK_LINES.sub("\n\n", text)


def _fenced(inline: str) -> str:
    """A code block, so that its `#` lines are not headings. The fence is longer than any inside."""
    if not inline.strip():
        return ""
    longest = max(re.findall(r"`{3,}", inline), key=len, default="``")
    body = inline.strip("\n")
    return f"{longest}`\n{body}\n{longest}`"
