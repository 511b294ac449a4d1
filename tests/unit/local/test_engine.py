"""local.engine: addresses, isolation and failures; the running engine itself is an end-to-end test."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from local import engine, toolchain


def test_api_is_addressed_by_path(tmp_path: Path) -> None:
    """A host name of its own would need a resolver that knows it."""
    running = engine.Engine(port=4566, pid=0, workspace=tmp_path)
    assert running.api_url("1ed518a9", "v1") == "http://127.0.0.1:4566/_aws/execute-api/1ed518a9/v1"


def test_functions_inherit_nothing_of_the_callers_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Functions see all that the engine sees, so it must not see the caller's credentials."""
    monkeypatch.setenv("AWS_PROFILE", "production")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "the-callers")
    environment = engine._environment(tmp_path, 4566)
    assert not {"AWS_PROFILE", "AWS_SECRET_ACCESS_KEY"} & set(environment)
    assert environment["AWS_ENDPOINT_URL"] == "http://127.0.0.1:4566"
    assert environment["HOME"] == str(tmp_path / "home")


@pytest.mark.parametrize("record", [None, "not json", json.dumps({"port": 9, "pid": 2**22 + 1})])
def test_no_engine_is_attached_to_where_none_runs(tmp_path: Path, record: str | None) -> None:
    """Without a record, with a broken one, or with that of a process that is gone, there is none."""
    if record is not None:
        (tmp_path / "engine.json").write_text(record)
    assert engine.attach(tmp_path) is None


@pytest.mark.enable_socket
def test_engine_that_does_not_start_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error ends with the last lines of the log."""
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\necho no such module\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setattr(toolchain, "engine_python", lambda: program)
    with pytest.raises(engine.EngineFailed, match="no such module"):
        engine.start(tmp_path / "workspace")


def test_credentials_name_an_engine_and_no_file(tmp_path: Path) -> None:
    """With them, an SDK reads no profile and asks no metadata service."""
    credentials = engine.Engine(port=4566, pid=0, workspace=tmp_path).credentials()
    assert credentials["AWS_ENDPOINT_URL"] == "http://127.0.0.1:4566"
    assert credentials["AWS_CONFIG_FILE"] == credentials["AWS_SHARED_CREDENTIALS_FILE"] == os.devnull
