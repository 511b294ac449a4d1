"""Chunks of documents (kinds.document.reading.chunk)."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import regex
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kinds.document.reading.chunk import MAX_HEADING, Chunk, chunk
from kinds.document.reading.graphemes import boundaries
from kinds.document.reading.outline import headings

WHITE = [
    "\n",
    "\n\n",
    "\r\n",
    "\r\n\r\n",
    "\r",
    "\t",
    " ",
    "   ",
    "\u00a0",
    "\u3000",
    "\u2028",
    "\u200b",
    "\ufeff",
]
HEADINGS = [
    "\n# Guía\n",
    "\n## Run #\n\n",
    "\nModules\n*******\n",
    "\nSetext\n---\n",
    "\n===\nTop\n===\n",
    "```\n",
]
EMOJI = ["👨‍👩‍👧‍👦", "👍🏽", "🏳️‍🌈", "🇪🇸", "🇪🇸🇫🇷🇯", "\U0001f1ea", "1️⃣", "☺", "©"]
MARKS = [
    "e\u0301",
    "\u0301",
    " \u0301",
    "\u0301" * 9,
    "\u200d",
    "\u200c",
    "\u0600",
    "\u0600 ",
    "\u06dd7",
    "\u0378",
]
HANGUL = ["한국어", "\u1112\u1161\u11ab", "\u1100\u1100", "\u1161", "\u11a8", "가\u11a8", "각"]
INDIC = ["क्षत्रिय", "क्ष", "क्\u200cष", "नमस्ते ", "\u09cd", "ক্ষ", "ภาษาไทย", "กำ", "မြန်မာ"]
CJK = ["这是一个句子。", "「好！」", "，", "、", "漢字仮名交じり文", "。", "ｶﾞ"]
SPANISH = ["¿Qué tal? ", "¡Hola! ", "El Sr. Pérez, ", "p. ej. ", "EE. UU. ", "J. R. R. ", "—dijo él— "]
WORDS = [
    "a",
    "word ",
    "A sentence. ",
    "Nobody.\n",
    '"Yes." ',
    "x" * 30,
    "https://example.com/" + "y" * 25,
    "\ud800",
]
NASTY = [*WHITE, *HEADINGS, *EMOJI, *MARKS, *HANGUL, *INDIC, *CJK, *SPANISH, *WORDS]
texts = st.lists(st.sampled_from(NASTY) | st.text(max_size=6), max_size=40).map("".join)
plain_words = st.lists(
    st.sampled_from(
        ["uno ", "two ", "tres\n", "\n\n", "Five. ", "¿Seis? ", "w" * 13 + " ", "é" * 30, "\r\n", " "]
    ),
    max_size=60,
).map("".join)


@st.composite
def cases(draw: st.DrawFn, text: st.SearchStrategy[str] = texts) -> tuple[str, int, int]:
    size = draw(st.integers(1, 60))
    return draw(text), size, draw(st.integers(0, size - 1))


def cut(text: str, size: int, overlap: int = 0) -> list[Chunk]:
    return list(chunk(text, size=size, overlap=overlap))


def texts_of(text: str, size: int, overlap: int = 0) -> list[str]:
    return [piece.text for piece in cut(text, size, overlap)]


class TestRules:
    @given(cases())
    def test_offsets(self, case: tuple[str, int, int]) -> None:
        """A chunk is the part of the text between its offsets."""
        text, size, overlap = case
        for piece in cut(text, size, overlap):
            assert text[piece.start : piece.end] == piece.text

    @given(cases())
    def test_only_white_space_is_left_out(self, case: tuple[str, int, int]) -> None:
        """The chunks contain the whole text except white space."""
        text, size, overlap = case
        done, rebuilt = 0, ""
        for piece in cut(text, size, overlap):
            assert not text[done : piece.start].strip()
            rebuilt += text[max(done, piece.start) : piece.end]
            done = piece.end
        assert not text[done:].strip()
        assert "".join(rebuilt.split()) == "".join(text.split())

    @given(cases())
    def test_no_chunk_is_blank(self, case: tuple[str, int, int]) -> None:
        """No chunk is blank."""
        assert all(text.strip() for text in texts_of(*case))

    @given(cases())
    @example(("a\u0600 b", 2, 0))
    def test_size(self, case: tuple[str, int, int]) -> None:
        """A chunk is longer than `size` only if it is a single grapheme cluster."""
        text, size, overlap = case
        for piece in cut(text, size, overlap):
            assert len(piece.text) <= size or list(boundaries(piece.text)) == [len(piece.text)]

    @given(cases())
    @settings(max_examples=400)
    @example(("one two \u0301three four", 15, 9))
    @example(("===\nTop\n===\n\n===\nTop\n===\n \u0301more text", 5, 0))
    def test_graphemes_are_not_cut(self, case: tuple[str, int, int]) -> None:
        """No chunk starts or ends inside a grapheme cluster."""
        text, size, overlap = case
        whole = {0} | {cluster.end() for cluster in regex.finditer(r"\X", text)}
        for piece in cut(text, size, overlap):
            assert piece.start in whole
            assert piece.end in whole

    @given(cases())
    def test_deterministic(self, case: tuple[str, int, int]) -> None:
        """The same text gives the same chunks."""
        assert cut(*case) == cut(*case)

    @given(cases())
    def test_progress(self, case: tuple[str, int, int]) -> None:
        """Every chunk starts and ends after the one before."""
        for before, after in pairwise(cut(*case)):
            assert before.start < after.start
            assert before.end < after.end

    @given(cases())
    def test_overlap_is_bounded(self, case: tuple[str, int, int]) -> None:
        """Two successive chunks share at most `overlap` characters."""
        for before, after in pairwise(cut(*case)):
            assert before.end - after.start <= case[2]

    @given(cases(plain_words))
    def test_overlap_starts_with_a_word(self, case: tuple[str, int, int]) -> None:
        """A repetition starts with a word, if there is one within `overlap`."""
        text, size, overlap = case
        for before, after in pairwise(cut(text, size, overlap)):
            reach = range(max(before.end - overlap, before.start + 1), before.end)
            starts = [at for at in reach if text[at - 1].isspace() and not text[at].isspace()]
            if after.start < before.end and starts:
                assert after.start in starts

    @given(cases(plain_words))
    @example((f"one two {'w' * 13} {'w' * 13} {'x' * 40}", 30, 17))
    def test_words_are_not_cut(self, case: tuple[str, int, int]) -> None:
        """No word is cut that fits into a chunk."""
        text, size, overlap = case
        longest = {m.span() for m in regex.finditer(r"\S+", text) if len(m[0]) > size}
        inside = {at for start, end in longest for at in range(start, end)}
        for piece in cut(text, size, overlap):
            assert piece.end == len(text) or text[piece.end].isspace() or piece.end in inside
            assert piece.start == 0 or text[piece.start - 1].isspace() or piece.start in inside

    @given(cases())
    @example((f"Hi.\n\n# A\n\n{'w' * 32} more", 40, 0))
    def test_heading_stays_with_its_body(self, case: tuple[str, int, int]) -> None:
        """A chunk ends with a heading only if the first word below it does not fit."""
        text, size, overlap = case
        ends = {piece.end: piece for piece in cut(text, size, overlap)}
        for heading in headings(text):
            alone = next((ends[at] for at in range(heading.start + 1, heading.body + 1) if at in ends), None)
            word = regex.compile(r"\S+").match(text, heading.body)
            if alone and word:
                assert word.end() - max(alone.start, heading.top) > size

    @given(cases())
    def test_heading_is_the_nearest(self, case: tuple[str, int, int]) -> None:
        """The path of a chunk ends with the last heading before it or at its start."""
        text, size, overlap = case
        outline = list(headings(text))
        for piece in cut(text, size, overlap):
            above = [heading for heading in outline if heading.start <= piece.start]
            opening = [heading for heading in outline if heading.top <= piece.start < heading.start]
            titles = {heading.title for heading in above[-1:] + opening}
            assert any(piece.heading.endswith(title) for title in titles) if titles else piece.heading == ""

    @given(st.lists(st.tuples(st.integers(1, 6), st.text("añ漢 >#", min_size=1, max_size=150)), max_size=12))
    def test_heading_is_bounded(self, outline: list[tuple[int, str]]) -> None:
        """A path is at most MAX_HEADING long."""
        text = "".join(f"{'#' * level} {title}\n\nbody\n\n" for level, title in outline)
        assert all(len(piece.heading) <= MAX_HEADING for piece in cut(text, 40))


class TestStructure:
    def test_single_chunk(self) -> None:
        """A text that fits into one chunk is one chunk, without surrounding white space."""
        assert texts_of(" \n# A\n\none\n\ntwo\n ", 100) == ["# A\n\none\n\ntwo"]

    def test_headings_first(self) -> None:
        """A chunk ends before a heading rather than after a later paragraph."""
        text = "# A\n\nAlpha is first here.\n\n# B\n\nBeta.\n\nMore of it, and more than fits."
        assert texts_of(text, 50)[0] == "# A\n\nAlpha is first here."

    def test_higher_heading_first(self) -> None:
        """Of two headings, the one of the higher level ends the chunk, even if it is the first."""
        text = "# A\n\nAlpha is first.\n\n# B\n\nBeta.\n\n## C\n\nGamma is the last one."
        assert texts_of(text, 45) == ["# A\n\nAlpha is first.", "# B\n\nBeta.\n\n## C\n\nGamma is the last one."]

    def test_paragraphs_are_merged(self) -> None:
        """Small paragraphs share a chunk as long as they fit."""
        assert texts_of("One one.\n\nTwo two.\n\nThree three.\n\nFour.", 22) == [
            "One one.\n\nTwo two.",
            "Three three.\n\nFour.",
        ]

    def test_lines_before_sentences(self) -> None:
        """Without paragraphs a chunk ends with a line."""
        assert texts_of("- First. It is.\n- Second. So it is.", 25) == ["- First. It is.", "- Second. So it is."]

    def test_wrapped_lines(self) -> None:
        """A line that continues in lower case is not an end, if a sentence ends before."""
        assert texts_of("And here it ends. This is a\nsentence on two lines.", 31)[0] == "And here it ends."

    def test_code_lines(self) -> None:
        """If no sentence ends, any line is an end."""
        assert texts_of("for each in these:\n    print(each, it)\n", 25) == [
            "for each in these:",
            "print(each, it)",
        ]

    def test_crlf_paragraphs(self) -> None:
        """Paragraphs are found in a text with CRLF."""
        assert texts_of("First here. Yes.\r\n\r\nSecond one. No.", 24) == ["First here. Yes.", "Second one. No."]

    def test_long_word(self) -> None:
        """A word longer than a chunk is cut where the chunk is full, also after a short word."""
        assert texts_of("See " + "x" * 25, 10) == ["See xxxxxx", "x" * 10, "x" * 9]

    def test_word_that_just_fits(self) -> None:
        """A word exactly as long as a chunk is not cut."""
        assert texts_of("ab " + "x" * 10 + " cd", 10) == ["ab", "x" * 10, "cd"]

    def test_heading_alone(self) -> None:
        """A heading is a chunk of its own only if the first word below it would be cut."""
        assert texts_of("# Heading\n\n" + "w" * 28, 30) == ["# Heading", "w" * 28]
        assert texts_of("# Heading\n\n" + "w" * 31, 30) == ["# Heading\n\n" + "w" * 19, "w" * 12]

    def test_heading_moves_to_its_body(self) -> None:
        """Headings whose text does not fit begin the next chunk."""
        section = "## A\n\n# B\n\nThe body of B comes here."
        assert texts_of(f"Here is a paragraph.\n\n{section}", 36) == ["Here is a paragraph.", section]


class TestLanguages:
    def test_spanish_abbreviations(self) -> None:
        """A full stop after an abbreviation or initial ends no sentence."""
        text = "Llegó ayer. La vio el Sr. D. Juan Pérez en EE. UU. con otros."
        assert texts_of(text, 57)[0] == "Llegó ayer. La vio el Sr. D. Juan Pérez en EE. UU. con"
        assert texts_of(text, 20)[0] == "Llegó ayer."

    @pytest.mark.parametrize("opening", ["¿Y tú", "¡Qué bien", "«Sí", "—Claro", "Óscar"])
    def test_spanish_openings(self, opening: str) -> None:
        """A sentence can start with an inverted mark, a quotation mark, a dash or an accented capital."""
        assert texts_of(f"Nos vemos el lunes. {opening} vamos todos juntos", 36)[0] == "Nos vemos el lunes."

    def test_chinese_sentences(self) -> None:
        """A text without spaces is cut after full stops and closing quotation marks."""
        assert texts_of("他说：「今天天气很好。」我们出去走走吧，好不好？", 15) == [
            "他说：「今天天气很好。」",
            "我们出去走走吧，好不好？",
        ]

    def test_chinese_clauses(self) -> None:
        """Without a full stop it is cut after a comma."""
        assert texts_of("如果明天下雨，我们就不去公园了", 12) == ["如果明天下雨，", "我们就不去公园了"]

    def test_overlap_in_chinese(self) -> None:
        """A repetition starts with a sentence in a text without spaces."""
        pieces = texts_of("第一句话在这里。第二句。第三句话也在这里。", 13, 5)
        assert pieces == ["第一句话在这里。第二句。", "第二句。第三句话也在这里。"]

    def test_thai(self) -> None:
        """In a script without punctuation and spaces, chunks are full, and cut between clusters."""
        pieces = texts_of("ภาษาไทย" * 10, 20)
        assert all(17 < len(piece) <= 20 for piece in pieces[:-1])


class TestOverlap:
    def test_sentence(self) -> None:
        """A repetition starts with a sentence rather than with an earlier word."""
        pieces = texts_of("One two three. Four five. Six seven eight nine.", 30, 16)
        assert pieces == ["One two three. Four five.", "Four five. Six seven eight", "Six seven eight nine."]

    def test_word(self) -> None:
        """Without a sentence it starts with the first word."""
        assert texts_of("aaaa bbbb cccc dddd", 14, 4) == ["aaaa bbbb cccc", "cccc dddd"]
        assert texts_of("aaaa bbbb cccc dddd", 14, 3) == ["aaaa bbbb cccc", "dddd"]

    def test_no_repetition_before_a_cluster(self) -> None:
        """Nothing is repeated if the next cluster would not fit."""
        zalgo = "z" + "\u0301" * 7
        assert texts_of(f"abcdefgh{zalgo}ijklmnop", 10, 4) == ["abcdefgh", f"{zalgo}ij", "ijklmnop"]

    def test_inside_a_long_word(self) -> None:
        """After a cut inside a word the repetition starts inside the word, too."""
        assert texts_of("abcdefghij", 6, 2) == ["abcdef", "efghij"]

    def test_not_across_a_heading(self) -> None:
        """A chunk that starts a section repeats nothing of the one before."""
        assert texts_of("# A\n\nOne two three.\n\n# B\n\nFour five six.", 24, 20)[1].startswith("# B")

    def test_no_repetition_before_a_word(self) -> None:
        """Nothing is repeated if a word would have to be cut for it."""
        assert texts_of("one two abcdefghij", 10, 7) == ["one two", "abcdefghij"]


class TestHeading:
    def test_path(self) -> None:
        """The path contains the headings above a chunk and at its start."""
        text = "Intro here.\n\n# Guide\n\nHow to.\n\n## Install\n\nRun it now.\n\n# Other\n\nEnd of it."
        assert [(p.text.split()[-1], p.heading) for p in cut(text, 24)] == [
            ("here.", ""),
            ("to.", "Guide"),
            ("now.", "Guide > Install"),
            ("it.", "Other"),
        ]

    def test_headings_at_the_start(self) -> None:
        """All headings at the start of a chunk belong to its path."""
        assert cut("# Guide\n\n## Install\n\nRun it.", 100)[0].heading == "Guide > Install"

    def test_later_chunks_of_a_section(self) -> None:
        """Every chunk of a section has its heading."""
        assert {piece.heading for piece in cut("# Guide\n\n" + "Some words. " * 50, 40)} == {"Guide"}

    def test_outermost_is_omitted(self) -> None:
        """The outermost headings of a path that is too long are omitted."""
        text = f"# {'a' * 150}\n\n## {'b' * 150}\n\nbody"
        assert cut(text, 1000)[0].heading == "b" * 150


class TestLimits:
    @pytest.mark.parametrize("blank", ["", " ", "\n\n\t\r\n", "\u3000\u00a0\u2003"])
    def test_blank(self, blank: str) -> None:
        """Empty or blank text has no chunks."""
        assert cut(blank, 10) == []

    @pytest.mark.parametrize(("size", "overlap"), [(10, 10), (10, 11), (10, -1), (0, 0), (-1, -2)])
    def test_invalid_sizes(self, size: int, overlap: int) -> None:
        """Invalid sizes raise ValueError at the call."""
        with pytest.raises(ValueError, match="overlap"):
            chunk("text", size=size, overlap=overlap)

    def test_lone_surrogates(self) -> None:
        """Lone surrogates are text as any other."""
        assert "".join(texts_of("\ud800a\udfff" * 9, 5)) == "\ud800a\udfff" * 9

    def test_one_cluster(self) -> None:
        """A cluster longer than a chunk is a chunk of its own."""
        zalgo = "z" + "\u0301" * 50
        assert texts_of(f"ab{zalgo}cd", 10) == ["ab", zalgo, "cd"]

    def test_one_line_of_10_mb(self) -> None:
        """Ten million characters without a space are cut within the time limit."""
        count = sum(1 for _ in chunk("x" * 10_000_000, size=1000, overlap=0))
        assert count == 10_000

    def test_white_space_of_10_mb(self) -> None:
        """Ten million blank characters between two words take little time."""
        assert texts_of("a" + " \n" * 5_000_000 + "b", 1000, 100) == ["a", "b"]

    @pytest.mark.parametrize(
        "unit",
        [
            "x",
            "palabra ",
            "# a\n",
            "# A\n\nb\n\n",
            "\u0301",
            "🇪🇸",
            "क्ष",
            "漢",
            "。",
            "```\n# a\n",
            "z" + "\u0301" * 1200,
            ". ",
        ],
        ids=ascii,
    )
    def test_linear(self, unit: str) -> None:
        """Twice the text takes about twice the steps."""
        text = unit * (50_000 // len(unit))
        once, twice = steps(lambda: cut(text, 1000, 100)), steps(lambda: cut(text * 2, 1000, 100))
        assert twice < 2.5 * once + 1000

    def test_memory(self) -> None:
        """Chunks are made one at a time, so memory does not grow with their number."""
        text = "Some words in a line. " * 10_000
        tracemalloc.start()
        try:
            count = sum(1 for _ in chunk(text, size=100, overlap=50))
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert count > 2_000
        assert peak < 3 * len(text) + 100_000


def steps(call: Callable[[], Any]) -> int:
    """The number of function calls, of Python and C, which does not depend on the machine."""
    count = 0

    def profile(_frame: object, event: str, _arg: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(before)
    return count
