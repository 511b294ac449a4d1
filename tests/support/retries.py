"""Hours of webhooks in a few steps: the retry scheduler runs only in the minutes in which it has work."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING

from moto.dynamodb.models import dynamodb_backends

from tests.simulated_cloud.clock import EPOCH
from tests.simulated_cloud.event_source_mappings import moto_queue, next_visible
from tests.simulated_cloud.functions import ACCOUNT, REGION

if TYPE_CHECKING:
    from tests.simulated_cloud.cloud import Cloud

MINUTE = 60.0
STEPS = 20_000


def let_pass(cloud: Cloud, seconds: float, *, every: float = MINUTE) -> None:
    """Advance the clock by `seconds`, with all that happens in them. Of the schedules only `retry_scheduler` runs.

    It runs in the minutes of the EventBridge schedule, but not if it has no work, and at most once in `every`
    seconds.
    """
    end = cloud.clock.time + seconds
    last = start_of_minute(cloud.clock.time)
    for _ in range(STEPS):
        cloud.settle()
        run = next_run(cloud, after=last, every=every)
        when = min(run, cloud.next_due())
        if when > end:
            cloud.clock.advance_to(end)
            cloud.settle()
            return
        cloud.clock.advance_to(when)
        if run <= cloud.clock.time:
            cloud.invoke("retry_scheduler", {})
            last = run
    raise AssertionError(f"more than {STEPS} steps")


def start_of_minute(when: float) -> float:
    epoch = EPOCH.timestamp()
    return epoch + (when - epoch) // MINUTE * MINUTE


def next_run(cloud: Cloud, *, after: float, every: float) -> float:
    """The first minute after `after` in which the retry scheduler has work."""
    when = next_poll(cloud)
    return when if when == math.inf else max(after + every, start_of_minute(when + MINUTE - 0.001))


def next_poll(cloud: Cloud) -> float:
    """When the next index entry is due, or a dead message becomes visible."""
    dead = moto_queue(cloud.queue("Webhooks/DeadLetters").name)
    if dead.messages:
        return cloud.clock.time
    later = next_visible(dead, cloud.clock.time)
    return min(next_entry(cloud), math.inf if later is None else later)


def next_entry(cloud: Cloud) -> float:
    due = [sk for pk, sk in entries(cloud) if pk.startswith(("DUE#", "CIRCUIT"))]
    return datetime.fromisoformat(min(due)).timestamp() if due else math.inf


def entries(cloud: Cloud) -> Iterator[tuple[str, str]]:
    """The keys of all entries of gsi2, read directly from moto, which is faster than its API."""
    table = dynamodb_backends[ACCOUNT][REGION].tables[cloud.table("Deliveries").name]
    for rows in list(table.items.values()):  # threads of the retry scheduler can write at the same time
        for item in list(rows.values()):
            if "gsi2pk" in item.attrs:
                yield item.attrs["gsi2pk"].value, item.attrs["gsi2sk"].value
