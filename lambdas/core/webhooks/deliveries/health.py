"""The health of a destination: counters, the state of its circuit breaker, and its item in the deliveries table.

    closed ──consecutive failures──▶ open ──a probe succeeds──▶ draining ──no delivery is held──▶ closed
                                      ▲ │
                                      └─┘ a probe fails: it stays open twice as long

While a circuit is open, deliveries are held in the index (`rows`) and use no attempts. Circuits that are open or
draining are in the index gsi2 under `CIRCUIT` by the time of their next check.

An endpoint has a circuit, and so has each host and port of an owner (`host_destination`): else a URL with a number
in its query would be a new destination each time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from core import events
from core.aws.dynamodb import Item
from core.webhooks.deliveries.model import HOST_PREFIX
from core.webhooks.deliveries.update import Update

CIRCUIT_PARTITION = "CIRCUIT"  # in gsi2
CHECK_ATTRIBUTES = ("gsi2pk", "gsi2sk", "next_check_at")
NEW_HOST_FAILURES = 5  # open the circuit of a host that has never succeeded


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """The health of a destination. Times are RFC 3339, but `draining_until` is epoch seconds.

    `open_seconds`: how long the circuit is open before the next probe. `draining_until`: the time after which no
    sender can still hold a delivery.
    """

    owner: str
    destination: str
    state: str = "closed"
    attempts: int = 0
    delivered: int = 0
    failed: int = 0
    consecutive_failures: int = 0
    failing_since: str | None = None
    last_success_at: str | None = None
    last_failure_at: str | None = None
    next_check_at: str | None = None
    open_seconds: int = 0
    draining_until: int = 0

    @property
    def is_open(self) -> bool:
        return self.state == "open"

    @property
    def is_host(self) -> bool:
        return self.destination.startswith(HOST_PREFIX)

    def failures_to_open(self, configured: int) -> int:
        """How many consecutive failures open the circuit: `configured`, or fewer for a new host."""
        return min(NEW_HOST_FAILURES, configured) if self.is_host and not self.last_success_at else configured


_NUMBERS = ("attempts", "delivered", "failed", "consecutive_failures", "open_seconds", "draining_until")


@dataclass(frozen=True, slots=True)
class AttemptOutcome:
    """The outcome of one attempt at `at` (epoch seconds). `ended`: the delivery has ended with it."""

    at: float
    succeeded: bool
    ended: bool
    probe: bool = False


def health_key(owner: str, destination: str) -> dict[str, str]:
    return {"pk": f"HEALTH#{owner}#{destination}", "sk": "HEALTH"}


def destination_in(entry: Mapping[str, Any]) -> tuple[str, str]:
    """Owner and destination in an item or index entry."""
    _, owner, destination = entry["pk"].split("#", 2)
    return owner, destination


def read_health(owner: str, destination: str, item: Mapping[str, Any] | None) -> Health:
    """The health in an item of the table; that of a new destination if there is no item."""
    names = {f.name for f in fields(Health)} - {"owner", "destination"}
    values = {name: value for name, value in (item or {}).items() if name in names}
    numbers = {name: int(values[name]) for name in _NUMBERS if name in values}
    return Health(owner=owner, destination=destination, **values | numbers)


def check_entry(at: float) -> Item:
    """The attributes that make the retry scheduler check the circuit at `at` (epoch seconds)."""
    next_check_at = events.timestamp(at)
    return dict(zip(CHECK_ATTRIBUTES, (CIRCUIT_PARTITION, next_check_at, next_check_at), strict=True))


def add_outcomes(update: Update, outcomes: Sequence[AttemptOutcome]) -> None:
    """Add the outcomes of a batch, in the order of their times, to the counters."""
    update.adds = {
        "attempts": len(outcomes),
        "delivered": sum(outcome.succeeded for outcome in outcomes),
        "failed": sum(outcome.ended and not outcome.succeeded for outcome in outcomes),
    }
    _count_consecutive_failures(update, outcomes)


def _count_consecutive_failures(update: Update, outcomes: Sequence[AttemptOutcome]) -> None:
    """Those after the last success of the batch, or one more for each failure if there was no success."""
    failures = [outcome.at for outcome in outcomes if not outcome.succeeded]
    successes = [outcome.at for outcome in outcomes if outcome.succeeded]
    if failures:
        update.sets["last_failure_at"] = events.timestamp(failures[-1])
    if not successes:
        update.defaults["failing_since"] = events.timestamp(failures[0])
        update.adds["consecutive_failures"] = len(failures)
        return
    update.sets["last_success_at"] = events.timestamp(successes[-1])
    since = [at for at in failures if at > successes[-1]]
    update.sets["consecutive_failures"] = len(since)
    if since:
        update.sets["failing_since"] = events.timestamp(since[0])
    else:
        update.removes = ("failing_since",)
