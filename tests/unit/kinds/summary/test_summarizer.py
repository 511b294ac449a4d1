"""The calls of a summary (kinds.summary.summarizer), and their estimate (kinds.summary.estimate)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.errors import ModelRejected, ModelUnavailable, Postponed
from core.jobs import Wait
from core.llm.provider import ModelRequest
from core.llm.tokens import estimate_text
from kinds.summary.estimate import Sizes, estimate
from kinds.summary.files import totals
from kinds.summary.parts import cut, parts_of
from kinds.summary.prompts import Form
from tests.unit.core.memory_blobs import MemoryBlobs
from tests.unit.kinds.summary.model import FakeCaller, summarizer, summary_job, text_of

PAGE = (
    "The pump of page {page} has the serial number {page}{page}. " + "It must be oiled every month. " * 30 + "\n\n"
)


def pages(number: int) -> str:
    return "".join(PAGE.format(page=page) for page in range(1, number + 1))


def long(request: ModelRequest) -> str:
    """As much text as a summary may have."""
    return "Every word of it counts for much. " * request.max_tokens


# ── which calls ──────────────────────────────────────────────────────────────────────────────────────────────


def test_one_part() -> None:
    """A text with one part takes one call."""
    caller = FakeCaller(MemoryBlobs(), lambda request: "  The whole summary. ")
    one = summarizer(["The text."], caller)
    one.summarize(0)
    result = one.reduce()
    assert result["summary"] == "The whole summary."
    assert caller.paid == {"part-0000": 1}


def test_every_part_is_read() -> None:
    """Each page is in the prompt of a part: a fact on page 39 is not lost."""
    caller = FakeCaller(MemoryBlobs(), lambda request: text_of(request)[:60])
    _, parts = parts_of(pages(40), 600)
    many = summarizer(parts, caller)
    many.reduce()
    read = [text_of(request) for name, request in caller.requests.items() if name.startswith("part")]
    assert "".join(read) == pages(40)
    assert sum("the serial number 3939." in text for text in read) == 1


def test_final_call_has_all_summaries() -> None:
    """Summaries that fit into one call are merged by one call, in order, with the caller's style and words."""
    caller = FakeCaller(MemoryBlobs(), lambda request: f"About {text_of(request)[:5]}.")
    many = summarizer(["one  .", "two  .", "three."], caller, of=summary_job(style="bullets", max_words=50))
    many.reduce()
    assert list(caller.paid) == ["part-0000", "part-0001", "part-0002", "reduce-1-0"]
    last = caller.requests["reduce-1-0"]
    assert text_of(last) == "About one  .\n\nAbout two  .\n\nAbout three."
    assert '"- ", in at most 50 words' in last.messages[-1].content


def test_levels() -> None:
    """Summaries that do not fit into one call are merged in groups, level by level, each call within its size."""
    caller = FakeCaller(MemoryBlobs(), long)
    parts = [f"part {number}" for number in range(60)]
    many = summarizer(parts, caller)
    many.reduce()
    levels = {name.rpartition("-")[0] for name in caller.paid}
    assert levels == {"part", "reduce-1", "reduce-2", "reduce-3"}
    assert all(estimate_text(text_of(request)) <= 600 for request in caller.requests.values())
    assert list(caller.paid)[-1] == "reduce-3-0"


@given(st.integers(1, 60), st.integers(200, 1200), st.sampled_from(["paragraph", "headline"]), st.booleans())
@settings(max_examples=30)
def test_estimate_is_an_upper_bound(number: int, part_tokens: int, style: Any, brief: bool) -> None:
    """Whatever the model writes, calls and tokens are at most those of the estimate, and no call is larger."""
    parts = list(cut("Some words of a long text. " * number * 20, part_tokens))
    caller = FakeCaller(MemoryBlobs(), (lambda request: "Brief.") if brief else long)
    subject = summary_job(style=style)
    many = summarizer(parts, caller, part_tokens=part_tokens, of=subject)
    many.reduce()
    most = estimate([estimate_text(part) for part in parts], Form(style, 100), Sizes(part_tokens))
    spent = totals(caller.blobs, subject.job_id)
    assert spent["calls"] <= most.calls
    assert spent["usage"]["input_tokens"] <= most.usage.input_tokens
    assert spent["usage"]["output_tokens"] <= most.usage.output_tokens
    largest = most.largest.input_tokens + most.largest.output_tokens
    assert max(int(step.split()[1]) for step in caller.order) <= largest


