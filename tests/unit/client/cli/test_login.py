"""The command login."""

from __future__ import annotations

import getpass
import io
import json
import os
import stat
import sys
from pathlib import Path

import pytest

from recado._cli import login
from tests.unit.client.cli.conftest import Run
from tests.unit.client.stub_service import JOB_ID, StubService

pytestmark = pytest.mark.enable_socket


@pytest.fixture
def file(configured: StubService) -> Path:
    """The configuration file, which does not exist yet. The service accepts the key rk_test."""
    configured.responses["GET /jobs"] = (200, {"jobs": [], "cursor": None})
    return Path(os.environ["XDG_CONFIG_HOME"]) / "recado" / "config.toml"


def test_login_checks_and_stores_the_key(
    run: Run, service: StubService, monkeypatch: pytest.MonkeyPatch, file: Path
) -> None:
    """Only the owner can read the file. Later commands need no environment variables."""
    monkeypatch.setattr(sys, "stdin", io.StringIO("rk_test\n"))
    assert run("login", "--url", service.url)[0] == 0
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    monkeypatch.delenv("RECADO_URL")
    monkeypatch.delenv("RECADO_API_KEY")
    assert run("status", JOB_ID)[0] == 0


def test_login_prints_json(run: Run, service: StubService, monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    """With --json the URL and the file are printed, but not the key."""
    monkeypatch.setattr(sys, "stdin", io.StringIO("rk_test\n"))
    assert json.loads(run("login", "--json")[1]) == {"url": service.url, "file": str(file)}


def test_login_asks_on_a_terminal(
    run: Run, service: StubService, monkeypatch: pytest.MonkeyPatch, file: Path
) -> None:
    """It asks for the URL, and for the key without an echo."""
    monkeypatch.delenv("RECADO_URL")
    monkeypatch.setattr(login, "_has_terminal", lambda: True)
    monkeypatch.setattr("builtins.input", lambda _: service.url)
    monkeypatch.setattr(getpass, "getpass", lambda _: "rk_test")
    assert run("login")[0] == 0
    assert file.exists()


def test_login_refuses_an_invalid_key(
    run: Run, service: StubService, monkeypatch: pytest.MonkeyPatch, file: Path
) -> None:
    """An invalid key is not stored."""
    del service.responses["GET /jobs"]
    monkeypatch.setattr(sys, "stdin", io.StringIO("rk_wrong\n"))
    assert run("login", "--url", service.url)[0] == 6
    assert not file.exists()


@pytest.mark.parametrize(
    ("url", "key", "message"), [("", "rk_test\n", "--url"), ("https://host", "\n", "API key")]
)
def test_login_needs_a_url_and_a_key(
    run: Run, monkeypatch: pytest.MonkeyPatch, file: Path, url: str, key: str, message: str
) -> None:
    """Without a terminal, URL and key must be given."""
    monkeypatch.setenv("RECADO_URL", url)
    monkeypatch.setattr(sys, "stdin", io.StringIO(key))
    code, _, err = run("login")
    assert (code, message in err, file.exists()) == (6, True, False)
