"""The evidence for an answer (kinds.agent.citations)."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinds.agent import citations
from kinds.agent.citations import NO_ANSWER, Evidence, find, is_refusal, notice
from kinds.agent.passages import Passage
from tests.unit.kinds.agent.examples import passage

ARCHIVE = (
    "The archive was built in 1907. It opens on Tuesdays,\nand the entry costs 2.50 euros.\n\n"
    "- Dr. Silva keeps the cellar key.\n- No dogs are allowed.\n\nThe town has a second archive."
)


def quotes(answer: str, *passages: Passage, question: str = "") -> list[str]:
    return [each.quote for each in find(answer, passages or [passage(ARCHIVE)], question=question).citations]


@pytest.mark.parametrize(
    ("answer", "quote"),
    [
        ("It opens on Tuesdays.", "It opens on Tuesdays,\nand the entry costs 2.50 euros."),
        ("tuesdays", "It opens on Tuesdays,\nand the entry costs 2.50 euros."),
        ("The entry costs 2,50 euros.", "It opens on Tuesdays,\nand the entry costs 2.50 euros."),
        ("- **Dr. Silva** keeps the key of the cellar", "Dr. Silva keeps the cellar key."),
        ("1. The archive was built in 1907", "The archive was built in 1907."),
        ("Dogs are not allowed.", "No dogs are allowed."),
    ],
)
def test_the_sentence_that_says_it(answer: str, quote: str) -> None:
    """A sentence of the answer is cited by the passage's sentence with most of its content words."""
    assert quotes(answer) == [quote]
    assert notice(find(answer, [passage(ARCHIVE)])) == ""


@pytest.mark.parametrize(
    "answer",
    [
        "It opens on Mondays.",
        "The archive was built in 1908.",
        "The entry costs 250 euros.",
        "42",
        "Yes.",
        "The town sold its library.",
        "Where there are dogs, cats and horses play.",
    ],
)
def test_what_no_passage_says(answer: str) -> None:
    """A sentence with other words, or with a number that the passage has not, is unsupported."""
    evidence = find(answer, [passage(ARCHIVE)])
    assert evidence == Evidence((), (answer,))
    assert notice(evidence) == "No evidence for this answer was found in the documents."


def test_offsets() -> None:
    """A citation has offsets in the document and in the answer, and names the document, version and chunk."""
    answer = f"{NO_ANSWER} It opens on Tuesdays."
    (citation,) = find(answer, [passage(ARCHIVE, start=1000, chunk=3, version="v7")]).citations
    assert (citation.document_id, citation.version, citation.chunk) == ("handbook", "v7", 3)
    assert ARCHIVE[citation.start - 1000 : citation.end - 1000] == citation.quote
    assert answer[citation.answer_start : citation.answer_end] == "It opens on Tuesdays."
    assert citation.overlap == 1.0


def test_the_threshold() -> None:
    """Three of five content words are evidence, two are not."""
    text = passage("Alpha beta gamma stand here.")
    assert [c.overlap for c in find("Alpha beta gamma delta epsilon.", [text]).citations] == [0.6]
    assert find("Alpha beta delta epsilon zeta.", [text]).citations == ()


def test_a_number_beside() -> None:
    """A number may be in the sentence before or after, not further away and not in another passage."""
    text = "In 1907 a fire came. The archive burned for days. It was cold. In 1912 snow fell."
    assert quotes("The archive burned in 1907.", passage(text)) == ["The archive burned for days."]
    assert quotes("The archive burned in 1912.", passage(text)) == []
    assert quotes("The archive burned in 1950.", passage(text), passage("1950 was warm.")) == []


def test_the_earlier_passage() -> None:
    """Of equally good sentences the first one is cited, unless another has more words of the question."""
    first, second = passage("It opens on Tuesdays."), passage("The archive opens on Tuesdays.", document_id="b")
    assert [c.document_id for c in find("Tuesdays.", [first, second]).citations] == ["handbook"]
    asked = find("Tuesdays.", [first, second], question="When does the archive open?")
    assert [c.document_id for c in asked.citations] == ["b"]


@pytest.mark.parametrize(
    ("text", "answer", "wrong"),
    [
        ("図書館は火曜日に開きます。入場は無料です。", "図書館は火曜日に開きます。", "動物園は山の上にあります。"),
        (
            "도서관은 화요일에 열립니다. 입장은 무료입니다.",
            "도서관이 화요일에 열립니다.",
            "동물원은 산 위에 있습니다.",
        ),
        ("หอสมุดเปิดวันอังคาร เข้าฟรี", "หอสมุดเปิดวันอังคาร", "สวนสัตว์อยู่บนภูเขา"),
        ("El archivo abre los martes. La entrada es gratis.", "El archivo abre los martes", "La llave es de oro."),
        ("Das Archiv öffnet am Dienstag.", "DAS ARCHIV ÖFFNET AM DIENSTAG", "Das Museum schließt am Montag."),
    ],
)
def test_any_language(text: str, answer: str, wrong: str) -> None:
    """Sentences are compared in any language and script."""
    assert len(quotes(answer, passage(text))) == 1
    assert quotes(wrong, passage(text)) == []


