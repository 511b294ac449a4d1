"""Commands for jobs."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from recado._api import Operations
from recado.client import Recado
from recado.models import JobEvent
from tests.unit.client.cli.conftest import Run
from tests.unit.client.cli.terminal import run_on_terminal
from tests.unit.client.stub_service import JOB_ID, Payload, StubService, payload, payloads

pytestmark = pytest.mark.enable_socket


def accept(service: StubService, log: list[Payload]) -> None:
    """Let submissions and uploads succeed. The job has this log."""
    service.reset(log)
    service.responses |= {
        "POST /jobs": (202, service.view()),
        "POST /uploads": (201, {"s3_key": "k", "url": f"{service.url}/store", "headers": {}}),
        "PUT /store": (200, {}),
    }


@pytest.fixture
def accepting(configured: StubService) -> StubService:
    """With a job that has just been queued."""
    accept(configured, payloads(8)[:1])
    return configured


def submitted(service: StubService) -> Any:
    """The body of the last POST /jobs."""
    return json.loads(service.bodies[-1])


def pipe_in(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


# ── submit ───────────────────────────────────────────────────────────────────────────────────────────────


def test_submit_prints_the_id(run: Run, accepting: StubService, tmp_path: Path) -> None:
    """Nothing else is printed. The document has the name of the file."""
    file = tmp_path / "report.pdf"
    file.write_bytes(b"%PDF")
    assert run("submit", str(file), "--metadata", "lang=en") == (0, f"{JOB_ID}\n", "")
    upload, put, job = accepting.bodies
    assert (json.loads(upload)["filename"], put) == ("report.pdf", b"%PDF")
    assert json.loads(job)["input"] == {"s3_key": "k", "document_id": "report.pdf"}
    assert json.loads(job)["metadata"] == {"lang": "en"}


def test_submit_shows_people_what_to_do_next(run: Run, accepting: StubService, for_people: None) -> None:
    """It prints the command that watches the job, and a new webhook secret, which is not shown again."""
    accepting.responses["POST /jobs"] = (202, accepting.view() | {"webhook_secret": "whsec_new"})
    code, out, err = run("submit", "--text", "Hi", "--webhook-url", "https://me/")
    assert (code, f"recado watch {JOB_ID}" in out, "whsec_new" in err) == (0, True, True)


@pytest.mark.parametrize("data", ["¿Dónde?".encode(), b"\xff\xfe"])
def test_submit_reads_standard_input(
    run: Run, accepting: StubService, monkeypatch: pytest.MonkeyPatch, data: bytes
) -> None:
    """UTF-8 is submitted as text, everything else is uploaded as a file."""
    pipe_in(monkeypatch, data)
    assert run("submit", "-")[0] == 0
    assert submitted(accepting)["input"] == ({"s3_key": "k"} if data[0] == 0xFF else {"text": "¿Dónde?"})


def test_input_is_json_or_a_file(run: Run, accepting: StubService, tmp_path: Path) -> None:
    """--set and --text add fields to it."""
    file = tmp_path / "input.json"
    file.write_text('{"prompt": "¿Dónde?", "format": {"type": "json"}}', encoding="utf-8-sig")
    for source in (f"@{file}", file.read_text(encoding="utf-8-sig")):
        assert run("submit", "--kind", "completion", "--input", source, "--set", "format.strict=true")[0] == 0
        assert submitted(accepting)["input"] == {"prompt": "¿Dónde?", "format": {"type": "json", "strict": True}}
    assert run("submit", "--input", '{"document_id": "notes"}', "--text", "Hi")[0] == 0
    assert submitted(accepting) == {"kind": "document", "input": {"document_id": "notes", "text": "Hi"}}


@pytest.mark.parametrize("is_piped", [False, True])
def test_any_kind_accepts_a_file(
    run: Run, accepting: StubService, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_piped: bool
) -> None:
    """A file or standard input is uploaded. Only documents get the name of the file."""
    file = tmp_path / "sales.csv"
    file.write_bytes(b"a,b")
    pipe_in(monkeypatch, b"a,b")
    source = "-" if is_piped else str(file)
    assert run("submit", source, "--kind", "dataset", "--set", "target=b", "--type", "text/csv")[0] == 0
    upload, put, job = accepting.bodies
    assert (json.loads(upload)["content_type"], put) == ("text/csv", b"a,b")
    assert json.loads(job) == {"kind": "dataset", "input": {"s3_key": "k", "target": "b"}}


@pytest.mark.parametrize(
    "options",
    [("--document-id", "mine"), ("--set", "document_id=mine"), ("--input", '{"document_id": "mine"}')],
)
def test_a_given_name_replaces_the_name_of_the_file(
    run: Run, accepting: StubService, tmp_path: Path, options: tuple[str, ...]
) -> None:
    """The name can be given by each of these options."""
    file = tmp_path / "report.pdf"
    file.write_bytes(b"%PDF")
    assert run("submit", str(file), *options)[0] == 0
    assert submitted(accepting)["input"] == {"s3_key": "k", "document_id": "mine"}


@pytest.mark.parametrize(
    ("options", "field"),
    [
        (("--set", "a=1", "--set", "a=2"), "a"),
        (("--set", "a=1", "--set", "a.b=2"), "a"),
        (("--input", '{"a": {"b": 1}}', "--set", "a.b=2"), "a.b"),
        (("--input", '{"text": "x"}', "--text", "y"), "text"),
        (("--document-id", "x", "--set", "document_id=x"), "document_id"),
        ((__file__, "--set", "s3_key=k"), "s3_key"),
    ],
)
def test_a_field_is_given_once(run: Run, service: StubService, options: tuple[str, ...], field: str) -> None:
    """If a field is given twice, the exit code is 2, the field is named, and nothing is sent."""
    code, out, err = run("submit", *options)
    assert (code, out, service.requests) == (2, "", [])
    assert f"{field} is given twice" in err


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--input", "[1]"),
        ("--input", "prompt"),
        ("--input", '{"a": NaN}'),
        ("--input", '{"a": 1e999}'),
        ("--input", "@nowhere.json"),
        ("--input", "@" + __file__),
        ("--input", "[" * 100_000),
        ("--set", "prompt"),
        ("--set", "=1"),
        ("--set", "a..b=1"),
    ],
)
def test_malformed_inputs_are_usage_errors(run: Run, service: StubService, option: str, value: str) -> None:
    """The exit code is 2, the option is named, and nothing is sent."""
    code, _, err = run("submit", "--kind", "completion", option, value)
    assert (code, service.requests) == (2, [])
    assert f"argument {option}: " in err


def test_submit_needs_an_input(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kind alone is a usage error, also without a configuration."""
    monkeypatch.delenv("RECADO_URL")
    code, _, err = run("submit", "--kind", "completion")
    assert (code, "usage:" in err, "--set" in err) == (2, True, True)


