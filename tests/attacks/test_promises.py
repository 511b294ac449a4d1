"""docs/security.md and the attacks agree."""

from __future__ import annotations

import re

from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
TESTS = ROOT / "tests"


def named() -> set[str]:
    """What the table of promises names, as paths below tests/. A bare file lies beside the one named before it."""
    found, folder = set[str](), ""
    for row in PAGE.partition("## What is promised")[2].splitlines():
        for path in re.findall(r"`([\w/]+(?:\.py)?)`", row.rpartition("|")[0].rpartition("|")[2]):
            folder = path.rpartition("/")[0] or folder
            found.add(path if "/" in path or not path.endswith(".py") else f"{folder}/{path}")
    return found


def test_every_test_exists() -> None:
    """Each promise names tests that exist."""
    assert len(named()) > 20
    assert {path for path in named() if not (TESTS / path).exists()} == set()


def test_every_attack_is_named() -> None:
    """Each file of attacks belongs to a promise."""
    files = {f"attacks/{path.name}" for path in (TESTS / "attacks").glob("test_*.py")}
    assert files - named() == {"attacks/test_promises.py"}
