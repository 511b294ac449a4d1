"""local.deploy: the arguments and the environment of the CDK CLI, and its results."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from local import deploy, toolchain
from local.engine import Engine


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return Engine(port=1, pid=0, workspace=tmp_path)


def stub_cli(monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Replace the CDK CLI by a shell script with the same arguments and environment."""
    monkeypatch.setattr(toolchain, "cdk", lambda: ["/bin/sh", "-c", script, "cdk"])
    monkeypatch.setattr(toolchain, "path_with_node", lambda: os.defpath)


@pytest.fixture
def python(monkeypatch: pytest.MonkeyPatch) -> Path:
    python = Path("/opt/a project/python")
    monkeypatch.setattr(toolchain, "project_python", lambda: python)
    return python


def test_every_override_is_in_cdk_json() -> None:
    """An override with another name would have no effect."""
    knobs = json.loads((toolchain.ROOT / "cdk.json").read_text())["context"]
    assert set(deploy.OVERRIDES) <= set(knobs)


def test_overrides_become_options_of_the_cli() -> None:
    """Each becomes `-c key=value`. Those of the caller are the last, so they take precedence."""
    options = deploy.as_options(deploy.overrides(Path("/code"), {"log_level": "DEBUG"}))
    assert options[:2] == ["-c", "runtime=provided.al2023"]
    assert "code_directory=/code" in options
    assert options[-2:] == ["-c", "log_level=DEBUG"]


@pytest.mark.parametrize("native", [True, False])
def test_code_is_lambdas_and_a_bootstrap(
    tmp_path: Path, python: Path, monkeypatch: pytest.MonkeyPatch, native: bool
) -> None:
    """The asset has all handlers and an executable `bootstrap` with the project's Python, and no old files.

    If awslambdaric has no native client, it also has the client in Python.
    """
    monkeypatch.setattr(deploy, "_has_native_runtime_client", lambda: native)
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "stale.py").touch()
    code = deploy.build_code(tmp_path / "code")
    handlers = {path.parent.name for path in (toolchain.ROOT / "lambdas").rglob("handler.py")}
    assert handlers
    assert {path.parent.name for path in code.rglob("handler.py")} == handlers
    assert f"exec '{python}' -m awslambdaric \"$_HANDLER\"" in (code / "bootstrap").read_text()
    assert os.access(code / "bootstrap", os.X_OK)
    assert (code / "runtime_client.py").exists() is not native
    assert not [path for path in code.rglob("*") if path.name in {"__pycache__", "requirements", "stale.py"}]


def test_cli_has_the_environment_of_the_engine(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """No profile, key, proxy or home directory of the caller is used, so the deployment stays local."""
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL_S3", "HTTPS_PROXY", "NODE_OPTIONS"):
        monkeypatch.setenv(name, "of-the-caller")
    stub_cli(monkeypatch, "env; pwd")
    deploy.bootstrap(engine)
    seen = (engine.workspace / "cdk-bootstrap.log").read_text()
    assert "of-the-caller" not in seen
    assert "AWS_ENDPOINT_URL=http://127.0.0.1:1\n" in seen
    assert f"HOME={engine.workspace}/home\n" in seen
    assert seen.endswith(f"{engine.workspace}\n")


def test_an_error_of_the_cli_has_its_output(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error has the last lines of the output, and the path of the log."""
    stub_cli(monkeypatch, "echo 'Unrecognized resource types: [X]'; exit 1")
    with pytest.raises(deploy.DeployFailed, match=r"cdk bootstrap failed .*cdk-bootstrap\.log[^$]*Unrecognized"):
        deploy.bootstrap(engine)