# ── waiting ──────────────────────────────────────────────────────────────────────────────────────────────


def test_submit_waits(run: Run, configured: StubService) -> None:
    """Without a terminal, events are lines on standard error. Standard output has the id only."""
    log = payloads(5)
    accept(configured, log[:1])
    with configured.append_later(0.1, *log[1:]):
        code, out, err = run("submit", "--text", "Hi", "--wait")
    assert (code, out) == (0, f"{JOB_ID}\n")
    assert re.findall(r"document\.\w+", err) == [event["event"] for event in log]
    assert "✓ completed in" in err


@pytest.mark.parametrize(("ending", "code"), [("completed", 0), ("failed", 3), ("canceled", 4)])
@pytest.mark.parametrize(
    "command", [("submit", "--text", "Hi", "--wait"), ("watch", JOB_ID), ("retry", JOB_ID, "--wait")]
)
def test_the_exit_code_is_the_jobs_end(
    run: Run, configured: StubService, ending: str, code: int, command: tuple[str, ...]
) -> None:
    """The exit code is 0 for a completed, 3 for a failed, and 4 for a canceled job."""
    accept(configured, payloads(3, ending=ending))
    configured.responses[f"POST /jobs/{JOB_ID}/retry"] = (202, configured.view() | {"retry_of": JOB_ID})
    assert run(*command)[0] == code


def test_a_failure_has_its_reason(run: Run, configured: StubService) -> None:
    """It is printed as text for people, and as JSON for programs."""
    accept(configured, payloads(3, ending="failed"))
    assert "It is a scan." in run("watch", JOB_ID)[2]
    code, out, _ = run("submit", "--text", "Hi", "--wait", "--json")
    assert (code, json.loads(out)["error"]["code"]) == (3, "no_text")


