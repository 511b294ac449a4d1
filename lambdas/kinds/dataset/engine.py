"""DuckDB within the limits of the function, and a folder for its files."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb

from core.errors import JobClosed
from kinds.dataset.errors import DiskFull
from kinds.dataset.watch import Watch

PREFIX = "recado-dataset-"
MB_PER_CPU = 1769  # https://docs.aws.amazon.com/lambda/latest/dg/configuration-memory.html
DUCKDB_SHARE = 0.4
"""Of the function's memory. The rest is for numpy and the model."""
FULL = "There is not enough disk for this file. Split it, or have the operator raise `dataset_disk_mb`."


def memory_mb() -> int:
    return int(os.environ.get("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "3008"))


def threads() -> int:
    """As many as the function has CPUs: more are far slower beside a busy neighbour."""
    return max(1, min(os.cpu_count() or 1, round(memory_mb() / MB_PER_CPU)))


@contextmanager
def folder(job_id: str) -> Iterator[Path]:
    """An empty folder for the job. What an earlier run of a warm function left is deleted.

    Raises DiskFull if the disk is full.
    """
    place = Path(tempfile.gettempdir()) / f"{PREFIX}{job_id}"
    shutil.rmtree(place, ignore_errors=True)
    own = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{job_id}-"))
    try:
        yield own
    except OSError as error:
        if error.errno == 28:  # ENOSPC
            raise DiskFull(FULL) from error
        raise
    finally:
        shutil.rmtree(own, ignore_errors=True)


@contextmanager
def engine(place: Path, watch: Watch) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection that spills to the folder. Raises DiskFull, and JobClosed if the watch interrupts it."""
    connection = duckdb.connect(
        config={
            "threads": threads(),
            "memory_limit": f"{int(memory_mb() * DUCKDB_SHARE)}MB",
            "temp_directory": str(place / "spill"),
            "preserve_insertion_order": True,
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
        }
    )
    watch.attach(connection)
    try:
        yield connection
    except duckdb.InterruptException:
        watch.check()
        raise JobClosed("the stage was interrupted") from None
    except duckdb.IOException as error:
        if "No space left" in str(error):
            raise DiskFull(FULL) from error
        raise
    finally:
        connection.close()
