"""Commands that call a language model."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.unit.client.cli.conftest import Run
from tests.unit.client.cli.terminal import run_on_terminal
from tests.unit.client.stub_service import JOB_ID, Payload, StubService, payload

pytestmark = pytest.mark.enable_socket

TEXT = "Once upon a time"
CALLS: dict[str, Any] = {
    "usage": {"input_tokens": 310, "output_tokens": 95},
    "cost_usd": 0.000041,
    "cost_estimated": False,
    "model": "bedrock/tiny",
    "stop_reason": "end",
    "sample": False,
}
USED = "bedrock/tiny, 310 + 95 tokens, 0.000041 USD\n"
SCHEMA = {"type": "object", "properties": {"planet": {"type": "string"}}}
SUBMISSIONS: list[tuple[str, Payload]] = [
    ("complete Why?", {"kind": "completion", "input": {"prompt": "Why?"}}),
    (
        "complete Why? --system 'Be brief.' --model m --max-tokens 9 --temperature 0 --stop . --stop ! "
        f"--schema '{json.dumps(SCHEMA)}' --max-cost 0.01 --allow-sample --metadata a=b",
        {
            "kind": "completion",
            "input": {
                "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}],
                "model": "m",
                "max_tokens": 9,
                "temperature": 0,
                "stop": [".", "!"],
                "response_format": {"type": "json_schema", "json_schema": SCHEMA},
                "max_cost_usd": 0.01,
                "allow_sample": True,
            },
            "metadata": {"a": "b"},
        },
    ),
    ("summarize --text Long.", {"kind": "summary", "input": {"text": "Long."}}),
    (
        "summarize --document manual --style bullets --max-words 30 --model m --max-cost 0.01 --allow-sample "
        "--metadata a=b",
        {
            "kind": "summary",
            "input": {
                "document_id": "manual",
                "style": "bullets",
                "max_words": 30,
                "model": "m",
                "max_cost_usd": 0.01,
                "allow_sample": True,
            },
            "metadata": {"a": "b"},
        },
    ),
]
"""Commands, and the body of their POST /jobs."""


def event(number: int, verb: str, **fields: Any) -> Payload:
    return payload(number, verb, stage="call") | fields


REQUESTED = event(1, "requested", status="queued", stage="queued")
STARTED = event(2, "started", attempts=1)
DELTAS = [
    {"type": kind, "job_id": JOB_ID, "index": index, "text": text}
    for kind, index, text in (("snapshot", 4, "Once"), ("delta", 5, " upon"), ("delta", 6, " a time"))
]


def accept(service: StubService, *, status: str = "completed", **options: Any) -> None:
    """A submission succeeds. The job writes `messages`, and ends after `before` more events with `result`."""
    result, before = options.pop("result", {"text": TEXT, **CALLS}), options.pop("before", [])
    last = event(3 + len(before), status, status=status)
    service.reset([REQUESTED, STARTED], events_after_messages=[*before, last], **options)
    view = service.view()
    ended = view | {"status": status, "result": result if status == "completed" else None}
    ended |= {"error": {"code": "model_timeout", "message": "It hangs.", "stage": "call"}} if not result else {}
    service.responses |= {
        "POST /jobs": (202, view),
        f"GET /jobs/{JOB_ID}": (200, ended),
        "POST /uploads": (201, {"s3_key": "k", "url": f"{service.url}/store", "headers": {}}),
        "PUT /store": (200, {}),
    }


@pytest.fixture
def accepting(configured: StubService) -> StubService:
    """A completion whose text is written over WebSocket."""
    accept(configured, messages=DELTAS)
    return configured


@pytest.fixture
def summarizing(configured: StubService) -> StubService:
    """A summary of two parts."""
    accept(configured, result={"summary": "It is long.", "parts": 2, "calls": 3, **CALLS})
    return configured


def pipe_in(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


def submitted(service: StubService) -> Any:
    """The body of POST /jobs."""
    return json.loads(service.bodies[service.requests.index("POST /v1/jobs")])


# ── both ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("command", "body"), SUBMISSIONS)
def test_options_are_fields_of_the_input(run: Run, accepting: StubService, command: str, body: Payload) -> None:
    """Options that are not given are not sent, so that the service's defaults hold."""
    assert run(*shlex.split(command), "--idempotency-key", "key-1")[0] == 0
    assert submitted(accepting) == body
    assert accepting.headers[0]["idempotency-key"] == "key-1"


