"""HTML to Markdown-like text: headings as `#` lines, blocks apart by blank lines, nothing hidden."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator

from selectolax.lexbor import LexborHTMLParser, LexborNode, SelectolaxError

from core.errors import TooComplex, UnsupportedType
from kinds.document.reading.text import byte_order_mark, is_blank

_META_BYTES = 4096
_COMMENT = re.compile(rb"<!--.*?-->", re.DOTALL)
_META_CHARSET = re.compile(rb"<meta\b[^>]*?\bcharset\s*=\s*[\"']?\s*([\w.:-]+)", re.IGNORECASE)
_XML_ENCODING = re.compile(rb"\A\s*<\?xml\b[^>]*?\bencoding\s*=\s*[\"']([\w.:-]+)", re.IGNORECASE)
# What a page calls by the first name is read by browsers as the second (WHATWG Encoding, 4.2).
_READ_AS = {
    "ascii": "cp1252",
    "iso8859-1": "cp1252",
    "iso8859-9": "cp1254",
    "iso8859-11": "cp874",
    "tis-620": "cp874",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "big5": "big5hkscs",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
    "utf-16": "utf-8",
    "utf-16-le": "utf-8",
    "utf-16-be": "utf-8",
}
_WEB_CODEC = re.compile(
    r"utf-8|cp125\d|cp866|cp874|cp932|cp949|iso8859-\d+|koi8-[ru]|mac-roman|mac-cyrillic"
    r"|gb18030|big5hkscs|euc_jp|iso2022_jp"
)

_UNREAD = frozenset({
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
_LINES = {"li": "list", "dt": "terms", "dd": "terms", "tr": "table"}  # neighbours of a kind get no blank line
_LISTS = frozenset({"ol", "ul", "menu", "dir"})
_INVISIBLE = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.IGNORECASE)
_SPACES = re.compile(r"[ \t\n\r\f]+")
_RUN_OF_SPACES = re.compile(r" {2,}")
_AROUND_BREAK = re.compile(r" *\n *")
_BLANK_LINES = re.compile(r"\n{3,}")


def html_text(data: bytes) -> str:
    """The text a reader of the page sees, entities decoded, from all of its bodies; blank if there is none.

    A page without an `h1` is headed by its title. Raises `UnsupportedType` if the encoding is unknown or wrong.
    """
    try:
        tree = LexborHTMLParser(_decode(data))
    except SelectolaxError:  # all it says when memory runs out
        raise TooComplex("The page is too complex to read. Split or simplify it.") from None
    outline = _Outline()
    for node, entering in _walk(tree.root):
        outline.add(node, entering=entering)
    return _titled(outline.text(), tree)


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
    return _codec(found[1].decode("ascii", "replace")) if found else None


def _codec(label: str) -> str:
    """The codec for an encoding that browsers know: Python's other codecs are not for strangers' bytes."""
    try:
        name = codecs.lookup({"x-sjis": "cp932", "x-gbk": "gbk"}.get(label.lower(), label)).name
    except LookupError:
        name = ""
    name = _READ_AS.get(name, name)
    if not _WEB_CODEC.fullmatch(name):
        raise UnsupportedType(f"The page's encoding {label[:40]!r} is unknown. Save it as UTF-8.")
    return name


def _walk(root: LexborNode | None) -> Iterator[tuple[LexborNode, bool]]:
    """Every visible node on entering it, and blocks again on leaving; without recursion, for pages nest deep."""
    pending = [(root, True)] if root is not None else []
    while pending:
        node, entering = pending.pop()
        if entering and _is_unseen(node):
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


def _is_unseen(node: LexborNode) -> bool:
    if not node.is_element_node:
        return not node.is_text_node
    if node.tag in _UNREAD:
        return True
    attributes = node.attributes
    return "hidden" in attributes or bool(_INVISIBLE.search(attributes.get("style") or ""))


class _Outline:
    """Collects running text into blocks. A block is put down when an element around it begins or ends."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._running: list[str] = []
        self._prefix = ""
        self._kind: str | None = None
        self._last_kind: str | None = None
        self._numbers: list[int | None] = []  # one per open list: the last item's number, if it counts
        self._preformatted = 0

    def add(self, node: LexborNode, *, entering: bool) -> None:
        tag = node.tag or ""
        if node.is_text_node:
            text = (node.text_content or "").replace("\u00ad", "")
            self._running.append(text if self._preformatted else _SPACES.sub(" ", text))
        elif tag == "br":
            self._running.append("\n")
        elif tag in ("td", "th") and self._running:
            self._running.append(" | ")
        elif tag in _BLOCKS:
            self._turn(node, tag, entering=entering)

    def text(self) -> str:
        self._put_down()
        return "".join(self._parts)

    def _turn(self, node: LexborNode, tag: str, *, entering: bool) -> None:
        self._put_down()
        if tag == "pre":
            self._preformatted += 1 if entering else -1
        elif tag in _LISTS:
            self._turn_list(node, entering=entering)
        elif tag in _LINES or tag in _HEADINGS:
            self._kind = _LINES.get(tag) if entering else None
            self._prefix = self._marker(tag) if entering else ""

    def _turn_list(self, node: LexborNode, *, entering: bool) -> None:
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

    def _put_down(self) -> None:
        running = "".join(self._running)
        self._running.clear()
        block = _fenced(running) if self._preformatted else _flowed(running)
        if not block:
            return
        if self._prefix.startswith("#"):
            block = block.replace("\n", " ")
        if self._parts:
            self._parts.append("\n" if self._kind and self._kind == self._last_kind else "\n\n")
        self._parts.append(self._prefix + block)
        self._prefix, self._last_kind = "", self._kind


def _flowed(running: str) -> str:
    text = _AROUND_BREAK.sub("\n", _RUN_OF_SPACES.sub(" ", running)).strip(" \n")
    return _BLANK_LINES.sub("\n\n", text)


def _fenced(running: str) -> str:
    """A code block, so that its `#` lines are no headings; the fence is longer than any inside."""
    if not running.strip():
        return ""
    longest = max(re.findall(r"`{3,}", running), key=len, default="``")
    body = running.strip("\n")
    return f"{longest}`\n{body}\n{longest}`"
