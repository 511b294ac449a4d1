"""The local engine as a process: it starts, keeps to itself, and ends."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from local import engine, toolchain


def ends(running: engine.Engine) -> bool:
    deadline = time.monotonic() + 10
    while running.is_healthy() and time.monotonic() < deadline:
        time.sleep(0.05)
    return not running.is_healthy()


def test_two_engines_do_not_disturb_each_other(tmp_path: Path) -> None:
    """Each has a port of its own, and outlives the other."""
    with engine.running(tmp_path / "one") as one:
        with engine.running(tmp_path / "two") as two:
            assert one.port != two.port
            two.reset()
        assert not two.is_healthy()
        assert one.is_healthy()
        with pytest.raises(engine.EngineFailed, match="already in use"):
            engine.start(tmp_path / "three", port=one.port)
    assert not one.is_healthy()


SCRIPT = """
import sys, time
from pathlib import Path
from local import engine
print(engine.start(Path(sys.argv[1]), outlive_us=sys.argv[2] == "outlive").port, flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("mode", ["outlive", "end"])
def test_engine_ends_with_its_parent_unless_told_otherwise(tmp_path: Path, mode: str) -> None:
    """Even if the parent is killed. One that outlives its parent is found again and can be stopped."""
    command = [sys.executable, "-c", SCRIPT, str(tmp_path), mode]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=toolchain.ROOT) as parent:
        assert parent.stdout is not None
        port = int(parent.stdout.readline())
        parent.kill()
    started = engine.Engine(port=port, pid=0, workspace=tmp_path)
    if mode == "end":
        assert ends(started)
        assert engine.attach(tmp_path) is None
        return
    found = engine.attach(tmp_path)
    assert found is not None
    assert found.port == port
    found.stop()
    assert ends(started)
    assert engine.attach(tmp_path) is None