@pytest.mark.parametrize(
    ("arguments", "stdin", "name"),
    [
        (("complete", " \n"), b"", "The prompt"),
        (("complete", "Why?", "--system", ""), b"", "--system"),
        (("complete", "-"), b"", "Standard input"),
        (("complete", "-"), b"\n", "Standard input"),
        (("summarize", "-"), b"\xef\xbb\xbf ", "Standard input"),
        (("summarize", "--text", ""), b"", "--text"),
        (("summarize", "--document", ""), b"", "--document"),
        (("summarize", os.devnull), b"", os.devnull),
    ],
)
def test_nothing_empty_is_sent(
    run: Run,
    accepting: StubService,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    stdin: bytes,
    name: str,
) -> None:
    """The error says what is empty, and the exit code is 2."""
    pipe_in(monkeypatch, stdin)
    assert run(*arguments) == (2, "", f"recado: {name} is empty.\n")
    assert accepting.requests == []


@pytest.mark.parametrize("command", ["complete", "summarize"])
def test_closed_standard_input_is_empty(
    run: Run, accepting: StubService, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """A closed one is an empty one."""
    monkeypatch.setattr(sys, "stdin", None)
    assert run(command, "-") == (2, "", "recado: Standard input is empty.\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ("complete",),
        ("complete", "x", "--max-tokens", "0"),
        ("complete", "x", "--temperature", "nan"),
        ("complete", "x", "--max-cost", "-1"),
        ("complete", "x", "--schema", "{"),
        ("complete", "x", "--schema", "nowhere.json"),
        ("summarize",),
        ("summarize", "a.txt", "--text", "b"),
        ("summarize", "--document", "a", "--text", "b"),
        ("summarize", "--text", "b", "--style", "dry"),
    ],
)
def test_invalid_options_are_usage_errors(run: Run, service: StubService, arguments: tuple[str, ...]) -> None:
    """The exit code is 2, and nothing is sent."""
    code, _, err = run(*arguments)
    assert (code, "error: " in err, service.requests) == (2, True, [])


@pytest.mark.parametrize(
    ("changes", "notes"),
    [
        ({}, [USED]),
        ({"cost_estimated": True}, [USED.replace("0.0", "up to 0.0")]),
        ({"cost_usd": None}, [USED.replace("0.000041 USD", "cost unknown")]),
        ({"calls": 3}, [USED.replace("310", "3 calls, 310")]),
        ({"stop_reason": "max_tokens"}, [USED, "The text is cut off at 95 tokens.\n"]),
        (
            {"stop_reason": "max_tokens", "calls": 3},
            [USED.replace("310", "3 calls, 310"), "The text is cut off.\n"],
        ),
        ({"sample": True}, [USED, "No model answered. The text is a recorded sample.\n"]),
    ],
)
def test_the_end_is_noted(run: Run, configured: StubService, changes: Payload, notes: list[str]) -> None:
    """Standard error has the model, tokens and cost, and whether the text is cut off or a sample."""
    accept(configured, result={"text": TEXT, **CALLS, **changes})
    assert run("complete", "Why?") == (0, f"{TEXT}\n", "".join([f"{JOB_ID}\n", *notes]))


@pytest.mark.parametrize(("status", "code"), [("failed", 3), ("canceled", 4)])
@pytest.mark.parametrize("arguments", [("complete", "Why?"), ("summarize", "--text", "Long.")])
def test_the_exit_code_is_the_jobs_end(
    run: Run, configured: StubService, arguments: tuple[str, ...], status: str, code: int
) -> None:
    """A job without a result prints nothing on standard output; with --json it prints the job."""
    accept(configured, status=status, result=None)
    assert run(*arguments)[:2] == (code, "")
    accept(configured, status=status, result=None)
    code_of_json, out, _ = run(*arguments, "--json")
    assert (code_of_json, json.loads(out.splitlines()[-1])["status"]) == (code, status)


