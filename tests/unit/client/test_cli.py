"""The command, as people and programs use it."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import select
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from recado import _commands, _listen, _screen, cli
from recado._api import Operations
from recado._screen import Bars, Screen, Typed, clean, facts
from recado.client import Recado
from recado.models import Delta, JobEvent, JobStatus
from tests.unit.client.service import FINAL, JOB_ID, OPEN, Service, payload, payloads, without_status

pytestmark = [pytest.mark.enable_socket, pytest.mark.usefixtures("quick")]
CLIENT = Path(cli.__file__).parents[1]
HOOK = {
    "webhook_id": "wh_1",
    "url": "https://me/",
    "events": ["*"],
    "enabled": True,
    "secret": "whsec_" + "a" * 32,
}
SENT = {
    "delivery_id": "dlv_1",
    "webhook_id": "wh_1",
    "event": "document.indexed",
    "event_id": "evt_1",
    "status": "failed",
    "attempt_count": 2,
    "created_at": "2026-11-29T08:00:00.000Z",
    "last_attempt": {
        "number": 2,
        "at": "",
        "trigger": "retry",
        "duration_ms": 31,
        "status": 503,
        "error": "http_5xx",
    },
}
HIT = {
    "document_id": "a.md",
    "version": "v",
    "chunk": 0,
    "score": 0.5,
    "text": "one\ttwo\x1b[31m",
    "start": 0,
    "end": 7,
}


@pytest.fixture
def at(service: Service, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Service:
    """The service that the environment names, and no configuration of whoever runs the tests."""
    monkeypatch.setenv("RECADO_URL", service.url)
    monkeypatch.setenv("RECADO_API_KEY", "rk_test")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    for variable in ("FORCE_COLOR", "RECADO_WEBHOOK_SECRET", "TTY_INTERACTIVE", "TTY_COMPATIBLE"):
        monkeypatch.delenv(variable, raising=False)
    return service


@pytest.fixture
def run(at: Service, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run it: exit code, standard output, standard error."""

    def call(*arguments: str) -> tuple[int, str, str]:
        try:
            code = cli.main(arguments)
        except SystemExit as exit_:
            code = int(str(exit_.code))
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


