"""Passages and turns within a budget of tokens (kinds.agent.passages)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.llm.tokens import estimate_text
from kinds.agent.passages import MIN_CUT_TOKENS, Passage, Turn, fit, recent
from tests.unit.kinds.agent.examples import passage

SENTENCE = "The archive in the old town opens on Tuesdays and Fridays. "


def tokens(*passages: Passage) -> int:
    return sum(estimate_text(each.text) + estimate_text(each.heading) for each in passages)


def test_all_that_fit() -> None:
    """Passages within the budget stay whole and in order."""
    passages = [passage("One."), passage("Two.", heading="Guide", chunk=1), passage("Three.", chunk=2)]
    assert fit(passages, tokens(*passages)) == passages
    assert fit(passages, tokens(*passages) - 1) == passages[:2]


def test_the_last_is_cut_at_a_sentence() -> None:
    """The passage that does not fit ends after its last whole sentence, and its end says so."""
    long = passage((SENTENCE * 20).strip(), chunk=1, start=500)
    first, cut = fit([passage(), long], tokens(passage()) + estimate_text(SENTENCE * 4) + 5)
    assert first == passage()
    assert cut.text == (SENTENCE * 4).strip()
    assert (cut.start, cut.end) == (500, 500 + len(cut.text))


def test_a_line_of_a_later_passage_is_no_help() -> None:
    """A later passage with room for fewer than MIN_CUT_TOKENS is left out."""
    long = passage(SENTENCE * 20, chunk=1)
    room = tokens(passage()) + MIN_CUT_TOKENS
    assert len(fit([passage(), long], room)) == 2
    assert len(fit([passage(), long], room - 1)) == 1


@pytest.mark.parametrize("budget", [-5, 0, 1, 10])
def test_a_part_of_the_first(budget: int) -> None:
    """However small the budget, a part of the first passage is there."""
    (first,) = fit([passage(SENTENCE * 20, heading="A long heading"), passage()], budget)
    assert first.text
    assert SENTENCE.startswith(first.text)


@given(texts=st.lists(st.text(min_size=1), max_size=5), budget=st.integers(0, 400))
def test_within_the_budget(texts: list[str], budget: int) -> None:
    """A passage is a first part of what was given, within the budget unless that is less than one character."""
    given_passages = [passage(text, chunk=n, start=7 * n) for n, text in enumerate(texts)]
    fitting = fit(given_passages, budget)
    assert bool(fitting) == bool(texts)
    assert tokens(*fitting) <= budget or [len(each.text) for each in fitting] == [1]
    for whole, part in zip(given_passages, fitting, strict=False):
        assert whole.text[: part.end - whole.start] == part.text
        assert part.start == whole.start


def test_recent_turns() -> None:
    """The last turns are kept, oldest first; an answer that is too long is cut after a sentence."""
    turns = [Turn("Where?", SENTENCE * 40), Turn("When?", "On Tuesdays."), Turn("And the key?", "In the cellar.")]
    kept = recent(turns, 200)
    assert kept[1:] == turns[1:]
    assert kept[0].answer.startswith(SENTENCE)
    assert kept[0].answer.endswith("Fridays.")
    assert recent(turns, 21) == turns[2:]
    assert recent(turns, 0) == recent([], 100) == []


@given(turns=st.lists(st.builds(Turn, st.text(), st.text()), max_size=5), budget=st.integers(0, 200))
def test_turns_within_the_budget(turns: list[Turn], budget: int) -> None:
    """The turns that are kept are the last ones, within the budget."""
    kept = recent(turns, budget)
    assert sum(estimate_text(turn.question) + estimate_text(turn.answer) for turn in kept) <= budget
    assert [turn.question for turn in kept] == [turn.question for turn in turns[len(turns) - len(kept) :]]
