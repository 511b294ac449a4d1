"""Queues the deliveries of index entries."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from core.aws.batch import log_and_continue
from core.dependencies import dependencies
from core.webhooks.deliveries.queue import Message

PAGE = 100


def queue_due(shard: int, *, until: float) -> int:
    """Queue the due deliveries of a shard, at least one page of them; returns how many.

    `until` is a time of `time.monotonic`.
    """
    queued = 0
    with log_and_continue(shard=str(shard)):
        for entries in pages(dependencies.delivery_index.due(shard)):
            queued += queue(entries)
            if time.monotonic() > until:
                break
    return queued


def pages(entries: Iterable[Mapping[str, Any]]) -> Iterator[list[Mapping[str, Any]]]:
    rest = iter(entries)
    while page := list(islice(rest, PAGE)):
        yield page


def queue(entries: Iterable[Mapping[str, Any]], **facts: Any) -> int:
    """Queue the deliveries that still have these entries; returns how many."""
    marked = [delivery for delivery in map(dependencies.deliveries.mark_queued, entries) if delivery]
    dependencies.webhooks_queue.send_all(
        Message.of(delivery, follows=delivery.follows, **facts) for delivery in marked
    )
    return len(marked)
