"""A copy of the project in which kinds of jobs are added as a reader of docs/adding-a-kind.md adds them."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

PARTS = ("app.py", "cdk.json", "requirements.txt", "lambdas", "stacks", "statemachines")
REGISTRY = "lambdas/kinds/registry.py"


def copy(root: Path, target: Path, *, parts: Iterable[str] = PARTS) -> Path:
    """The parts of the project at `root`, in a new folder `target`. Returns it."""
    target.mkdir(parents=True)
    for name in parts:
        if (root / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "*.pyc", ".mypy_cache", "node_modules")
            shutil.copytree(root / name, target / name, ignore=ignored)
        else:
            shutil.copy(root / name, target / name)
    return target


def register(tree: Path, name: str, declaration: str) -> None:
    """The two lines of registration: the import, and the declaration's place in the registry."""
    insert(tree / REGISTRY, f"from kinds.{name}.kind import {declaration}", f"    {declaration},")


def insert(file: Path, imported: str, listed: str) -> None:
    """Add an import to the others, and a line at the end of the tuple."""
    head, imports, rest = file.read_text().partition("from kinds.")
    file.write_text(f"{head}{imported}\n{imports}{rest.replace(chr(10) + ')', f'{chr(10)}{listed}{chr(10)})', 1)}")
