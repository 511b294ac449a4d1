"""A folder of the job on the disk of the function, which a warm function shares with the jobs before."""

from __future__ import annotations

import errno
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kinds.dataset.errors import DiskFull

PREFIX = "recado-dataset-"
FULL = "There is not enough disk for this file. Split it, or have the operator raise `dataset_disk_mb`."


@contextmanager
def folder(job_id: str) -> Iterator[Path]:
    """An empty folder for a stage of the job. What a killed attempt at this job left is deleted.

    Raises DiskFull if the disk is full.
    """
    for left in Path(tempfile.gettempdir()).glob(f"{PREFIX}{job_id}-*"):
        shutil.rmtree(left, ignore_errors=True)
    own = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{job_id}-"))
    try:
        yield own
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise DiskFull(FULL) from error
        raise
    finally:
        shutil.rmtree(own, ignore_errors=True)
