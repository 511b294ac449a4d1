"""Commands that ask an agent about documents."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest

from tests.unit.client.cli.conftest import Run
from tests.unit.client.cli.terminal import run_on_terminal
from tests.unit.client.cli.test_language_models import CALLS, USED, pipe_in, submitted
from tests.unit.client.stub_service import JOB_ID, Payload, StubService
from tests.unit.client.test_step_cursor import token
from tests.unit.client.test_steps import PASSAGE, STEPS, events

pytestmark = pytest.mark.enable_socket

ANSWER = "The cellar key hangs behind the door."
CITATION = {
    "document_id": "house",
    "version": "01V",
    "chunk": 0,
    "start": 0,
    "end": 37,
    "quote": ANSWER,
    "answer_start": 0,
    "answer_end": 37,
    "overlap": 1.0,
}
RESULT = {
    "answer": ANSWER,
    "citations": [CITATION, CITATION | {"answer_start": 1}],
    "evidence": "all",
    "unsupported": [],
    "tool_calls": 1,
    "session": "s1",
    **CALLS,
}
CITED = f"\n[1] house, chunk 0: “{ANSWER}”\n"
OPEN = f"Open a passage: recado passage {JOB_ID} 1\n"
TOLD = (
    "I search.\n"
    "search_documents: query=key\n"
    "  house 0\n"
)  # fmt: skip
SUBMISSIONS: list[tuple[str, Payload]] = [
    ("ask Where?", {"kind": "agent", "input": {"question": "Where?"}}),
    (
        "ask Where? --document house --document garden --metadata lang=en --session tour --steps 3 --model m "
        "--max-cost 0.01 --allow-sample",
        {
            "kind": "agent",
            "input": {
                "question": "Where?",
                "filter": {"document_ids": ["house", "garden"], "metadata": {"lang": "en"}},
                "session": "tour",
                "max_steps": 3,
                "model": "m",
                "max_cost_usd": 0.01,
                "allow_sample": True,
            },
        },
    ),
]


def answer(service: StubService, *, status: str = "completed", steps: Any = STEPS, **result: Any) -> None:
    service.reset(events(status), steps=list(steps))
    view = service.view()
    ended = view | {"status": status, "result": {**RESULT, **result} if status == "completed" else None}
    service.responses |= {
        "POST /jobs": (202, view),
        f"GET /jobs/{JOB_ID}": (200, ended),
        f"POST /jobs/{JOB_ID}/cancel": (200, view | {"status": "canceled"}),
    }


@pytest.fixture
def answering(configured: StubService) -> StubService:
    answer(configured)
    return configured


# ── ask ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("command", "body"), SUBMISSIONS)
def test_options_are_fields_of_the_input(run: Run, answering: StubService, command: str, body: Payload) -> None:
    """Options that are not given are not sent, so that the service's defaults hold."""
    assert run(*shlex.split(command), "--idempotency-key", "key-1")[0] == 0
    assert submitted(answering) == body
    assert answering.headers[0]["idempotency-key"] == "key-1"


@pytest.mark.parametrize("transport", ["websocket", "sse"])
def test_ask(run: Run, answering: StubService, for_people: None, transport: str) -> None:
    """Standard output has the answer and its citations. Standard error has what came before it, and the cost."""
    code, out, err = run("ask", "Where?", "--transport", transport)
    assert (code, out) == (0, f"{ANSWER}\n{CITED}")
    assert err == f"{JOB_ID}\n{TOLD}{USED}{OPEN}"


def test_ask_without_a_terminal(run: Run, answering: StubService) -> None:
    """The output is the same."""
    assert run("ask", "Where?")[:2] == (0, f"{ANSWER}\n{CITED}")


def test_ask_as_json(run: Run, answering: StubService) -> None:
    """The steps as they come, and then the job."""
    code, out, err = run("ask", "Where?", "--json")
    *steps, job = map(json.loads, out.splitlines())
    assert (code, steps, job["result"]["answer"]) == (0, STEPS, ANSWER)
    assert err == USED