def test_short_words_that_are_everywhere_are_no_evidence() -> None:
    """Words of three letters that many sentences have do not count, in any language."""
    text = " ".join(
        f"Die {noun} ist in der Küche."
        for noun in ("Katze", "Tasse", "Lampe", "Uhr", "Bank", "Vase", "Tür", "Maus")
    )
    assert quotes("Der Hund ist in der Scheune.", passage(text)) == []
    assert quotes("Die Lampe ist in der Küche.", passage(text)) == ["Die Lampe ist in der Küche."]


def test_a_sentence_of_stop_words() -> None:
    """A sentence of stop words alone is compared by all its words."""
    assert quotes("It is what it is.", passage("It is what it is. He was there.")) == ["It is what it is."]
    assert quotes("He was there.", passage("It is what it is.")) == []


@pytest.mark.parametrize(
    "sentence",
    [
        NO_ANSWER,
        "the documents don't say",
        "The passage does not say.",
        "The passages do not mention how much a ticket costs.",
        "The document doesn’t specify the year.",
    ],
)
def test_refusals(sentence: str) -> None:
    """That the documents do not say needs no evidence, in the words that models choose."""
    assert is_refusal(sentence)
    assert find(sentence, []) == Evidence((), ())
    assert notice(find(sentence, [])) == ""


@pytest.mark.parametrize(
    "sentence",
    [
        "The documents do not say, but the ticket costs 5 euros.",
        "The documents do not say: it costs 5 euros.",
        "The documents do not say when but it is on Mondays.",
        "The documents do not sayings.",
        "The documents do say.",
        "",
    ],
)
def test_no_refusals(sentence: str) -> None:
    """A refusal that goes on with a claim needs evidence."""
    assert not is_refusal(sentence)


def test_notice_of_some() -> None:
    """If some sentences have evidence, the notice counts the others."""
    one = find("It opens on Tuesdays. It is yellow.", [passage(ARCHIVE)])
    two = find("It opens on Tuesdays. It is yellow. It is tall.", [passage(ARCHIVE)])
    assert notice(one) == "No evidence was found in the documents for 1 sentence of this answer."
    assert notice(two) == "No evidence was found in the documents for 2 sentences of this answer."


def test_a_long_table_is_quoted_by_line() -> None:
    """A text without sentences is not quoted whole."""
    rows = [f"item {n} | red box {n} | shelf" for n in range(60)]
    assert quotes("Item 17 is in red box 17.", passage("\n".join(rows))) == [rows[17]]


def test_the_same_words_everywhere() -> None:
    """An answer of 700 sentences and passages of 7,600 alike ones take less than a second of CPU (0.1 s)."""
    text = "図書館は火曜日に開きます。入場は無料です。"
    passages = [passage(text * 95, chunk=n) for n in range(40)]
    started = time.process_time()
    assert len(find(text * 350, passages).citations) == 700
    assert time.process_time() - started < 1


PIECES = st.text() | st.sampled_from(
    [
        ARCHIVE,
        NO_ANSWER,
        "It opens. ",
        "1. ",
        "- ",
        "\n\n",
        "42. ",
        "火曜日。",
        "e.g. ",
        "“Yes!” ",
        "It opens on Tuesdays, 3.5 ",
    ]
)
TEXTS = st.lists(PIECES, max_size=6).map("".join)


@given(answer=TEXTS, documents=st.lists(TEXTS, max_size=3), before=st.integers(0, 50))
def test_every_sentence_is_accounted_for(answer: str, documents: list[str], before: int) -> None:
    """Quotes are the document's characters; each sentence is cited, unsupported or a refusal."""
    wholes = {str(n): "·" * before + text for n, text in enumerate(documents)}
    evidence = find(answer, [passage(text, document_id=str(n), start=before) for n, text in enumerate(documents)])
    for cited in evidence.citations:
        assert wholes[cited.document_id][cited.start : cited.end] == cited.quote != ""
        assert citations.MIN_OVERLAP <= cited.overlap <= 1
    spans = list(citations.sentences(answer))
    assert spans == sorted(spans)
    by_place = {(cited.answer_start, cited.answer_end) for cited in evidence.citations}
    rest = [answer[a:b] for a, b in spans if (a, b) not in by_place and not is_refusal(answer[a:b])]
    assert by_place <= set(spans)
    assert rest == list(evidence.unsupported)


@given(TEXTS)
def test_a_quotation_is_evidence(text: str) -> None:
    """A sentence of an answer that is a passage word for word is supported."""
    for start, end in citations.sentences(text):
        assert find(text[start:end], [passage(text[start:end])]).unsupported == ()
