"""The steps of a job, in whatever pieces and however often they are sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from recado._step_cursor import StepCursor
from recado.models import Step

Payload = dict[str, Any]
THINKING = {"type": "thinking", "content": "I search."}
USE = {"type": "tool_use", "tool": "search_documents", "input": {"query": "key"}}


def token(content: str) -> Payload:
    return {"type": "token", "content": content}


def joined(steps: Sequence[Payload | Step]) -> list[Payload]:
    """With successive texts as one step."""
    found: list[Payload] = []
    for step in steps:
        payload = dict(step.raw) if isinstance(step, Step) else step
        if payload["type"] == "token" and found and found[-1]["type"] == "token":
            found[-1] = token(found[-1]["content"] + payload["content"])
        else:
            found.append(payload)
    return found


transcripts = st.lists(
    st.sampled_from([THINKING, USE]) | st.text("ab", min_size=1, max_size=6).map(token), max_size=9
)


@st.composite
def connections(draw: st.DrawFn) -> tuple[list[Payload], list[list[Payload]]]:
    """All steps, and what each connection sends: some of the first steps, with the text in any pieces."""
    transcript = draw(transcripts)
    sent: list[list[Payload]] = []
    for last in (*draw(st.lists(st.integers(0, len(transcript)), max_size=4)), len(transcript)):
        pieces = [piece for step in transcript[:last] for piece in cut(step, draw(st.integers(1, 6)))]
        sent.append(pieces[: len(pieces) - draw(st.integers(0, 1))] if last < len(transcript) else pieces)
    return transcript, sent


def cut(step: Payload, size: int) -> list[Payload]:
    if step["type"] != "token":
        return [step]
    text = step["content"]
    return [token(text[start : start + size]) for start in range(0, len(text), size)]


@given(case=connections())
def test_each_step_is_accepted_once(case: tuple[list[Payload], list[list[Payload]]]) -> None:
    """Connections that each start over give each step, and each character of text, once and in order."""
    transcript, sent = case
    cursor, accepted = StepCursor("job_1"), list[Payload | Step]()
    for messages in sent:
        cursor.start_over()
        accepted += [step for message in messages if (step := cursor.accept(message | {"job_id": "job_1"}))]
    assert joined(accepted) == joined(transcript)
    assert cursor.updates == len(accepted)


def test_text_that_was_not_stored() -> None:
    """A repetition lacks what a worker told before it was killed. What follows in its place is new."""
    cursor = StepCursor("job_1")
    first = [cursor.accept(message) for message in (THINKING, token("The key hangs"), token(" behind"))]
    assert all(first)
    cursor.start_over()
    again = [cursor.accept(message) for message in (THINKING, token("The key"), token(" (again) The key"))]
    assert [step and step.content for step in again] == [None, None, "(again) The key"]
    cursor.start_over()
    once_more = [cursor.accept(message) for message in (THINKING, token("The key (again) The key hangs"))]
    assert [step and step.content for step in once_more] == [None, " hangs"]


def test_a_step_in_place_of_text() -> None:
    """A repetition may have another step where text was seen: it is new, and so is all that follows."""
    cursor = StepCursor("job_1")
    for message in (token("The key"), THINKING):
        assert cursor.accept(message)
    cursor.start_over()
    assert cursor.accept(token("The ")) is None
    assert cursor.accept(USE)
    assert cursor.accept(THINKING)