def test_the_question_from_standard_input(
    run: Run, answering: StubService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `-`."""
    pipe_in(monkeypatch, "¿Dónde?".encode())
    assert run("ask", "-")[0] == 0
    assert submitted(answering)["input"]["question"] == "¿Dónde?"


@pytest.mark.parametrize("question", ["", " \n"])
def test_no_empty_question_is_sent(run: Run, answering: StubService, question: str) -> None:
    """The exit code is 2."""
    assert run("ask", question) == (2, "", "recado: The question is empty.\n")
    assert answering.requests == []


@pytest.mark.parametrize(
    "arguments", [("ask",), ("ask", "--json"), ("ask", "x", "--steps", "0"), ("passage", JOB_ID, "0")]
)
def test_invalid_options_are_usage_errors(run: Run, service: StubService, arguments: tuple[str, ...]) -> None:
    """Without a terminal there is no conversation, either. The exit code is 2, and nothing is sent."""
    code, _, err = run(*arguments)
    assert (code, "error: " in err, service.requests) == (2, True, [])


def test_text_cannot_control_the_terminal(run: Run, configured: StubService, for_people: None) -> None:
    """Thoughts, tools, documents, the answer and quotes have no escape sequences and break no line."""
    evil = "a\x1b[2J\u202e\nb"
    steps = [
        {"type": "thinking", "content": evil},
        {"type": "tool_use", "tool": evil, "input": {evil: evil}},
        {"type": "tool_result", "tool": evil, "passages": [PASSAGE | {"document_id": evil}]},
        {"type": "tool_result", "tool": evil, "error": evil},
        token("a\x1b"),
        token("[2J\u202e"),
    ]
    citation = CITATION | {"document_id": evil, "quote": evil}
    answer(configured, steps=steps, answer="a\x1b[2J\u202e", citations=[citation])
    code, out, err = run("ask", "Where?")
    assert code == 0
    assert not {"\x1b", "\u202e"} & {*out, *err}
    assert len(out.splitlines()) == 3
    assert len(err.splitlines()) == 1 + 4 + 2


def test_an_answer_that_was_started_again(run: Run, configured: StubService, for_people: None) -> None:
    """What came before the answer's new start is not repeated after its end."""
    answer(configured, steps=[*STEPS[:3], token("The ce"), token("\n\n(Again.)\n\n"), token(ANSWER)])
    assert run("ask", "Where?")[1] == f"The ce\n\n(Again.)\n\n{ANSWER}\n{CITED}"


def test_an_answer_that_is_cut_off(run: Run, configured: StubService) -> None:
    """The tokens are those of all calls, so they do not say where."""
    answer(configured, stop_reason="max_tokens")
    assert "The text is cut off.\n" in run("ask", "Where?")[2]


def test_an_answer_without_citations(run: Run, configured: StubService) -> None:
    """There is no passage to open."""
    answer(configured, citations=[])
    code, out, err = run("ask", "Where?")
    assert (code, out, "recado passage" in err) == (0, f"{ANSWER}\n", False)


@pytest.mark.parametrize(("status", "code"), [("failed", 3), ("canceled", 4)])
def test_the_exit_code_is_the_jobs_end(run: Run, configured: StubService, status: str, code: int) -> None:
    """A job without a result prints nothing on standard output."""
    answer(configured, status=status)
    assert run("ask", "Where?")[:2] == (code, "")


def test_ctrl_c_does_not_end_the_job(answering: StubService) -> None:
    """As for `complete`, the command ends and prints how to watch and cancel the job."""
    answering.log.pop()
    code, screen = run_on_terminal(["ask", "Where?"], until="behind the door.")
    assert code == 130
    assert f"recado cancel {JOB_ID}" in screen
    assert "Traceback" not in screen


# ── a conversation ───────────────────────────────────────────────────────────────────────────────────────


def sessions(service: StubService) -> list[str | None]:
    """Of each submitted question."""
    return [json.loads(body)["input"].get("session") for body in service.bodies if body]


def test_a_conversation(answering: StubService) -> None:
    """The questions have one session, a number opens a passage, and Ctrl-C at the prompt ends."""
    typed = [("> ", "Where?\n"), ("USD", "And why?\n"), ("USD", "1\n"), ("characters 0 to 37", "2\n")]
    code, screen = run_on_terminal(["ask"], typed=typed, until="no citation 2")
    assert code == 0
    assert sessions(answering) == [None, "s1"]
    assert screen.count(f"house, chunk 0: “{ANSWER}”") == 2
    assert "Traceback" not in screen


def test_ctrl_c_cancels_a_question_of_a_conversation(answering: StubService) -> None:
    """The conversation goes on. An error does not end it, either; an empty line does."""
    answering.log.pop()
    typed = [("> ", "Where?\n"), ("behind the door.", None), ("Canceled.", "7\n"), ("no citation 7", "\n")]
    code, screen = run_on_terminal(["ask"], typed=typed)
    assert code == 0
    assert f"POST /v1/jobs/{JOB_ID}/cancel" in answering.requests
    assert "Traceback" not in screen


# ── passage ──────────────────────────────────────────────────────────────────────────────────────────────


def test_passage(run: Run, answering: StubService) -> None:
    """The text of the cited passage; as JSON with its place."""
    assert run("passage", JOB_ID, "1") == (0, f"{ANSWER}\n", "")
    assert json.loads(run("passage", JOB_ID, "1", "--json")[1]) == PASSAGE


def test_passage_for_people(run: Run, answering: StubService, for_people: None) -> None:
    """Its place is above it."""
    assert run("passage", JOB_ID, "1")[1] == f"house, chunk 0, characters 0 to 37  Keys\n{ANSWER}\n"


def test_there_is_no_such_citation(run: Run, answering: StubService) -> None:
    """The error says which there are."""
    message = "recado: The answer has no citation 2. Its citations are numbered from 1 to 1.\n"
    assert run("passage", JOB_ID, "2") == (2, "", message)


def test_a_passage_that_is_gone(run: Run, configured: StubService) -> None:
    """The steps do not have it any more."""
    answer(configured, steps=STEPS[:1])
    code, _, err = run("passage", JOB_ID, "1")
    assert (code, err) == (1, "recado: The passage of citation 1 is not stored any more.\n")


def test_the_passage_of_an_open_job(run: Run, configured: StubService) -> None:
    """There are no citations yet, and the command does not wait for them."""
    configured.reset(events()[:2], steps=list(STEPS))
    code, _, err = run("passage", JOB_ID, "1")
    assert (code, f"{JOB_ID} has not ended" in err) == (1, True)