@pytest.mark.parametrize(
    ("arguments", "field"), [(("complete", "Why?"), "text"), (("summarize", "--text", "Long."), "summary")]
)
def test_a_large_result_is_downloaded(
    run: Run, configured: StubService, arguments: tuple[str, ...], field: str
) -> None:
    """A text that is too long for the job is printed all the same."""
    accept(configured)
    status, view = configured.responses[f"GET /jobs/{JOB_ID}"]
    links = {**view["links"], "result": f"{configured.url}/large"}
    configured.responses[f"GET /jobs/{JOB_ID}"] = (
        status,
        view | {"result": None, "result_truncated": True, "links": links},
    )
    configured.responses["GET /large"] = (200, {field: "long " * 9000, **CALLS})
    assert run(*arguments)[:2] == (0, "long " * 9000 + "\n")


@pytest.mark.parametrize("arguments", [("complete", "Why?"), ("summarize", "--text", "Long.")])
def test_ctrl_c_does_not_end_the_job(configured: StubService, arguments: tuple[str, ...]) -> None:
    """On a terminal, Ctrl-C ends the command and prints how to watch and cancel the job."""
    configured.reset([REQUESTED, STARTED], messages=DELTAS)
    configured.responses["POST /jobs"] = (202, configured.view())
    code, screen = run_on_terminal(list(arguments), until="a time" if arguments[0] == "complete" else "call")
    assert code == 130
    assert f"recado watch {JOB_ID}" in screen
    assert f"recado cancel {JOB_ID}" in screen
    assert "Traceback" not in screen


# ── complete ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_prompt_comes_from_standard_input(
    run: Run, accepting: StubService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is sent without a byte order mark."""
    pipe_in(monkeypatch, "\ufeff¿Dónde?".encode())
    assert run("complete", "-")[0] == 0
    assert submitted(accepting)["input"] == {"prompt": "¿Dónde?"}


@pytest.mark.parametrize("data", [b"\xff\xfe", b"a\0b"])
def test_a_prompt_is_text(run: Run, accepting: StubService, monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    """Other data on standard input is refused before any request."""
    pipe_in(monkeypatch, data)
    code, out, err = run("complete", "-")
    assert (code, out, "not UTF-8 text" in err, accepting.requests) == (2, "", True, [])


def test_a_schema_comes_from_a_file(run: Run, accepting: StubService, tmp_path: Path) -> None:
    """The name of a file stands for its content."""
    file = tmp_path / "schema.json"
    file.write_text(json.dumps(SCHEMA))
    assert run("complete", "Why?", "--schema", str(file))[0] == 0
    assert submitted(accepting)["input"]["response_format"] == {"type": "json_schema", "json_schema": SCHEMA}


@pytest.mark.parametrize(
    ("messages", "printed"),
    [
        (DELTAS, f"{TEXT}\n"),
        (DELTAS[:2], f"{TEXT}\n"),
        ([], f"{TEXT}\n"),
        ([DELTAS[0], {**DELTAS[1], "text": " more"}], f"Once more\n{TEXT}\n"),
    ],
    ids=["all deltas", "the last is missing", "no delta", "another text"],
)
def test_the_text_is_printed_once(
    run: Run, configured: StubService, for_people: None, messages: list[Payload], printed: str
) -> None:
    """On a terminal it grows in place. What is missing at the end is added; another text is replaced."""
    accept(configured, messages=messages)
    code, out, err = run("complete", "Why?")
    assert (code, out) == (0, printed)
    assert err.endswith(USED)


def test_the_text_needs_no_websocket(run: Run, accepting: StubService, for_people: None) -> None:
    """Other transports send no deltas. The text is printed at the end."""
    accepting.log += accepting.events_after_messages
    assert run("complete", "Why?", "--transport", "sse")[:2] == (0, f"{TEXT}\n")


def test_text_does_not_control_the_terminal(run: Run, configured: StubService, for_people: None) -> None:
    """Control characters are replaced, in deltas and in the rest. A pipe gets them unchanged."""
    text = "a\x1b[2J\rb\x9b\u202e"
    delta = {"type": "snapshot", "job_id": JOB_ID, "index": 1, "text": "a\x1b[2J"}
    accept(configured, messages=[delta], result={"text": text, **CALLS})
    assert run("complete", "Why?")[1] == "a\ufffd[2J\ufffdb\ufffd\ufffd\n"


def test_programs_get_the_whole_text(run: Run, configured: StubService) -> None:
    """Without a terminal, standard output has the text at the end, unchanged, and nothing else."""
    accept(configured, messages=DELTAS, result={"text": "a\x1b[2J\tb\n", **CALLS})
    assert run("complete", "Why?")[1] == "a\x1b[2J\tb\n"


def test_json_has_deltas_events_and_the_job(run: Run, accepting: StubService) -> None:
    """Deltas and events are lines as in `watch --json`. The last line is the job."""
    code, out, _ = run("complete", "Why?", "--json")
    *before, job = map(json.loads, out.splitlines())
    assert (code, job["job_id"], job["result"]["text"]) == (0, JOB_ID, TEXT)
    assert [line["text"] for line in before if "type" in line] == ["Once", " upon", " a time"]
    assert [line for line in before if "event" in line] == accepting.log


@pytest.mark.parametrize(
    ("fields", "note"),
    [
        (
            {"error": {"code": "provider_timeout"}, "not_before": "2026-11-29T08:00:05.000Z"},
            r"provider_timeout: the job goes on at \d\d:\d\d:05",
        ),
        ({"error": None}, "interrupted: the job goes on"),
    ],
)
def test_a_retry_is_noted(run: Run, configured: StubService, for_people: None, fields: Payload, note: str) -> None:
    """Standard error has the error's code and the time. The text of the next attempt has a line of its own."""
    accept(configured, messages=DELTAS[:2], before=[event(3, "retried", attempts=1, **fields)])
    code, out, err = run("complete", "Why?")
    assert (code, out) == (0, f"Once upon\n{TEXT}\n")
    assert re.fullmatch(note, err.splitlines()[1])


