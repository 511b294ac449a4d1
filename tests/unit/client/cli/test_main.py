"""Errors, exit codes, and the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from recado import cli
from recado._cli.arguments import parse_duration
from recado.client import Recado
from tests.unit.client.cli.conftest import Run
from tests.unit.client.cli.terminal import CLIENT
from tests.unit.client.stub_http import DELIVERY, HIT, JOB, WEBHOOK
from tests.unit.client.stub_service import StubService

pytestmark = pytest.mark.enable_socket
STATUS = {"job_id": "job_1", "status": "running", "stage": "chunk", "sequence": 4}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("2h", 7200), ("47m", 2820), ("1h30m", 5400), ("90", 90), ("1.5s", 1.5), ("1d", 86_400)],
)
def test_durations_have_units(text: str, seconds: float) -> None:
    """A number without a unit is seconds."""
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "arguments",
    [("cost", "soon"), ("cost", "0"), ("ls", "-n", "0"), ("ls", "-n", "x"), (), ("submit",), ("dance",)],
)
def test_invalid_command_lines(run: Run, arguments: tuple[str, ...]) -> None:
    """An invalid command line has the exit code 2."""
    assert run(*arguments)[0] == 2


def test_metadata_needs_a_value(run: Run) -> None:
    """Metadata without a value is a usage error."""
    code, _, err = run("submit", "--text", "Hi", "--metadata", "lang")
    assert (code, "NAME=VALUE" in err) == (2, True)


def test_without_a_configuration(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The exit code is 6, and the message says what to do."""
    monkeypatch.delenv("RECADO_URL")
    monkeypatch.delenv("RECADO_API_KEY")
    code, out, err = run("ls")
    assert (code, out) == (6, "")
    assert "recado login" in err


def test_errors_of_the_service_are_printed(run: Run) -> None:
    """An error is a line for people, and with --json the problem document."""
    code, out, err = run("status", "job_other", "--json")
    assert code == 1
    assert json.loads(out)["error"]["type"] == "urn:recado:problem:not_found"
    assert "There is no such job." in err


@pytest.mark.parametrize(
    ("request_line", "response", "printed", "arguments"),
    [
        ("POST /jobs", JOB, JOB, ("submit", "--text", "Hi")),
        ("GET /jobs/job_1", JOB, JOB | STATUS, ("status", "job_1")),
        ("POST /jobs/job_1/cancel", JOB, JOB, ("cancel", "job_1")),
        ("GET /jobs", {"jobs": [JOB], "cursor": None}, JOB, ("ls",)),
        ("POST /search", {"hits": [HIT]}, HIT, ("search", "Where?")),
        ("POST /webhooks", WEBHOOK, WEBHOOK, ("webhooks", "add", "https://me/")),
        ("POST /webhooks/wh_1/test", DELIVERY, DELIVERY, ("webhooks", "test", "wh_1")),
    ],
)
def test_json_is_printed_as_the_service_sends_it(
    run: Run, service: StubService, request_line: str, response: Any, printed: Any, arguments: tuple[str, ...]
) -> None:
    """With --json, each object is one line with all of its fields."""
    service.responses |= {"GET /jobs/job_1/status": (200, STATUS), request_line: (200, response)}
    assert [json.loads(line) for line in run(*arguments, "--json")[1].splitlines()] == [printed]


def test_a_missing_file_is_named(run: Run) -> None:
    """The error contains the name of the file."""
    assert run("submit", "nowhere.pdf") == (1, "", "recado: nowhere.pdf: No such file or directory\n")


def test_ctrl_c_has_an_exit_code(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The exit code is 130, as in shells."""

    def interrupt(_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(Recado, "documents", interrupt)
    assert run("documents") == (130, "", "Interrupted.\n")


def test_every_command_has_json_and_help(run: Run) -> None:
    """The help of `recado` lists the exit codes."""
    assert "the job was canceled" in run("--help")[1]
    for names in commands_of(cli.parser()):
        assert "--json" in run(*names, "--help")[1]


def commands_of(parser: Any) -> Iterator[tuple[str, ...]]:
    for action in parser._actions:
        for name, inner in (action.choices if isinstance(action.choices, dict) else {}).items():
            below = list(commands_of(inner))
            yield from [(name, *rest) for rest in below] or [(name,)]


def test_a_closed_pipe_is_not_an_error(configured: StubService) -> None:
    """`recado … | head` ends without an error message."""
    configured.responses["POST /search"] = (200, {"hits": [{**HIT, "text": "x" * 1000}] * 2000})
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
