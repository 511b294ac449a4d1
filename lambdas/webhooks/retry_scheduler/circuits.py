"""Circuits that are open or draining: probes, and the end of waits."""

from __future__ import annotations

import time

from core import events
from core.aws.batch import log_and_continue
from core.dependencies import dependencies
from core.webhooks.deliveries import schedule
from core.webhooks.deliveries.health import Health
from webhooks.retry_scheduler.queueing import PAGE, queue

PROBE_CANDIDATES = 10  # index entries; the first is enough unless the index lags


def check_circuits(until: float) -> None:
    """Check the due circuits, those with the earliest time first. `until` is a time of `time.monotonic`."""
    for health in dependencies.health.due_circuits():
        with log_and_continue(destination=health.destination):
            check_circuit(health, until)
        if time.monotonic() > until:
            return


def check_circuit(health: Health, until: float) -> None:
    if health.is_open:
        queue_expired(health)
        probe(health)
    else:
        queue_held(health, until)


def probe(health: Health) -> None:
    """Queue the oldest held delivery as a probe."""
    entries = dependencies.delivery_index.held(health.owner, health.destination, limit=PROBE_CANDIDATES)
    if not entries:
        dependencies.health.half_open(health)
    elif dependencies.health.begin_probe(health):
        # stops after the first that is queued
        any(queue([entry], probe=True, host_probe=health.is_host) for entry in entries)


def queue_expired(health: Health) -> None:
    """Queue the deliveries that have been held for longer than all their attempts could have taken.

    The sender ends them, because it also decides whether to disable the endpoint.
    """
    span = schedule.span(dependencies.settings.webhook_schedule_seconds)
    until = events.timestamp(time.time() - span)
    queue(dependencies.delivery_index.held(health.owner, health.destination, until=until, limit=PAGE))


def queue_held(health: Health, until: float) -> None:
    """Queue all held deliveries of a draining circuit, and close it when no sender can hold another one."""
    while entries := dependencies.delivery_index.held(health.owner, health.destination, limit=PAGE):
        if not queue(entries) or time.monotonic() > until:
            return
    if time.time() > health.draining_until:
        dependencies.health.close(health)