@pytest.fixture
def person(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody looks at the output."""
    monkeypatch.setattr(Screen, "for_people", property(lambda self: not self.as_json))


def accept(service: Service, log: list[dict[str, Any]]) -> None:
    """Let POST /jobs answer this service's job, whose log is still to come."""
    service.reset(log)
    service.replies["POST /jobs"] = (202, service.view())


# ── jobs ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_submit_prints_the_id(run: Any, at: Service, tmp_path: Path) -> None:
    """A program that submits a file gets the job's id and nothing else; the document has the file's name."""
    file = tmp_path / "report.pdf"
    file.write_bytes(b"%PDF")
    accept(at, payloads(8)[:1])
    at.replies |= {
        "POST /uploads": (201, {"s3_key": "k", "url": f"{at.url}/store", "headers": {}}),
        "PUT /store": (200, {}),
    }
    assert run("submit", str(file), "--metadata", "lang=en") == (0, f"{JOB_ID}\n", "")
    upload, put, job = at.bodies
    assert (json.loads(upload)["filename"], put) == ("report.pdf", b"%PDF")
    assert json.loads(job)["input"] == {"s3_key": "k", "document_id": "report.pdf"}
    assert json.loads(job)["metadata"] == {"lang": "en"}


@pytest.mark.parametrize("text", ["¿Dónde?", b"\xff\xfe"])
def test_submit_reads_standard_input(run: Any, at: Service, monkeypatch: pytest.MonkeyPatch, text: Any) -> None:
    """`-` submits what is piped in: as text where it is text, else as a file."""
    data = text.encode() if isinstance(text, str) else text
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    accept(at, payloads(8)[:1])
    at.replies |= {
        "POST /uploads": (201, {"s3_key": "k", "url": f"{at.url}/store", "headers": {}}),
        "PUT /store": (200, {}),
    }
    assert run("submit", "-")[0] == 0
    assert json.loads(at.bodies[-1])["input"] == ({"text": text} if isinstance(text, str) else {"s3_key": "k"})


def test_a_job_of_any_kind_is_submitted(run: Any, at: Service) -> None:
    """Fields are set one by one, with the types that JSON gives them, and nothing is added."""
    accept(at, payloads(8)[:1])
    fields = (
        "prompt=Why?",
        "temperature=0.5",
        "stop=[1, null]",
        "format.type=json",
        "format.strict=true",
        "name=",
    )
    assert run("submit", "--kind", "completion", *[part for one in fields for part in ("--set", one)])[0] == 0
    assert json.loads(at.bodies[0]) == {
        "kind": "completion",
        "input": {
            "prompt": "Why?",
            "temperature": 0.5,
            "stop": [1, None],
            "format": {"type": "json", "strict": True},
            "name": "",
        },
    }


def test_an_input_is_given_whole(run: Any, at: Service, tmp_path: Path) -> None:
    """As JSON, or as the file that @ names; --set and the shorthands add to it."""
    file = tmp_path / "input.json"
    file.write_text('{"prompt": "¿Dónde?", "format": {"type": "json"}}', encoding="utf-8-sig")
    accept(at, payloads(8)[:1])
    for source in (f"@{file}", file.read_text(encoding="utf-8-sig")):
        assert run("submit", "--kind", "completion", "--input", source, "--set", "format.strict=true")[0] == 0
        assert json.loads(at.bodies[-1])["input"] == {
            "prompt": "¿Dónde?",
            "format": {"type": "json", "strict": True},
        }
    assert run("submit", "--input", '{"document_id": "notes"}', "--text", "Hi")[0] == 0
    assert json.loads(at.bodies[-1]) == {"kind": "document", "input": {"document_id": "notes", "text": "Hi"}}


@pytest.mark.parametrize("piped", [False, True])
def test_any_kind_takes_a_file(
    run: Any, at: Service, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, piped: bool
) -> None:
    """A file is uploaded, also one that is piped in, and only a document is named after it."""
    file = tmp_path / "sales.csv"
    file.write_bytes(b"a,b")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a,b")))
    accept(at, payloads(8)[:1])
    at.replies |= {
        "POST /uploads": (201, {"s3_key": "k", "url": f"{at.url}/store", "headers": {}}),
        "PUT /store": (200, {}),
    }
    source = "-" if piped else str(file)
    assert run("submit", source, "--kind", "dataset", "--set", "target=b", "--type", "text/csv")[0] == 0
    upload, put, job = at.bodies
    assert (json.loads(upload)["content_type"], put) == ("text/csv", b"a,b")
    assert json.loads(job) == {"kind": "dataset", "input": {"s3_key": "k", "target": "b"}}


def test_a_document_keeps_the_name_that_it_is_given(run: Any, at: Service, tmp_path: Path) -> None:
    """A document is named after its file only where no name is given, in whatever way."""
    file = tmp_path / "report.pdf"
    file.write_bytes(b"%PDF")
    accept(at, payloads(8)[:1])
    at.replies |= {
        "POST /uploads": (201, {"s3_key": "k", "url": f"{at.url}/store", "headers": {}}),
        "PUT /store": (200, {}),
    }
    for named in (
        ("--document-id", "mine"),
        ("--set", "document_id=mine"),
        ("--input", '{"document_id": "mine"}'),
    ):
        assert run("submit", str(file), *named)[0] == 0
        assert json.loads(at.bodies[-1])["input"] == {"s3_key": "k", "document_id": "mine"}


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (("--set", "a=1", "--set", "a=2"), "a"),
        (("--set", "a=1", "--set", "a.b=2"), "a"),
        (("--input", '{"a": {"b": 1}}', "--set", "a.b=2"), "a.b"),
        (("--input", '{"text": "x"}', "--text", "y"), "text"),
        (("--document-id", "x", "--set", "document_id=x"), "document_id"),
        ((__file__, "--set", "s3_key=k"), "s3_key"),
    ],
)
def test_a_field_from_two_places_is_refused(run: Any, at: Service, arguments: tuple[str, ...], field: str) -> None:
    """Which of the two was meant, nobody knows: the field is named, and nothing is sent."""
    code, out, err = run("submit", *arguments)
    assert (code, out, at.requests) == (2, "", [])
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
def test_an_input_that_cannot_be_read(run: Any, at: Service, option: str, value: str) -> None:
    """What is no JSON object, and what sets no field, is wrong usage: the option is named, and nothing is sent."""
    code, _, err = run("submit", "--kind", "completion", option, value)
    assert (code, at.requests) == (2, [])
    assert f"argument {option}: " in err


