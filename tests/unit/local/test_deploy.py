"""local.deploy: what is given to the CDK CLI, and what comes back."""

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
    """Replace the CDK CLI by a shell script that sees the same arguments and environment."""
    monkeypatch.setattr(toolchain, "cdk", lambda: ["/bin/sh", "-c", script, "cdk"])
    monkeypatch.setattr(toolchain, "path_with_node", lambda: os.defpath)


@pytest.fixture
def python(monkeypatch: pytest.MonkeyPatch) -> Path:
    python = Path("/opt/a project/python")
    monkeypatch.setattr(toolchain, "project_python", lambda: python)
    return python


def test_every_override_is_a_knob_of_cdk_json() -> None:
    """An override that no knob reads would change nothing and say so nowhere."""
    knobs = json.loads((toolchain.ROOT / "cdk.json").read_text())["context"]
    assert set(deploy.OVERRIDES) <= set(knobs)


def test_overrides_become_options_of_the_cli() -> None:
    """`-c key=value` each, the caller's own last."""
    options = deploy.as_options(deploy.overrides(Path("/code"), {"log_level": "DEBUG"}))
    assert options[:2] == ["-c", "runtime=provided.al2023"]
    assert "code_directory=/code" in options
    assert options[-2:] == ["-c", "log_level=DEBUG"]


@pytest.mark.parametrize("native", [True, False])
def test_code_is_lambdas_and_a_bootstrap(
    tmp_path: Path, python: Path, monkeypatch: pytest.MonkeyPatch, native: bool
) -> None:
    """The asset holds every handler, an executable `bootstrap` with the project's Python, and nothing stale.

    Where awslambdaric has no native part, ours is beside it.
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


def test_outputs_of_all_stacks_are_returned(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """One dictionary, whatever stack an output is of."""
    outputs = '{"Storage": {"Table": "t"}, "Service": {"ApiUrl": "u"}}'
    stub_cli(monkeypatch, f"echo '{outputs}' > {engine.workspace}/outputs.json")
    assert deploy.deploy(engine, Path("/assembly")) == {"Table": "t", "ApiUrl": "u"}


def test_cli_sees_the_engine_and_nothing_of_the_caller(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """No profile, key, proxy or home of the caller's can send a local deployment anywhere else."""
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL_S3", "HTTPS_PROXY", "NODE_OPTIONS"):
        monkeypatch.setenv(name, "the-callers")
    stub_cli(monkeypatch, "env; pwd")
    deploy.bootstrap(engine)
    seen = (engine.workspace / "cdk-bootstrap.log").read_text()
    assert "the-callers" not in seen
    assert "AWS_ENDPOINT_URL=http://127.0.0.1:1\n" in seen
    assert f"HOME={engine.workspace}/home\n" in seen
    assert seen.endswith(f"{engine.workspace}\n")


def test_failure_of_the_cli_is_told_in_its_own_words(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error carries what the CLI printed last, and where the rest is."""
    stub_cli(monkeypatch, "echo 'Unrecognized resource types: [X]'; exit 1")
    with pytest.raises(deploy.DeployFailed, match=r"cdk bootstrap failed .*cdk-bootstrap\.log[^$]*Unrecognized"):
        deploy.bootstrap(engine)
