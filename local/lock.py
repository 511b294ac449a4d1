"""`make lock`: lock the packages of each layer, transitive ones too, with the hashes of all their files.

A locked file serves every Python and machine that Lambda offers. Locked versions are kept as long as they satisfy
the requirements. Every function has the layer `base`: the other layers have its versions and none of its packages.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from local import toolchain

REQUIREMENTS = toolchain.ROOT / "lambdas" / "requirements"
OLDEST_PYTHON = "3.11"
OPTIONS = ("--universal", "--python-version", OLDEST_PYTHON, "--generate-hashes", "--no-annotate", "--no-header")


def main() -> None:
    base = REQUIREMENTS / "base.txt"
    _lock(base)
    for requirements in sorted(set(REQUIREMENTS.glob("*.txt")) - {base}):
        _lock(requirements, *_without(_locked(base)))


def _lock(requirements: Path, *options: str) -> None:
    locked = _locked(requirements)
    uv = str(toolchain.PROJECT_VENV / "bin" / "uv")
    command = [uv, "pip", "compile", "--quiet", *OPTIONS, *options]
    command += ["--output-file", str(locked), str(requirements)]
    subprocess.run(command, cwd=toolchain.ROOT, check=True)
    locked.write_text(f"{_note(requirements.name)}\n{locked.read_text()}")


def _locked(requirements: Path) -> Path:
    return REQUIREMENTS / "locked" / requirements.name


def _without(base: Path) -> list[str]:
    names = re.findall(r"^([a-z0-9-]+)==", base.read_text(), re.MULTILINE)
    return ["--constraints", str(base), *(f"--no-emit-package={name}" for name in names)]


def _note(name: str) -> str:
    return (
        "# All that this layer installs, with hashes. "
        f"Made by `make lock` from lambdas/requirements/{name}; do not edit."
    )


if __name__ == "__main__":
    main()