# ── never paid twice ─────────────────────────────────────────────────────────────────────────────────────────


@given(st.lists(st.sampled_from([None, None, "fault", "wait"]), max_size=80))
@settings(max_examples=30)
def test_repeated_messages_pay_once(course: list[str | None]) -> None:
    """However often calls fail or wait and their messages come again, each call is paid for once."""
    caller = FakeCaller(MemoryBlobs(), long)
    caller.waits = [Wait("rate_limit", 3) if step == "wait" else None for step in course]
    caller.errors = [ModelUnavailable("down") if step == "fault" else None for step in course if step != "wait"]
    subject, parts = summary_job(), [f"part {number}" for number in range(12)]
    while True:
        try:
            result = summarizer(parts, caller, of=subject).reduce()
            break
        except (ModelUnavailable, Postponed):
            continue
    assert set(caller.paid.values()) == {1}
    assert summarizer(parts, caller, of=subject).reduce() == result
    assert set(caller.paid.values()) == {1}


def test_short_time() -> None:
    """An invocation with little time left makes one call, and has its message sent again for the others."""
    caller, subject = FakeCaller(MemoryBlobs(), long), summary_job()
    runs = 0
    while len(caller.paid) < 14:
        runs += 1
        with pytest.raises(Postponed, match="summary_reduce"):
            summarizer(["x"] * 14, caller, of=subject, seconds_left=lambda: 20.0).reduce()
    assert runs == 14


def test_admission() -> None:
    """Each call asks the limits first, for its own tokens. If it has to wait, nothing is called."""
    caller = FakeCaller(MemoryBlobs())
    caller.waits = [Wait("rate_limit", 40)]
    one = summarizer(["x"], caller)
    with pytest.raises(Postponed) as caught:
        one.summarize(0)
    assert (caught.value.reason, caught.value.seconds) == ("rate_limit", 40)
    assert not caller.paid
    one.summarize(0)
    asked, called = caller.order[-2:]
    assert asked.split()[1] == called.split()[1]


# ── the result ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("written", "stop_reason", "summary"),
    [
        ("One two three. " * 10, "end", "One two three. " * 6 + "One two three."),
        ("One two three. Four is cut", "max_tokens", "One two three."),
        ("- one\n- two", "end", "- one\n- two"),
    ],
)
def test_hard_limit_of_words(written: str, stop_reason: Any, summary: str) -> None:
    """The result ends with a whole sentence, and has no more words than asked for."""
    caller = FakeCaller(MemoryBlobs(), lambda request: written)
    caller.stop_reason = stop_reason
    result = summarizer(["text"], caller, of=summary_job(max_words=22)).reduce()
    assert (result["summary"], result["stop_reason"]) == (summary, stop_reason)


@pytest.mark.parametrize("parts", [1, 3])
def test_empty_answers(parts: int) -> None:
    """A model that writes nothing fails the job, and no call is made for empty summaries."""
    caller = FakeCaller(MemoryBlobs(), lambda request: " \n")
    with pytest.raises(ModelRejected, match="wrote nothing"):
        summarizer(["x"] * parts, caller).reduce()
    assert len(caller.paid) == parts


@pytest.mark.parametrize(("cost", "total"), [(0.001, 0.004), (None, None), (0.0, 0.0)])
def test_totals(cost: float | None, total: float | None) -> None:
    """Calls, tokens and costs are added up. Without a price the cost is unknown."""
    caller, subject = FakeCaller(MemoryBlobs()), summary_job()
    caller.cost_usd = cost
    summarizer(["x"] * 3, caller, of=subject).reduce()
    found = totals(caller.blobs, subject.job_id)
    assert (found["calls"], found["cost_usd"], found["cost_estimated"]) == (4, total, False)
    written = sum(request.max_tokens for request in caller.requests.values())
    assert found["usage"]["output_tokens"] == written