def test_the_exit_code_of_a_timeout(run: Run, configured: StubService) -> None:
    """After --timeout the exit code is 5."""
    accept(configured, payloads(8)[:2])
    code, out, err = run("submit", "--text", "Hi", "--wait", "--timeout", "0.3s")
    assert (code, out) == (5, f"{JOB_ID}\n")
    assert "The job continues." in err


def test_ctrl_c_does_not_end_the_job(configured: StubService) -> None:
    """On a terminal, Ctrl-C ends the command and prints how to watch the job again."""
    accept(configured, payloads(8)[:2])
    code, screen = run_on_terminal(["submit", "--text", "Hi", "--wait"], until="embed")
    assert code == 130
    assert "The job continues." in screen
    assert f"recado watch {JOB_ID}" in screen
    assert "Traceback" not in screen


LINK = "https://store/result?X-Amz-Signature=1"


@pytest.fixture
def large_result(configured: StubService, monkeypatch: pytest.MonkeyPatch) -> str:
    """The link to the large result of a completed job."""
    view = configured.view() | {"result": None, "result_truncated": True}
    view["links"] = {**view["links"], "result": LINK}
    monkeypatch.setattr(configured, "view", lambda: view)
    configured.responses["POST /jobs"] = (202, view)
    return LINK


@pytest.mark.parametrize("command", [("submit", "--text", "Hi", "--wait"), ("watch", JOB_ID)])
def test_the_link_of_a_large_result_is_noted(run: Run, large_result: str, command: tuple[str, ...]) -> None:
    """It is on standard error, and not on standard output."""
    code, out, err = run(*command)
    assert (code, large_result in err, large_result in out) == (0, True, False)
    assert run(*command, "--json")[0] == 0


