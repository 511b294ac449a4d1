"""`make lock`: lock the packages of each layer, transitive ones too, with the hashes of all their files.

A locked file serves every Python and machine that Lambda offers. Locked versions are kept as long as they satisfy
the requirements.
"""

from __future__ import annotations

import subprocess

from local import toolchain

REQUIREMENTS = toolchain.ROOT / "lambdas" / "requirements"
OLDEST_PYTHON = "3.11"
OPTIONS = ("--universal", "--python-version", OLDEST_PYTHON, "--generate-hashes", "--no-annotate", "--no-header")


def main() -> None:
    for requirements in sorted(REQUIREMENTS.glob("*.txt")):
        locked = REQUIREMENTS / "locked" / requirements.name
        uv = str(toolchain.PROJECT_VENV / "bin" / "uv")
        command = [uv, "pip", "compile", "--quiet", *OPTIONS, "--output-file", str(locked), str(requirements)]
        subprocess.run(command, cwd=toolchain.ROOT, check=True)
        locked.write_text(f"{_note(requirements.name)}\n{locked.read_text()}")


def _note(name: str) -> str:
    return (
        "# All that this layer installs, with hashes. "
        f"Made by `make lock` from lambdas/requirements/{name}; do not edit."
    )


if __name__ == "__main__":
    main()
