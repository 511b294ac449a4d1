"""What the limits of models cost: calls of DynamoDB and capacity units per job, beside a job without limits.

    .venv/bin/python bench/model_limits.py [--quick]

The table is in memory. Units are counted as DynamoDB counts them, also for conditions that are false:
https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/on-demand-capacity-mode.html
Jobs of a crowd are those of the simulation in tests/unit/core/llm, with eight workers in virtual time. They wait
in a queue and ask again, so their figures are averages. Prices are for on-demand capacity in us-east-1.
"""
# ruff: noqa: N803 names of arguments are DynamoDB's

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "lambdas")]

from core.llm.catalog import Model, Rate  # noqa: E402
from core.llm.circuit import Circuits  # noqa: E402
from core.llm.gate import ModelGate  # noqa: E402
from core.llm.in_flight import ModelCalls  # noqa: E402
from core.llm.rate_limit import RateLimiter  # noqa: E402
from tests.unit.core.jobs.memory_table import MemoryTable  # noqa: E402
from tests.unit.core.llm.simulation import Arrival, simulate  # noqa: E402

Item = dict[str, Any]
USD_PER_READ_UNIT, USD_PER_WRITE_UNIT = 0.125e-6, 0.625e-6
WITHOUT = Model(name="bedrock/m")
REQUESTS = Model(name="bedrock/m", requests=Rate.parse("10/s"))
BOTH = Model(name="bedrock/m", requests=Rate.parse("10/s"), tokens=Rate.parse("600000/m"))
RESERVED, USED = 3000, 700


class MeteredTable(MemoryTable):
    """Counts calls, read units and write units."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = self.reads = self.writes = 0

    def get_item(self, *, TableName: str, Key: Item, ConsistentRead: bool = False) -> Item:
        self.calls += 1
        return self._read(Key)

    def batch_get_item(self, *, RequestItems: Item) -> Item:
        """One answer, as DynamoDB gives it for small items."""
        self.calls += 1
        ((table, request),) = RequestItems.items()
        found = [item for key in request["Keys"] if (item := self._read(key).get("Item"))]
        return {"Responses": {table: found}}

    def paginate(self, **request: Any) -> Iterator[Item]:
        for page in super().paginate(**request):
            self.calls += 1
            self.reads += units(sum(size(value) for item in page["Items"] for value in item.values()), 4096)
            yield page

    def put_item(self, *, Item: Item, **request: Any) -> Item:
        try:
            return super().put_item(Item=Item, **request)
        finally:
            self._written(self._bytes(Item))

    def update_item(self, *, Key: Item, UpdateExpression: str, **request: Any) -> Item:
        before = self._bytes(Key)
        try:
            return super().update_item(Key=Key, UpdateExpression=UpdateExpression, **request)
        finally:
            self._written(max(before, self._bytes(Key)))

    def delete_item(self, *, Key: Item, **request: Any) -> Item:
        self._written(self._bytes(Key))
        return super().delete_item(Key=Key, **request)

    def _read(self, key: Item) -> Item:
        self.reads += units(self._bytes(key), 4096)
        return super().get_item(TableName="", Key=key)

    def _written(self, size: int) -> None:
        self.calls += 1
        self.writes += units(size, 1024)

    def _bytes(self, key: Item) -> int:
        item = super().get_item(TableName="", Key=key).get("Item", {})
        return sum(len(name) + size(value) for name, value in item.items())


def units(size: int, unit: int) -> int:
    return max(1, -(-size // unit))


def size(value: Any) -> int:
    """Bytes that DynamoDB counts for a value, about."""
    if isinstance(value, str):
        return len(value)
    return 3 + sum(1 + size(part) for part in value) if isinstance(value, list | set) else len(str(value)) // 2 + 2


def alone(model: Model, table: MeteredTable) -> tuple[int, float]:
    """One job that nobody is in the way of, with its circuit."""
    gate = ModelGate(Circuits(table, "jobs"), RateLimiter(table, "jobs"), sleep=lambda seconds: None)
    if gate.admit(model, owner="ana", tokens=RESERVED, waited=False) is not None:
        raise SystemExit("the job was not admitted")
    gate.settle(model, reserved=RESERVED, used=USED)
    gate.succeeded(model, "ana")
    return 1, 1.0


def with_place(table: MeteredTable) -> tuple[int, float]:
    """One job without limits of its model, of an owner whose calls are limited."""
    calls = ModelCalls(table, "jobs", per_owner=1)
    if calls.wait("ana", waited=0) is not None:
        raise SystemExit("the job has no place")
    with calls.place("ana"):
        return alone(WITHOUT, table)


def crowd(model: Model, table: MeteredTable, jobs: int, owners: int = 1) -> tuple[int, float]:
    """Jobs that are submitted at once, without their circuit. Each owner has as many."""
    arrivals = [Arrival(f"owner-{number}", jobs // owners) for number in range(owners)]
    found = simulate(model, arrivals, tokens=RESERVED, used=USED, table=table)
    return jobs, found.asks / jobs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few jobs: to see that it runs")
    jobs = 60 if parser.parse_args().quick else 1000
    rows: dict[str, Callable[[MeteredTable], tuple[int, float]]] = {
        "without limits": lambda table: alone(WITHOUT, table),
        "alone, calls of its owner limited": with_place,
        "alone, requests limited": lambda table: alone(REQUESTS, table),
        "alone, requests and tokens limited": lambda table: alone(BOTH, table),
        f"of {jobs}, requests limited": lambda table: crowd(REQUESTS, table, jobs),
        f"of {jobs} of 20 owners, requests limited": lambda table: crowd(REQUESTS, table, jobs, 20),
        f"of {jobs}, requests and tokens limited": lambda table: crowd(BOTH, table, jobs),
    }
    print(f"{'one job':<42} {'asks':>6} {'calls':>6} {'read':>6} {'write units':>12} {'USD a million jobs':>19}")
    for name, measure in rows.items():
        table = MeteredTable()
        count, asks = measure(table)
        usd = 1e6 * (table.reads * USD_PER_READ_UNIT + table.writes * USD_PER_WRITE_UNIT) / count
        print(
            f"{name:<42} {asks:6.1f} {table.calls / count:6.1f} {table.reads / count:6.1f} "
            f"{table.writes / count:12.1f} {usd:19.2f}"
        )


if __name__ == "__main__":
    main()