@pytest.mark.parametrize("command", [("submit", "--text", "Hi", "--wait"), ("watch", JOB_ID), ("status", JOB_ID)])
def test_links_of_files_are_noted(
    run: Run, configured: StubService, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    """The links to the files of a result are on standard error, each with its name."""
    view = configured.view() | {"files": {"parquet": LINK}}
    monkeypatch.setattr(configured, "view", lambda: view)
    configured.responses["POST /jobs"] = (202, view)
    code, out, err = run(*command)
    assert (code, f"Download parquet: {LINK}" in err, LINK in out) == (0, True, False)


def test_status_shows_people_the_link_of_a_large_result(run: Run, large_result: str, for_people: None) -> None:
    """It is on a line of its own, so that it can be copied."""
    code, out, _ = run("status", JOB_ID)
    assert (code, out.splitlines()[-1]) == (0, large_result)
    assert re.search(r"result +large", out)


def test_status_notes_the_link_of_a_large_result(run: Run, large_result: str) -> None:
    """The status remains one line on standard output."""
    code, out, err = run("status", JOB_ID)
    assert (code, out, large_result in err) == (0, f"{JOB_ID}\tcompleted\tembed\t\t\n", True)


# ── watch and follow ─────────────────────────────────────────────────────────────────────────────────────


def test_watch_prints_events(run: Run, service: StubService) -> None:
    """Each event is a line of fields separated by tabs, or of JSON."""
    code, out, _ = run("watch", JOB_ID, "--after", "6")
    assert code == 0
    assert [line.split("\t")[1:3] for line in out.splitlines()] == [
        ["7", "document.progressed"],
        ["8", "document.indexed"],
    ]
    _, out, _ = run("watch", JOB_ID, "--json")
    assert [json.loads(line) for line in out.splitlines()] == service.log


def test_watch_prints_events_for_people(run: Run, for_people: None) -> None:
    """Events are on standard output, because they are the result of the command."""
    code, out, err = run("watch", JOB_ID, "--after", "7")
    assert (code, err) == (0, "")
    assert re.fullmatch(r"\d\d:\d\d:\d\d +8  document\.indexed *\n", out)


def write_text(service: StubService) -> None:
    """Let the job write a text before its last event."""
    *before, last = payloads(4)
    texts = [("snapshot", 4, "Once upon"), ("delta", 5, " a\x1b[2J"), ("delta", 6, " time")]
    messages = [{"type": kind, "job_id": JOB_ID, "index": index, "text": text} for kind, index, text in texts]
    service.reset(before, messages=messages, events_after_messages=[last])


def test_watch_prints_text_for_people(run: Run, service: StubService, for_people: None) -> None:
    """The text grows in place, without control characters. Events are on lines of their own."""
    write_text(service)
    _, out, _ = run("watch", JOB_ID)
    lines = out.splitlines()
    assert lines[3] == "Once upon a\N{REPLACEMENT CHARACTER}[2J time"
    assert [bool(re.search("document", line)) for line in lines] == [True, True, True, False, True]


def test_watch_prints_deltas_as_json(run: Run, service: StubService) -> None:
    """With --json each delta is a line with a `type`. Lines with tabs are events only."""
    write_text(service)
    _, out, _ = run("watch", JOB_ID, "--json")
    deltas = [line for line in map(json.loads, out.splitlines()) if "type" in line]
    assert [(each["type"], each["index"]) for each in deltas] == [("snapshot", 4), ("delta", 5), ("delta", 6)]
    write_text(service)
    assert len(run("watch", JOB_ID)[1].splitlines()) == 4


def test_ctrl_c_ends_watching(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The exit code is 130, and the command to continue is printed."""

    def interrupt(*_: Any, **__: Any) -> Iterator[JobEvent]:
        raise KeyboardInterrupt

    monkeypatch.setattr(Recado, "watch", interrupt)
    code, _, err = run("watch", JOB_ID)
    assert (code, f"recado watch {JOB_ID}" in err) == (130, True)


@pytest.fixture
def followed(service: StubService, monkeypatch: pytest.MonkeyPatch) -> list[Payload]:
    """Two events of two jobs that happen while `follow` runs, and Ctrl-C after them."""
    events = [payload(1, "started", "job_a"), payload(1, "indexed", "job_b", status="completed")]
    original = vars(Operations)["follow"]

    def follow(client: Recado, kind: str, *, on_connected: Callable[[], object]) -> Iterator[JobEvent]:
        def append() -> None:
            on_connected()
            service.append(*events)

        yield from islice(original.__get__(client)(kind, on_connected=append), 2)
        raise KeyboardInterrupt

    monkeypatch.setattr(Recado, "follow", follow)
    return events


def test_follow_prints_events(run: Run, followed: list[Payload]) -> None:
    """Each event is a line of fields or of JSON. Ctrl-C is the normal end, so the exit code is 0."""
    code, out, err = run("follow")
    assert (code, "Following all jobs of the kind document." in err) == (0, True)
    assert [line.split("\t")[1:] for line in out.splitlines()] == [
        ["job_a", "1", "document.started", ""],
        ["job_b", "1", "document.indexed", ""],
    ]
    code, out, _ = run("follow", "--json")
    assert (code, [json.loads(line) for line in out.splitlines()]) == (0, followed)


def test_follow_prints_events_for_people(run: Run, followed: list[Payload], for_people: None) -> None:
    """Each event has the id of its job. The kind can be any name."""
    code, out, err = run("follow", "--kind", "errand")
    assert (code, "Following all jobs of the kind errand." in err) == (0, True)
    assert re.fullmatch(r"\d\d:\d\d:\d\d  job_a +1  document\.started *", out.splitlines()[0])


def test_follow_ends_on_a_terminal(configured: StubService) -> None:
    """Ctrl-C ends it without a traceback."""
    configured.reset([])
    code, screen = run_on_terminal(["follow"], until="Press Ctrl-C to stop.")
    assert (code, "Traceback" in screen) == (0, False)


# ── status, ls, cancel ───────────────────────────────────────────────────────────────────────────────────


def test_status_describes_a_failure_for_people(run: Run, service: StubService, for_people: None) -> None:
    """The error has its code, stage and message."""
    service.reset(payloads(3, ending="failed"))
    _, out, _ = run("status", JOB_ID)
    assert re.search(r"status +failed", out)
    assert "no_text in validate: It is a scan." in out


def test_status_says_what_the_job_waits_for(
    run: Run, service: StubService, monkeypatch: pytest.MonkeyPatch, for_people: None
) -> None:
    """The status has the reason, and the time since when the job waits if the service sends it."""
    service.reset(payloads(8)[:1])
    view = service.view() | {"waiting_for": "rate_limit", "waiting_since": "2026-11-29T08:00:00.000Z"}
    monkeypatch.setattr(service, "view", lambda: view)
    assert re.search(r"waiting for +rate_limit since 2026-11-\d\d \d\d:00:00\n", run("status", JOB_ID)[1])
    view |= {"waiting_for": "backoff", "waiting_since": None}
    assert re.search(r"waiting for +backoff *\n", run("status", JOB_ID)[1])


def test_status_shows_what_models_were_paid(
    run: Run, service: StubService, monkeypatch: pytest.MonkeyPatch, for_people: None
) -> None:
    """The status has calls, tokens and cost, and what came of an answer that was interrupted."""
    usage = {"calls": 2, "input_tokens": 310, "output_tokens": 95, "cost_usd": 0.000041, "cost_estimated": False}
    view = service.view() | {"usage": usage}
    monkeypatch.setattr(service, "view", lambda: view)
    out = run("status", JOB_ID)[1]
    assert re.search(r"used +2 calls, 310 \+ 95 tokens, 0\.000041 USD *\n", out)
    assert "partial text" not in out
    usage["partial_text"] = "Once\x1b[2J\nupon"
    assert re.search(r"partial text +Once\ufffd\[2J upon *\n", run("status", JOB_ID)[1])


@pytest.mark.parametrize(("field", "heading"), [("document_id", "document"), ("training_set", "training set")])
def test_status_shows_the_subject(
    run: Run, service: StubService, monkeypatch: pytest.MonkeyPatch, for_people: None, field: str, heading: str
) -> None:
    """The subject has the name of the field that the kind has for it."""
    view = service.view() | {field: "a b"}
    monkeypatch.setattr(service, "view", lambda: view)
    assert re.search(rf"{heading} +a b *\n", run("status", JOB_ID)[1])


def test_ls(run: Run, service: StubService) -> None:
    """Jobs of all kinds are lines with their subjects. The filters are sent."""
    jobs: list[dict[str, Any]] = [
        {**service.view(), "document_id": "a\tb"},
        {**service.view(), "kind": "replay", "webhook_id": "wh_1"},
        {**service.view(), "kind": "completion"},
    ]
    service.responses["GET /jobs"] = (200, {"jobs": jobs, "cursor": None})
    code, out, _ = run("ls", "--status", "completed", "--kind", "sonnet", "-n", "3")
    assert code == 0
    assert [line.split("\t") for line in out.splitlines()] == [
        [JOB_ID, "completed", "embed", kind, subject, "2026-11-29T08:00:00.000Z"]
        for kind, subject in (("document", "a b"), ("replay", "wh_1"), ("completion", ""))
    ]
    assert service.requests == ["GET /v1/jobs?status=completed&kind=sonnet&limit=3"]


def test_delete(run: Run, service: StubService) -> None:
    """Several jobs can be deleted; an open one ends the command with the service's advice."""
    service.responses[f"DELETE /jobs/{JOB_ID}"] = (202, "")
    service.responses["DELETE /jobs/job_2"] = (204, "")
    service.responses["DELETE /jobs/job_3"] = (409, {"title": "conflict", "detail": "Cancel it first."})
    assert run("delete", JOB_ID, "job_2") == (0, "", f"{JOB_ID} is deleted.\njob_2 is deleted.\n")
    code, out, err = run("delete", "job_3")
    assert (code, out, "Cancel it first." in err) == (1, "", True)


def test_end_links(run: Run, service: StubService) -> None:
    """The command says when the links and their WebSockets end."""
    service.responses[f"DELETE /jobs/{JOB_ID}/links"] = (204, "")
    code, out, err = run("end-links", JOB_ID)
    assert (code, out, "five minutes" in err) == (0, "", True)


def test_cancel(run: Run, service: StubService) -> None:
    """The status of the job is printed."""
    service.reset(payloads(3, ending="canceled"))
    service.responses[f"POST /jobs/{JOB_ID}/cancel"] = (200, service.view())
    assert run("cancel", JOB_ID) == (0, f"{JOB_ID}\tcanceled\n", "")