# ── summarize ────────────────────────────────────────────────────────────────────────────────────────────


def test_summarize_prints_the_summary(run: Run, summarizing: StubService) -> None:
    """Standard output has the summary only. Standard error has the events and what the calls have used."""
    code, out, err = run("summarize", "--text", "Long.")
    assert (code, out) == (0, "It is long.\n")
    assert re.findall(r"document\.\w+", err) == [event["event"] for event in summarizing.log]
    assert err.endswith("bedrock/tiny, 3 calls, 310 + 95 tokens, 0.000041 USD\n")


def test_summarize_prints_the_job_as_json(run: Run, summarizing: StubService) -> None:
    """With --json standard output is the job."""
    code, out, _ = run("summarize", "--text", "Long.", "--json")
    assert (code, json.loads(out)["result"]["summary"]) == (0, "It is long.")


def test_a_summary_does_not_control_the_terminal(run: Run, configured: StubService, for_people: None) -> None:
    """Control characters are replaced."""
    accept(configured, result={"summary": "a\x1b[2J", **CALLS})
    assert run("summarize", "--text", "Long.")[1] == "a\ufffd[2J\n"


@pytest.mark.parametrize("is_piped", [False, True], ids=["file", "stdin"])
@pytest.mark.parametrize(
    ("data", "is_sent_as_text"),
    [
        ("\ufeff¿Dónde?".encode(), True),
        (b"x" * 256 * 1024, True),
        (b"x" * (256 * 1024 + 1), False),
        (b"%PDF-1.7\xff", False),
        (b"a\0b", False),
    ],
    ids=["utf-8", "256 KB", "more", "binary", "zero"],
)
def test_small_texts_are_not_uploaded(
    run: Run,
    summarizing: StubService,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    is_piped: bool,
    data: bytes,
    is_sent_as_text: bool,
) -> None:
    """UTF-8 up to 256 KB is sent as text, without a byte order mark. All else is uploaded as it is."""
    file = tmp_path / "manual.pdf"
    file.write_bytes(data)
    pipe_in(monkeypatch, data)
    assert run("summarize", "-" if is_piped else str(file))[0] == 0
    if is_sent_as_text:
        assert submitted(summarizing)["input"] == {"text": data.decode("utf-8-sig")}
    else:
        assert submitted(summarizing)["input"] == {"s3_key": "k"}
        assert summarizing.bodies[1] == data


def test_a_pipe_is_read_once(run: Run, summarizing: StubService, tmp_path: Path) -> None:
    """A named pipe, such as `<(command)` of a shell, is summarized like a file."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(b"Long.",))
    writer.start()
    assert run("summarize", str(pipe))[0] == 0
    writer.join()
    assert submitted(summarizing)["input"] == {"text": "Long."}


def test_missing_files_are_named(run: Run, summarizing: StubService) -> None:
    """Nothing is sent."""
    assert run("summarize", "nowhere.txt") == (1, "", "recado: nowhere.txt: No such file or directory\n")
    assert summarizing.requests == []