def test_something_must_be_submitted(
    run: Any, at: Service, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A kind alone is wrong usage, said before any configuration is looked for."""
    monkeypatch.delenv("RECADO_URL")
    code, _, err = run("submit", "--kind", "completion")
    assert (code, "usage:" in err, "--set" in err) == (2, True, True)


def test_submit_and_wait(run: Any, at: Service) -> None:
    """Without a terminal every event is a line on standard error, and the id stays alone on standard output."""
    log = payloads(5)
    accept(at, log[:1])
    timer = threading.Timer(0.1, at.append, log[1:])
    timer.start()
    code, out, err = run("submit", "--text", "Hi", "--wait")
    timer.join()
    assert (code, out) == (0, f"{JOB_ID}\n")
    assert re.findall(r"document\.\w+", err) == [event["event"] for event in log]
    assert "✓ completed in" in err


@pytest.mark.parametrize(("ending", "code"), [("completed", 0), ("failed", 3), ("canceled", 4)])
@pytest.mark.parametrize(
    "command", [("submit", "--text", "Hi", "--wait"), ("watch", JOB_ID), ("retry", JOB_ID, "--wait")]
)
def test_the_exit_code_says_how_it_ended(
    run: Any, at: Service, ending: str, code: int, command: tuple[str, ...]
) -> None:
    """0 for completed, 3 for failed, 4 for canceled: scripts need not read."""
    accept(at, payloads(3, ending=ending))
    at.replies[f"POST /jobs/{JOB_ID}/retry"] = at.replies["POST /jobs"]
    assert run(*command)[0] == code


def test_a_failure_says_why(run: Any, at: Service) -> None:
    """The reason of a failure is told to people, and to programs as JSON."""
    accept(at, payloads(3, ending="failed"))
    assert "It is a scan." in run("watch", JOB_ID)[2]
    code, out, _ = run("submit", "--text", "Hi", "--wait", "--json")
    assert (code, json.loads(out)["error"]["code"]) == (3, "no_text")


def test_the_time_is_up(run: Any, at: Service) -> None:
    """After --timeout the exit code is 5."""
    accept(at, payloads(8)[:2])
    code, out, err = run("submit", "--text", "Hi", "--wait", "--timeout", "0.3s")
    assert (code, out) == (5, f"{JOB_ID}\n")
    assert "it goes on" in err


LINK = "https://store/result?X-Amz-Signature=1"


@pytest.fixture
def large(at: Service, monkeypatch: pytest.MonkeyPatch) -> str:
    """The link to the result of a job that has ended, which is too large to be in it."""
    view = at.view() | {"result": None, "result_truncated": True}
    view["links"] = {**view["links"], "result": LINK}
    monkeypatch.setattr(at, "view", lambda: view)
    at.replies["POST /jobs"] = (202, view)
    return LINK


@pytest.mark.parametrize("command", [("submit", "--text", "Hi", "--wait"), ("watch", JOB_ID)])
def test_a_large_result_is_linked(run: Any, large: str, command: tuple[str, ...]) -> None:
    """A result that is not in the job is no error: it is said where it is."""
    code, out, err = run(*command)
    assert (code, f"The result is large: {large}" in err) == (0, True)
    assert large not in out
    assert run(*command, "--json")[0] == 0


def test_status_links_a_large_result(run: Any, large: str, person: None) -> None:
    """The link is on a line of its own, so that it can be copied."""
    code, out, _ = run("status", JOB_ID)
    assert code == 0
    assert re.search(r"result +large, see the link", out)
    assert out.splitlines()[-1] == large


def test_a_program_is_told_of_a_large_result_beside_the_status(run: Any, large: str) -> None:
    """The status stays one line; where the result is, is noted on standard error."""
    assert run("status", JOB_ID) == (0, f"{JOB_ID}\tcompleted\tembed\t\t\n", f"The result is large: {large}\n")


def test_status_says_what_is_waited_for(
    run: Any, at: Service, monkeypatch: pytest.MonkeyPatch, person: None
) -> None:
    """A job that nobody works at says why, and since when."""
    at.reset(payloads(8)[:1])
    view = at.view() | {"waiting_for": "rate_limit", "waiting_since": "2026-11-29T08:00:00.000Z"}
    monkeypatch.setattr(at, "view", lambda: view)
    assert re.search(r"waits for +rate_limit since 2026-11-\d\d \d\d:00:00\n", run("status", JOB_ID)[1])
    view |= {"waiting_for": "backoff", "waiting_since": None}
    assert re.search(r"waits for +backoff *\n", run("status", JOB_ID)[1])


def test_watch_gives_lines(run: Any, at: Service) -> None:
    """Events are fields with tabs between, or JSON, one a line."""
    code, out, _ = run("watch", JOB_ID, "--after", "6")
    assert code == 0
    assert [line.split("\t")[1:3] for line in out.splitlines()] == [
        ["7", "document.progressed"],
        ["8", "document.indexed"],
    ]
    _, out, _ = run("watch", JOB_ID, "--json")
    assert [json.loads(line) for line in out.splitlines()] == at.log


def test_watch_shows_people_lines(run: Any, person: None) -> None:
    """What was asked for is on standard output for people as well."""
    code, out, err = run("watch", JOB_ID, "--after", "7")
    assert (code, err) == (0, "")
    assert re.fullmatch(r"\d\d:\d\d:\d\d +8  document\.indexed *\n", out)


def type_text(service: Service) -> None:
    """Let a job's text be made when it is watched, and its last event come after it."""
    *before, last = payloads(4)
    said = [("snapshot", 4, "Once upon"), ("delta", 5, " a\x1b[2J"), ("delta", 6, " time")]
    extra = [{"type": kind, "job_id": JOB_ID, "index": index, "text": text} for kind, index, text in said]
    service.reset(before, extra=extra, then=[last])


def test_watch_types_a_text(run: Any, at: Service, person: None) -> None:
    """People see a text grow where it stands, and no control character of it; events keep lines of their own."""
    type_text(at)
    _, out, _ = run("watch", JOB_ID)
    lines = out.splitlines()
    assert lines[3] == "Once upon a\N{REPLACEMENT CHARACTER}[2J time"
    assert [bool(re.search("document", line)) for line in lines] == [True, True, True, False, True]


def test_watch_gives_pieces_to_programs(run: Any, at: Service) -> None:
    """With --json each piece of a text is a line with a `type`; lines with tabs are events alone."""
    type_text(at)
    _, out, _ = run("watch", JOB_ID, "--json")
    pieces = [line for line in map(json.loads, out.splitlines()) if "type" in line]
    assert [(piece["type"], piece["index"]) for piece in pieces] == [("snapshot", 4), ("delta", 5), ("delta", 6)]
    type_text(at)
    assert len(run("watch", JOB_ID)[1].splitlines()) == 4


@pytest.mark.parametrize(
    ("deltas", "shown"),
    [
        ([("ab", False), ("c", False)], "abc\n"),
        ([("ab", False), ("abc", True)], "abc\n"),
        ([("ab", False), ("x", True), ("y", False)], "ab\nxy\n"),
        ([("ab\n", False)], "ab\n"),
        ([], ""),
    ],
)
def test_a_text_stays_in_place(person: None, deltas: list[tuple[str, bool]], shown: str) -> None:
    """A snapshot adds what is new; a text that was begun again is shown on another line."""
    out = io.StringIO()
    with Typed(Screen(out=Console(file=out))) as text:
        for piece, is_snapshot in deltas:
            text.take(Delta.of({"index": 1, "text": piece, "is_snapshot": is_snapshot}))
    assert out.getvalue() == shown


@pytest.fixture
def followed(at: Service, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Two events of two jobs that happen when all are followed, and Ctrl-C after them."""
    events = [payload(1, "started", "job_a"), payload(1, "indexed", "job_b", status="completed")]
    whole = vars(Operations)["follow"]

    def follow(client: Recado, kind: str, *, on_connected: Callable[[], object]) -> Iterator[JobEvent]:
        def connected() -> None:
            on_connected()
            at.append(*events)

        yield from islice(whole.__get__(client)(kind, on_connected=connected), 2)
        raise KeyboardInterrupt

    monkeypatch.setattr(Recado, "follow", follow)
    return events


def test_follow_gives_lines(run: Any, followed: list[dict[str, Any]]) -> None:
    """Events of all jobs are fields with tabs between, or JSON; Ctrl-C is how it ends, so the exit code is 0."""
    code, out, err = run("follow")
    assert (code, "Following all jobs of the kind document." in err) == (0, True)
    assert [line.split("\t")[1:] for line in out.splitlines()] == [
        ["job_a", "1", "document.started", ""],
        ["job_b", "1", "document.indexed", ""],
    ]
    code, out, _ = run("follow", "--json")
    assert (code, [json.loads(line) for line in out.splitlines()]) == (0, followed)


def test_follow_shows_people_lines(run: Any, followed: list[dict[str, Any]], person: None) -> None:
    """People see which job it is."""
    code, out, _ = run("follow", "--kind", "document")
    assert code == 0
    assert re.fullmatch(r"\d\d:\d\d:\d\d  job_a +1  document\.started *", out.splitlines()[0])


def test_follow_says_which_kinds_there_are(run: Any, at: Service) -> None:
    """A kind that there is not is refused."""
    code, _, err = run("follow", "--kind", "sonnet")
    assert (code, "choose from document" in err) == (1, True)


def test_follow_takes_any_kind(run: Any, followed: list[dict[str, Any]]) -> None:
    """Which kinds there are, the service knows."""
    code, _, err = run("follow", "--kind", "errand")
    assert (code, "Following all jobs of the kind errand." in err) == (0, True)


def test_follow_ends_on_a_terminal(at: Service) -> None:
    """On a terminal Ctrl-C ends it without a complaint."""
    at.reset([])
    code, screen = on_terminal(["follow"], until="Ctrl-C ends it.")
    assert (code, "Traceback" in screen) == (0, False)


def test_status_gives_a_line(run: Any) -> None:
    """The status of a job is one line for programs."""
    assert run("status", JOB_ID) == (0, f"{JOB_ID}\tcompleted\tembed\t\t\n", "")


def test_status_describes(run: Any, at: Service, person: None) -> None:
    """For people it is described, with what went wrong."""
    at.reset(payloads(3, ending="failed"))
    _, out, _ = run("status", JOB_ID)
    assert re.search(r"status +failed", out)
    assert "no_text in validate: It is a scan." in out


@pytest.mark.parametrize(("field", "heading"), [("document_id", "document"), ("training_set", "training set")])
def test_status_names_what_the_job_is_about(
    run: Any, at: Service, monkeypatch: pytest.MonkeyPatch, person: None, field: str, heading: str
) -> None:
    """What a job is about is shown under the name that its kind has for it."""
    view = at.view() | {field: "a b"}
    monkeypatch.setattr(at, "view", lambda: view)
    assert re.search(rf"{heading} +a b *\n", run("status", JOB_ID)[1])


def test_ls(run: Any, at: Service) -> None:
    """Jobs of any kind are listed one a line with what they are about, and the filters that were asked for."""
    jobs: list[dict[str, Any]] = [
        {**at.view(), "document_id": "a\tb"},
        {**at.view(), "kind": "replay", "webhook_id": "wh_1"},
        {**at.view(), "kind": "completion"},
    ]
    at.replies["GET /jobs"] = (200, {"jobs": jobs, "cursor": None})
    code, out, _ = run("ls", "--status", "completed", "--kind", "sonnet", "-n", "3")
    assert code == 0
    assert [line.split("\t") for line in out.splitlines()] == [
        [JOB_ID, "completed", "embed", kind, about, "2026-11-29T08:00:00.000Z"]
        for kind, about in (("document", "a b"), ("replay", "wh_1"), ("completion", ""))
    ]
    assert at.requests == ["GET /v1/jobs?status=completed&kind=sonnet&limit=3"]


def test_cancel(run: Any, at: Service) -> None:
    """Cancel says how the job stands."""
    at.reset(payloads(3, ending="canceled"))
    at.replies[f"POST /jobs/{JOB_ID}/cancel"] = (200, at.view())
    assert run("cancel", JOB_ID) == (0, f"{JOB_ID}\tcanceled\n", "")


# ── documents ────────────────────────────────────────────────────────────────────────────────────────────


def test_search(run: Any, at: Service) -> None:
    """Hits are lines; what is in a document can neither break a line nor move the cursor."""
    at.replies["POST /search"] = (200, {"hits": [HIT]})
    code, out, _ = run("search", "Where?", "-k", "1", "--document", "a.md", "--metadata", "lang=en")
    assert (code, out) == (0, "0.5000\ta.md\t0\t7\t\tone two\N{REPLACEMENT CHARACTER}[31m\n")
    assert json.loads(at.bodies[0]) == {
        "query": "Where?",
        "top_k": 1,
        "filter": {"document_ids": ["a.md"], "metadata": {"lang": "en"}},
    }


def test_search_for_people(run: Any, at: Service, person: None) -> None:
    """People see the document and the score above the text, and no escape sequence of it."""
    at.replies["POST /search"] = (200, {"hits": [HIT]})
    _, out, _ = run("search", "Where?")
    assert out.startswith("1. a.md  0.500\none two")
    assert "\x1b" not in out


def test_documents(run: Any, at: Service) -> None:
    """Documents are listed, and one can be removed, whatever its name."""
    document = {"version": "v", "job_id": "j", "chunks": 3, "characters": 9, "media_type": "text/plain"}
    document |= {"document_id": "a.md", "indexed_at": "2026-11-29T08:00:00.000Z"}
    at.replies |= {"GET /documents": (200, {"documents": [document]}), "DELETE /documents/a%2Fb": (200, None)}
    assert run("documents")[1] == "a.md\t3\t9\ttext/plain\t2026-11-29T08:00:00.000Z\n"
    assert run("documents", "--delete", "a/b")[0] == 0


# ── webhooks ─────────────────────────────────────────────────────────────────────────────────────────────


def test_webhooks(run: Any, at: Service) -> None:
    """Endpoints are added, listed, rotated and deleted; the secret is on standard output."""
    at.replies |= {
        "POST /webhooks": (201, HOOK),
        "GET /webhooks": (200, {"webhooks": [HOOK]}),
        "POST /webhooks/wh_1/rotate-secret": (200, HOOK),
        "DELETE /webhooks/wh_1": (200, None),
    }
    assert run("webhooks", "add", "https://me/", "--event", "document.*", "--ordered")[1] == (
        f"wh_1\t{HOOK['secret']}\n"
    )
    assert json.loads(at.bodies[0]) == {"url": "https://me/", "events": ["document.*"], "ordered": True}
    assert run("webhooks", "ls")[1] == "wh_1\tenabled\thttps://me/\t*\t\n"
    assert run("webhooks", "rotate", "wh_1", "--grace", "1h")[1] == f"wh_1\t{HOOK['secret']}\n"
    assert json.loads(at.bodies[2]) == {"grace_seconds": 3600}
    assert run("webhooks", "rm", "wh_1")[0] == 0


def test_deliveries(run: Any, at: Service) -> None:
    """What was sent is listed and can be sent again; a test that fails has exit code 1."""
    at.replies |= {
        "GET /webhooks/wh_1/deliveries": (200, {"deliveries": [SENT], "cursor": None}),
        "POST /deliveries/dlv_1/redeliver": (202, SENT),
        "POST /webhooks/wh_1/test": (200, SENT),
    }
    line = "dlv_1\tfailed\tdocument.indexed\t2\t503\t2026-11-29T08:00:00.000Z\n"
    assert run("webhooks", "deliveries", "wh_1", "--status", "failed")[1] == line
    assert run("webhooks", "redeliver", "dlv_1")[:2] == (0, "dlv_1\tfailed\n")
    assert run("webhooks", "test", "wh_1")[:2] == (1, "dlv_1\tfailed\t503 after 31 ms\n")


# ── listen ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def listened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Where `listen` serves; it ends as soon as three requests have been made to it."""
    urls: list[str] = []
    serve = _listen.listening

    def listening(take: Any, *, port: int) -> Any:
        return _noting(serve(take, port=0), urls)

    monkeypatch.setattr(_listen, "listening", listening)
    monkeypatch.setattr(_commands, "_until_interrupted", lambda: _send_three(urls[0]))
    return urls


class _noting:
    def __init__(self, inner: Any, urls: list[str]) -> None:
        self._inner, self._urls = inner, urls

    def __enter__(self) -> str:
        self._urls.append(self._inner.__enter__())
        return self._urls[-1]

    def __exit__(self, *error: Any) -> None:
        self._inner.__exit__(*error)


def _send_three(url: str) -> int:
    """One event, the same again, and one that somebody made up."""
    from standardwebhooks.webhooks import Webhook

    body, now = json.dumps(payload(1, "uploaded")), time.time()
    from datetime import UTC, datetime

    signature = Webhook(HOOK["secret"]).sign("evt_1", datetime.fromtimestamp(int(now), UTC), body)  # type: ignore[arg-type]
    headers = {"webhook-id": "evt_1", "webhook-timestamp": str(int(now)), "webhook-signature": signature}
    forged = {**headers, "webhook-id": "evt_2"}
    statuses = [httpx2.post(url, content=body, headers=each).status_code for each in (headers, headers, forged)]
    assert statuses == [204, 204, 403]
    assert httpx2.get(url).status_code == 501
    return 0


def test_listen_verifies_and_prints(run: Any, listened: list[str]) -> None:
    """With a secret, every webhook is verified, answered and printed, and what came before is marked."""
    code, out, err = run("webhooks", "listen", "--secret", HOOK["secret"], "--json")
    assert code == 0
    lines = [json.loads(line) for line in out.splitlines()]
    assert [(line["verified"], line["again"]) for line in lines] == [(True, False), (True, True), (False, False)]
    assert lines[0]["payload"]["event"] == "document.uploaded"
    assert lines[2]["problem"].startswith("no_matching_signature")
    assert listened[0] in err


def test_listen_makes_its_own_endpoint(run: Any, at: Service, listened: list[str]) -> None:
    """Without a secret an endpoint is made for the time being, and deleted afterwards."""
    at.replies |= {"POST /webhooks": (201, HOOK), "DELETE /webhooks/wh_1": (200, None)}
    code, out, _ = run("webhooks", "listen", "--event", "document.*")
    assert code == 0
    assert out.count("✓ verified") == 2
    assert out.count("✗ not verified") == 1
    assert [line.partition("?")[0] for line in at.requests] == ["POST /v1/webhooks", "DELETE /v1/webhooks/wh_1"]
    assert json.loads(at.bodies[0])["url"] == listened[0]


def test_listen_helps_where_it_cannot_be_reached(run: Any, at: Service, listened: list[str]) -> None:
    """Where the service calls no local address, the error says what to do."""
    problem = {"type": "t", "title": "invalid request", "detail": "127.0.0.1 is private.", "field": "url"}
    at.replies["POST /webhooks"] = (422, problem)
    code, _, err = run("webhooks", "listen")
    assert code == 1
    assert "--public-url" in err


# ── waiting, login, trouble ──────────────────────────────────────────────────────────────────────────────


def test_advise(run: Any) -> None:
    """The advice is for the length of the job."""
    assert run("advise", "--can-receive-http", "--duration", "2h")[1].startswith("webhook\t1\t")
    assert json.loads(run("advise", "--json")[1])["naive"]["requests"] == 121


def test_cost(run: Any) -> None:
    """Every way of waiting has a line."""
    _, out, _ = run("cost", "47m", "--interval", "30s")
    assert "short_polling\t95\t93\t97.9 %\t30 s" in out.splitlines()
    assert len(out.splitlines()) == 7


@pytest.mark.parametrize(
    ("text", "seconds"), [("2h", 7200), ("47m", 2820), ("1h30m", 5400), ("90", 90), ("1.5s", 1.5), ("1d", 86_400)]
)
def test_lengths_of_time(text: str, seconds: float) -> None:
    """Times are written as people write them."""
    assert cli._length(text) == seconds


@pytest.mark.parametrize(
    "arguments", [("cost", "soon"), ("cost", "0"), ("ls", "-n", "0"), (), ("submit",), ("dance",)]
)
def test_wrong_usage(run: Any, arguments: tuple[str, ...]) -> None:
    """What cannot be understood has exit code 2."""
    assert run(*arguments)[0] == 2


def test_wrong_metadata(run: Any) -> None:
    """Metadata without a value is wrong usage."""
    code, _, err = run("submit", "--text", "Hi", "--metadata", "lang")
    assert (code, "NAME=VALUE" in err) == (2, True)


def test_login_tries_and_writes(run: Any, at: Service, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The key is tried before it is written, into a file of one's own; afterwards no variable is needed."""
    at.replies["GET /jobs"] = (200, {"jobs": [], "cursor": None})
    monkeypatch.setattr(sys, "stdin", io.StringIO("rk_test\n"))
    assert run("login", "--url", at.url)[0] == 0
    file = tmp_path / "recado" / "config.toml"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    monkeypatch.delenv("RECADO_URL")
    monkeypatch.delenv("RECADO_API_KEY")
    assert run("status", JOB_ID)[0] == 0


def test_login_refuses_a_wrong_key(run: Any, at: Service, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A key that is not accepted is not written."""
    monkeypatch.setattr(sys, "stdin", io.StringIO("rk_wrong\n"))
    assert run("login", "--url", at.url)[0] == 6
    assert not (tmp_path / "recado").exists()


def test_without_login(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without URL and key the exit code is 6, and the message says what to do."""
    monkeypatch.delenv("RECADO_URL")
    monkeypatch.delenv("RECADO_API_KEY")
    code, out, err = run("ls")
    assert (code, out) == (6, "")
    assert "recado login" in err


def test_problems_are_told(run: Any) -> None:
    """A refusal is a line for people, and the problem as JSON for programs."""
    code, out, err = run("status", "job_other", "--json")
    assert code == 1
    assert json.loads(out)["error"]["type"] == "urn:recado:problem:not_found"
    assert "There is no such job." in err


def test_a_missing_file_is_named(run: Any) -> None:
    """A file that is not there is named."""
    assert run("submit", "nowhere.pdf") == (1, "", "recado: nowhere.pdf: No such file or directory\n")


def test_every_command_has_json_and_help(run: Any) -> None:
    """Every command takes --json and explains itself; the exit codes are in the help."""
    assert "the job was canceled" in run("--help")[1]
    top = cli.parser()
    for names in _commands_of(top):
        assert "--json" in run(*names, "--help")[1]


def _commands_of(parser: Any) -> Iterator[tuple[str, ...]]:
    for action in parser._actions:
        for name, inner in (action.choices if isinstance(action.choices, dict) else {}).items():
            below = list(_commands_of(inner))
            yield from [(name, *rest) for rest in below] or [(name,)]


# ── the screen ───────────────────────────────────────────────────────────────────────────────────────────


def test_colours_can_be_forced_without_breaking_pipes(
    run: Any, at: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FORCE_COLOR, which CI systems set, does not make a pipe a person."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    accept(at, payloads(8))
    assert run("submit", "--text", "Hi")[1] == f"{JOB_ID}\n"


@pytest.mark.parametrize("text", ["\x1b[2J", "a\rb", "\u202eabc", "\x9b31m", "\x07"])
def test_no_text_moves_the_cursor(text: str) -> None:
    """Control characters of documents and services are shown as such."""
    assert "\N{REPLACEMENT CHARACTER}" in clean(text)
    assert not set(clean(text)) & {"\x1b", "\r", "\u202e", "\x9b", "\x07"}


def shown(*events: dict[str, Any], expected: str | None = None) -> list[str]:
    """What the bars look like in the end, line by line."""
    console = Console(file=io.StringIO(), force_terminal=True, width=100, color_system=None, legacy_windows=False)
    bars = Bars(console)
    for event in events:
        if bars.take(JobEvent.of(event)) and expected:
            bars.expect(
                JobStatus.of({"job_id": "j", "status": "running", "stage": "", "expected_completion": expected})
            )
    console.print(bars.progress.get_renderable())
    return [line for line in console.file.getvalue().splitlines() if line.strip()]  # type: ignore[attr-defined]


def at_stage(number: int, verb: str, stage: str, status: str = "running", **facts: Any) -> dict[str, Any]:
    return payload(number, verb, status=status, stage=stage) | facts


def test_each_stage_has_a_bar() -> None:
    """Stages that are over are ticked, the one that runs shows how far it is; events' verbs do not matter."""
    lines = shown(
        at_stage(1, "ordered", "queued", "queued"),
        at_stage(2, "begun", "chop"),
        at_stage(3, "tasted", "chop"),
        at_stage(4, "chopped", "simmer", pieces=99, document_id="stew"),
        at_stage(5, "progressed", "simmer", done=4, total=8),
    )
    assert [line.split()[1] for line in lines] == ["queued", "chop", "simmer"]
    assert lines[1].startswith("✓")
    assert "pieces=99" in lines[1]
    assert "stew" not in lines[1]
    assert "4/8" in lines[2]
    assert not lines[2].startswith("✓")


def test_the_last_stage_is_ticked() -> None:
    """When the job has completed, every bar is ticked, whatever stage it names."""
    lines = shown(at_stage(1, "begun", "chop"), at_stage(2, "served", "notify", "completed", plates=2))
    assert [line.split()[:2] for line in lines] == [["✓", "chop"]]
    assert "plates=2" in lines[0]


@pytest.mark.parametrize("status", ["failed", "canceled"])
def test_a_failed_stage_is_crossed(status: str) -> None:
    """Where it ended badly, by its status, there is a cross, and nothing begins after it."""
    *_, last = shown(
        at_stage(1, "ordered", "queued", "queued"), at_stage(2, "b", "chop"), at_stage(3, "c", "chop", status)
    )
    assert last.startswith("✗ chop")
    assert status in last


def test_a_stage_that_is_tried_again_says_so() -> None:
    """A stage that is begun again, while the job goes on running, keeps its bar and shows the attempt."""
    lines = shown(at_stage(1, "begun", "chop"), at_stage(2, "retried", "chop", attempts=2))
    assert len(lines) == 1
    assert "attempt 2" in lines[0]


def test_a_job_that_is_queued_again_says_why_and_until_when() -> None:
    """A failed attempt is crossed, with its reason; then it is shown when the next begins, and which one it is."""
    error = {"code": "provider_timeout", "message": "…", "stage": "write"}
    queued = at_stage(
        3, "retried", "queued", "queued", attempts=1, error=error, not_before="2026-11-29T08:00:05.000Z"
    )
    log = [
        at_stage(1, "requested", "queued", "queued"),
        at_stage(2, "started", "write", attempts=1),
        queued,
        at_stage(4, "started", "write", attempts=2),
    ]
    waiting = shown(*log[:3])
    assert [line.split()[:2] for line in waiting] == [
        ["✓", "queued"],
        ["✗", "write"],
        [waiting[2].split()[0], "queued"],
    ]
    assert "attempt 1: provider_timeout" in waiting[1]
    assert re.search(r"tried again at \d\d:00:05", waiting[2])
    *_, running = shown(*log)
    assert running.split()[1] == "write"
    assert "attempt 2" in running


def test_events_without_a_stage_have_one_bar() -> None:
    """Events that were logged before they had a stage do no harm."""
    log = [without_status(event) for event in payloads(5)]
    assert [line.split()[1] for line in shown(*log)] == ["work"]


@given(
    st.lists(
        st.fixed_dictionaries(
            {"stage": st.sampled_from(["", "queued", "a", "b"]), "status": st.sampled_from(["", *OPEN, *FINAL])},
            optional={
                "done": st.integers(0, 9) | st.none(),
                "total": st.integers(0, 9) | st.text(max_size=2),
                "attempts": st.integers(0, 3) | st.none(),
                "error": st.none() | st.just({}) | st.just({"code": "c"}),
                "not_before": st.none() | st.text(max_size=3),
            },
        ),
        max_size=8,
    )
)
def test_no_log_breaks_the_bars(log: list[dict[str, Any]]) -> None:
    """Whatever stages, statuses and numbers come in whatever order, there are never more bars than events."""
    events = [payload(number, "x") | facts for number, facts in enumerate(log, 1)]
    assert len(shown(*events)) <= len(log)


def test_the_expected_end_is_shown() -> None:
    """Where the service expects an end, the time left is shown."""
    assert "left" in shown(payload(1, "uploaded"), expected="2099-01-01T00:00:00Z")[0]
    assert "any moment" in shown(payload(1, "uploaded"), expected="2020-01-01T00:00:00Z")[0]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.25, "0.2 s"), (3, "3 s"), (42.4, "42 s"), (200, "3:20 min"), (7500, "2:05 h")]
)
def test_durations(seconds: float, text: str) -> None:
    """Durations are short."""
    assert _screen.duration(seconds) == text


def test_control_c_detaches(at: Service) -> None:
    """On a terminal, Ctrl-C leaves the job alone and says how to come back."""
    accept(at, payloads(8)[:2])
    code, screen = on_terminal(["submit", "--text", "Hi", "--wait"], until="embed")
    assert code == 130
    assert "Detached; the job goes on." in screen
    assert f"recado watch {JOB_ID}" in screen
    assert "Traceback" not in screen


def on_terminal(arguments: list[str], *, until: str) -> tuple[int, str]:
    """Run it on a terminal of its own, and interrupt it once this is to be read."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "recado", *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        # where tests run in the background it is ignored
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        env={**os.environ, "PYTHONPATH": str(CLIENT), "TERM": "xterm"},
    )
    os.close(theirs)
    screen = read_until(ours, until)
    process.send_signal(signal.SIGINT)
    screen += read_until(ours, None)
    os.close(ours)
    return process.wait(30), screen


def read_until(descriptor: int, text: str | None) -> str:
    """What comes, until this is in it, or nobody is left to say anything."""
    screen, end = b"", time.monotonic() + 60
    while time.monotonic() < end and (text is None or text.encode() not in screen):
        if select.select([descriptor], [], [], 0.2)[0]:
            try:
                screen += os.read(descriptor, 65536)
            except OSError:  # the other end is closed
                break
    return screen.decode(errors="replace")


def test_a_reader_may_have_seen_enough(at: Service) -> None:
    """`recado … | head` ends without a complaint."""
    at.replies["POST /search"] = (200, {"hits": [{**HIT, "text": "x" * 1000}] * 2000})
    command = f"{sys.executable} -m recado search Where? | head -n 1"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(CLIENT)},
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 1


@given(value=st.text(), other=st.integers())
def test_facts_are_one_line(value: str, other: int) -> None:
    """Whatever a job came to, its facts are one line without tabs, and a long text is cut."""
    line = facts({"text": value, "words": other})
    assert line.splitlines() in ([line], [])
    assert "\t" not in line
    assert line.startswith("text=")
    assert line.endswith(f" words={other}")
    assert len(line) <= 240
