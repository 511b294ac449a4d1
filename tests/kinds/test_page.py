"""The instructions of docs/adding-a-kind.md, carried out in a copy of the project."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.support import tree

PAGE = (ROOT / "docs" / "adding-a-kind.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
NAMED = re.compile(r"`([\w/.]+\.py)`")
KINDS = ("transcript", "translation")
OWN_LINES = 60
PARTS = (*tree.PARTS, "client", "docs", "examples", "local", "ops", "tests", "pyproject.toml")


def blocks() -> list[tuple[str, str]]:
    """(file, content) of each code block on the page. The file is the last one named before it."""
    found = BLOCK.finditer(PAGE)
    return [(NAMED.findall(PAGE, 0, block.start())[-1], block[1]) for block in found]


def own_code(kind: str) -> list[str]:
    """The lines of code that a reader writes for a kind, registration included."""
    texts = [
        text for _, text in blocks() if f"kinds.{kind}." in text or f'"{kind}"' in text or f"`{kind}`" in text
    ]
    return [line for text in texts for line in text.splitlines() if line.strip()]


def carry_out(target: Path) -> list[str]:
    """Carries out the instructions; returns the files that were written."""
    written = []
    for path, text in blocks():
        file = target / path
        if path == tree.REGISTRY:
            tree.insert(file, *text.splitlines())
        else:
            assert not file.exists()
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
            written.append(path)
    return written


def run(where: Path, *arguments: str) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "AWS_"))}
    done = subprocess.run(
        [sys.executable, "-m", *arguments], cwd=where, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-2000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def carried_out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tree.copy(ROOT, tmp_path_factory.mktemp("page") / "project", parts=PARTS)
    carry_out(target)
    return target


@pytest.mark.parametrize("kind", KINDS)
def test_size_of_a_kind(kind: str) -> None:
    """A kind takes less than 60 lines of code."""
    assert 20 < len(own_code(kind)) < OWN_LINES


def test_files_of_a_kind() -> None:
    """A kind takes a folder, a construct, and two lines of registration each."""
    files = [path for path, _ in blocks()]
    assert files == [
        "lambdas/kinds/transcript/kind.py",
        "lambdas/kinds/transcript/handler.py",
        "stacks/kinds/transcript.py",
        tree.REGISTRY,
        "lambdas/kinds/translation/kind.py",
        tree.REGISTRY,
    ]
    assert all(len(text.splitlines()) == 2 for path, text in blocks() if path == tree.REGISTRY)


@pytest.mark.slow  # a synthesis and some forty jobs, in a process of its own
def test_new_kinds_pass_all_tests(carried_out: Path) -> None:
    """The kinds on the page pass the suite of all kinds and the tests of the architecture."""
    files, names = ("tests/kinds/test_suite.py", "tests/unit/test_architecture.py"), (*KINDS, "test_architecture")
    output = run(carried_out, "pytest", "-p", "no:xdist", *files, "-k", " or ".join(names))
    passed = re.search(r"(\d+) passed", output)
    assert passed, output
    assert int(passed[1]) > 60


def test_code_style(carried_out: Path) -> None:
    """The code on the page passes the linter and the formatter."""
    written = [path for path, _ in blocks() if path != tree.REGISTRY]
    run(carried_out, "ruff", "check", *written)
    run(carried_out, "ruff", "format", "--check", *written)
