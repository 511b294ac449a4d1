"""Delivery stores over a table, with a clock that tests set."""

from __future__ import annotations

from typing import Any

import pytest

from core.webhooks.deliveries.index import DeliveryIndex
from core.webhooks.deliveries.model import Attempt, Delivery
from core.webhooks.deliveries.rows import DUE_SHARDS, id_of
from core.webhooks.deliveries.store import DeliveryStore
from tests.unit.core.jobs.memory_table import MemoryTable
from tests.unit.core.webhooks.samples import delivery
from tests.unit.examples import FakeClock

Item = dict[str, Any]


class Bench:
    """A store and an index over one table, and their clock."""

    def __init__(self, table: Any = None, name: str = "deliveries") -> None:
        self.table, self.name = table or MemoryTable(), name
        self.clock = FakeClock()
        self.store = DeliveryStore(self.table, name, clock=self.clock)
        self.index = DeliveryIndex(self.table, name, clock=self.clock)

    def created(self, **facts: Any) -> Delivery:
        return self.store.create(delivery(now=self.clock.now, **facts))

    def claimed(self, subject: Delivery, **options: Any) -> Delivery:
        claim = self.store.claim(subject.delivery_id, attempts=subject.attempts, **options)
        assert claim is not None
        return claim

    def attempted(self, subject: Delivery, attempt: Attempt, wait: int | None = 60) -> Delivery:
        done = self.store.record(self.claimed(subject, manual=attempt.trigger == "manual"), attempt, wait=wait)
        assert done is not None
        return done

    def now(self, subject: Delivery) -> Delivery:
        found = self.store.get(subject.delivery_id)
        assert found is not None
        return found

    def entry(self, subject: Delivery) -> tuple[str, str] | None:
        """Its keys in gsi2."""
        key = {"pk": f"DELIVERY#{subject.delivery_id}", "sk": "META"}
        item = self.table.get_item(TableName=self.name, Key=key)["Item"]
        assert ("gsi2pk" in item) == ("gsi2sk" in item)
        return (item["gsi2pk"], item["gsi2sk"]) if "gsi2pk" in item else None

    def due(self) -> list[str]:
        """Ids of the deliveries that the retry scheduler must queue now."""
        return [id_of(entry) for entry in self.entries()]

    def entries(self) -> list[Item]:
        return [entry for shard in range(DUE_SHARDS) for entry in self.index.due(shard)]


@pytest.fixture
def bench(dynamodb: Any, deliveries_table: str) -> Bench:
    return Bench(dynamodb, deliveries_table)
