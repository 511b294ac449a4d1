"""Every bench runs, in a mode of seconds: what it measures is not looked at here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench"
PARTS = {"servers", "waiting_chart"}
"""Modules that benches are made of."""

ELSEWHERE = {"end_to_end"}
"""It needs an engine: tests/e2e runs it on theirs."""

BENCHES = sorted({path.stem for path in BENCH.glob("*.py")} - PARTS - ELSEWHERE)


@pytest.mark.parametrize("name", BENCHES)
def test_it_runs(name: str) -> None:
    """It ends well, and prints figures."""
    command = [sys.executable, str(BENCH / f"{name}.py"), "--quick"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert any(character.isdigit() for character in done.stdout)
