"""local.engine: isolation and errors. End-to-end tests cover the running engine."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from local import engine, toolchain


def test_the_engine_has_no_credentials_of_the_caller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Functions inherit the environment of the engine."""
    monkeypatch.setenv("AWS_PROFILE", "production")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "of-the-caller")
    environment = engine._environment(tmp_path, 4566)
    assert not {"AWS_PROFILE", "AWS_SECRET_ACCESS_KEY"} & set(environment)
    assert environment["AWS_ENDPOINT_URL"] == "http://127.0.0.1:4566"
    assert environment["HOME"] == str(tmp_path / "home")


@pytest.mark.parametrize("record", [None, "not json", json.dumps({"port": 9, "pid": 2**22 + 1})])
def test_attach_finds_no_engine_if_none_runs(tmp_path: Path, record: str | None) -> None:
    """There is no record, it is malformed, or its process has ended."""
    if record is not None:
        (tmp_path / "engine.json").write_text(record)
    assert engine.attach(tmp_path) is None


@pytest.mark.enable_socket
def test_an_engine_that_does_not_start_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error has the last lines of the log."""
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\necho no such module\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setattr(toolchain, "engine_python", lambda: program)
    with pytest.raises(engine.EngineFailed, match="no such module"):
        engine.start(tmp_path / "workspace")


def test_credentials_are_for_the_engine_only(tmp_path: Path) -> None:
    """An SDK with these variables reads no profile of the caller."""
    credentials = engine.Engine(port=4566, pid=0, workspace=tmp_path).credentials()
    assert credentials["AWS_ENDPOINT_URL"] == "http://127.0.0.1:4566"
    assert credentials["AWS_CONFIG_FILE"] == credentials["AWS_SHARED_CREDENTIALS_FILE"] == os.devnull
