"""DuckDB within the limits of the function."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import duckdb

from kinds.dataset.errors import DiskFull
from kinds.dataset.scratch import FULL
from kinds.dataset.watch import Watch

MB_PER_CPU = 1769  # https://docs.aws.amazon.com/lambda/latest/dg/configuration-memory.html
DUCKDB_SHARE = 0.4
"""Of the function's memory. The rest is for numpy and the model."""


def memory_mb() -> int:
    return int(os.environ.get("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "3008"))


def threads() -> int:
    """As many as the function has CPUs: more are far slower beside a busy neighbour."""
    return max(1, min(os.cpu_count() or 1, round(memory_mb() / MB_PER_CPU)))


class Connection:
    """A connection whose statements run in a thread of their own, while the caller's thread looks at the job."""

    def __init__(self, inner: duckdb.DuckDBPyConnection, watch: Watch) -> None:
        self._inner, self._watch = inner, watch
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="duckdb")
        watch.attach(inner)

    def start(self, sql: str) -> Future[Any]:
        """Begin a statement, after those that were begun before."""
        return self._pool.submit(self._inner.execute, sql)

    def execute(self, sql: str, parameters: Sequence[Any] | None = None) -> Self:
        self._watch.wait_for(self._pool.submit(self._inner.execute, sql, parameters))
        return self

    def fetchone(self) -> tuple[Any, ...] | None:
        found: tuple[Any, ...] | None = self._watch.wait_for(self._pool.submit(self._inner.fetchone))
        return found

    def fetchall(self) -> list[tuple[Any, ...]]:
        return self._watch.wait_for(self._pool.submit(self._inner.fetchall))

    def fetchnumpy(self) -> dict[str, Any]:
        found: dict[str, Any] = self._watch.wait_for(self._pool.submit(self._inner.fetchnumpy))
        return found

    def register(self, name: str, columns: Mapping[str, Any]) -> None:
        self._inner.register(name, columns)

    def unregister(self, name: str) -> None:
        self._inner.unregister(name)

    def cursor(self) -> Connection:
        """Another connection to the same database, which may be used beside this one."""
        return Connection(self._inner.cursor(), self._watch)

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)
        self._inner.close()


@contextmanager
def engine(place: Path, watch: Watch) -> Iterator[Connection]:
    """A connection that spills to the folder. Raises DiskFull, and JobClosed if the job has ended."""
    connection = Connection(
        duckdb.connect(
            config={
                "threads": threads(),
                "memory_limit": f"{int(memory_mb() * DUCKDB_SHARE)}MB",
                "temp_directory": str(place / "spill"),
                "preserve_insertion_order": True,
                "autoinstall_known_extensions": False,
                "autoload_known_extensions": False,
            }
        ),
        watch,
    )
    try:
        yield connection
    except duckdb.IOException as error:
        if "No space left" in str(error):
            raise DiskFull(FULL) from error
        raise
    finally:
        connection.close()
