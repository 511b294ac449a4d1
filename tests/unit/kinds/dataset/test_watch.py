"""What stops a stage whose job has ended (kinds.dataset.watch, kinds.dataset.engine, kinds.dataset.scratch)."""

from __future__ import annotations

import errno
import tempfile
import time
from pathlib import Path

import pytest

from core.errors import JobClosed
from kinds.dataset import watch as module
from kinds.dataset.engine import engine, threads
from kinds.dataset.errors import DiskFull
from kinds.dataset.scratch import PREFIX, folder
from kinds.dataset.watch import JobWatch, Watch

ENDLESS = "SELECT count(*) FROM range(100000000) a, range(100000000) b WHERE a.range + b.range = 7"


def closed() -> None:
    raise JobClosed("the job is canceled")


def test_a_query_is_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A query that would take hours ends soon after its job."""
    monkeypatch.setattr(module, "SECONDS", 0.05)
    began = time.monotonic()
    with pytest.raises(JobClosed), engine(tmp_path, JobWatch(closed, lambda share: None)) as connection:
        connection.execute(ENDLESS)
    assert time.monotonic() - began < 10


def test_looks_are_rare(monkeypatch: pytest.MonkeyPatch) -> None:
    """The job is read and the progress reported every two seconds, however often a stage asks."""
    clock, looks, shares = [0.0], [], list[float]()
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    watch = JobWatch(lambda: looks.append(clock[0]), shares.append)
    for tenth in range(100):
        clock[0] = tenth / 10
        watch.advance(tenth / 50)
    assert looks == [2.0, 4.0, 6.0, 8.0]
    assert shares == [0.4, 0.8, 1.0, 1.0]


def test_threads_follow_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A function has so many threads as CPUs, which AWS gives it by its memory."""
    monkeypatch.setattr("os.cpu_count", lambda: 6)
    found = []
    for memory in (512, 1769, 3008, 10_240):
        monkeypatch.setenv("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", str(memory))
        found.append(threads())
    assert found == [1, 1, 2, 6]


def test_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stage has an empty folder, what a killed attempt left is deleted, and other jobs' files are not."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for name in ("job_1-left", "job_2-busy"):
        (tmp_path / f"{PREFIX}{name}").mkdir()
    with folder("job_1") as place:
        (place / "file").touch()
        assert {path.name for path in tmp_path.iterdir()} == {place.name, f"{PREFIX}job_2-busy"}
    assert [path.name for path in tmp_path.iterdir()] == [f"{PREFIX}job_2-busy"]


def test_full_disk(tmp_path: Path) -> None:
    """A full disk fails the job with a code, and the message says what to do."""
    with pytest.raises(DiskFull, match="dataset_disk_mb"), folder("job_1"):
        raise OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(OSError, match="denied"), folder("job_1"):
        raise OSError(errno.EACCES, "denied")
    assert Watch().share == 0.0
