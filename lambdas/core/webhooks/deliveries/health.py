"""How the receivers are doing: counters, a circuit breaker, and the slots of a rate limit, one item per destination.

    closed ──failures in a row──▶ open ──a probe succeeds──▶ draining ──nothing waits any more──▶ closed
                                   ▲ │
                                   └─┘ a probe fails: the pause doubles

While a circuit is open, deliveries wait in the index of what is held and spend no attempts. Open and draining
circuits stand in the index under `CIRCUIT` by when they must be looked at next.

A sender reads the item at the start of a batch and adds up what came of it in one write at the end, so the numbers
follow by seconds and miss those of a sender that died. No delivery depends on them.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from core import events
from core.aws.dynamodb import batch_get
from core.webhooks.deliveries.schedule import JITTER

FIRST_PAUSE_SECONDS, LAST_PAUSE_SECONDS = 60, 3600
PROBE_SECONDS = 180  # within which a probe has been sent, or another is
DRAIN_SECONDS = 300  # a sender may hold deliveries that much longer, by what it read before
SLOT_HORIZON_MS = 900_000  # as far ahead as a queue can delay
# https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_BatchGetItem.html
_READ_AT_ONCE = 100

Item = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """A destination's item. Times are RFC 3339; `pause` and `drained_at` are seconds, `slot` is epoch milliseconds."""

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
    look_at: str | None = None
    pause: int = 0
    drained_at: int = 0

    @property
    def is_open(self) -> bool:
        return self.state == "open"


@dataclass(frozen=True, slots=True)
class AttemptOutcome:
    """What came of one attempt at `at` (epoch seconds). `ended`: the delivery has ended with it."""

    at: float
    succeeded: bool
    ended: bool
    probe: bool = False


def health_key(owner: str, destination: str) -> dict[str, str]:
    return {"pk": f"HEALTH#{owner}#{destination}", "sk": "HEALTH"}


def read_health(owner: str, destination: str, item: Mapping[str, Any] | None) -> Health:
    known = {f.name for f in fields(Health)} - {"owner", "destination"}
    values = {name: value for name, value in (item or {}).items() if name in known}
    numbers = ("attempts", "delivered", "failed", "consecutive_failures", "pause", "drained_at")
    return Health(
        owner=owner,
        destination=destination,
        **values | {name: int(values[name]) for name in numbers if name in values},
    )


class HealthStore:
    """Health items in the deliveries table. `client` is a resource's client."""

    def __init__(
        self,
        client: Any,
        table: str,
        *,
        failures_to_open: int,
        clock: Callable[[], float] = lambda: time.time(),
        spread: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._client, self._table, self._clock, self._spread = client, table, clock, spread
        self._failures_to_open = failures_to_open

    def get(self, owner: str, destination: str) -> Health:
        key = health_key(owner, destination)
        item = self._client.get_item(TableName=self._table, Key=key, ConsistentRead=True).get("Item")
        return read_health(owner, destination, item)

    def many(self, owner: str, destinations: Sequence[str]) -> dict[str, Health]:
        """By destination, however many there are."""
        keys = [health_key(owner, destination) for destination in dict.fromkeys(destinations)]
        found: dict[str, Item] = {}
        for start in range(0, len(keys), _READ_AT_ONCE):
            some = {self._table: {"Keys": keys[start : start + _READ_AT_ONCE]}}
            found |= {item["pk"]: item for item in batch_get(self._client, some)[self._table]}
        return {
            destination: read_health(owner, destination, found.get(health_key(owner, destination)["pk"]))
            for destination in destinations
        }

    # ── what the sender tells ────────────────────────────────────────────────────────────────────────────

    def settle(
        self, health: Health, outcomes: Sequence[AttemptOutcome], *, expires_at: int | None = None
    ) -> Health:
        """Add up what came of a destination's attempts in a batch; opens or closes its circuit where that follows.

        `health` is what was read before them. `expires_at` is for destinations that nobody deletes.
        """
        ordered = sorted(outcomes, key=lambda outcome: outcome.at)
        write = _Write()
        write.adds = {
            "attempts": len(ordered),
            "delivered": sum(outcome.succeeded for outcome in ordered),
            "failed": sum(outcome.ended and not outcome.succeeded for outcome in ordered),
        }
        _count_streak(write, ordered)
        if any(outcome.succeeded for outcome in ordered):
            write.sets |= self._draining() if health.is_open else {}
        elif health.is_open and any(outcome.probe for outcome in ordered):
            write.sets |= self._opened(min(LAST_PAUSE_SECONDS, 2 * health.pause))
        if expires_at is not None:
            write.sets["expires_at"] = expires_at
        settled = self._apply(health, write) or health
        if settled.is_open or settled.consecutive_failures < self._failures_to_open:
            return settled
        return self._open(settled) or settled

    def drain(self, owner: str, destination: str, *, expires_at: int | None = None) -> None:
        """Let go of everything that is held: the endpoint works, was edited, disabled or deleted.

        `expires_at` is for the last of these: the item is of no use any more.
        """
        write = _Write(sets={"consecutive_failures": 0} | self._draining(), removes=("failing_since",))
        if expires_at is not None:
            write.sets["expires_at"] = expires_at
        self._apply(Health(owner=owner, destination=destination), write)

    def reserve(self, owner: str, destination: str, *, rate: float) -> float | None:
        """The next free slot of a destination that takes `rate` requests a second, in epoch seconds.

        None if it is farther ahead than a queue can delay. A slot that is not used is lost.
        """
        interval, now = max(1, -int(-1000 // rate)), int(self._clock() * 1000)
        free = self._slot("SET slot = :next", "attribute_not_exists(slot) OR slot <= :now", owner, destination, {
            ":next": now + interval, ":now": now,
        })  # fmt: skip
        if free is not None:
            return now / 1000
        last = self._slot("SET slot = slot + :interval", "slot < :horizon", owner, destination, {
            ":interval": interval, ":horizon": now + SLOT_HORIZON_MS,
        })  # fmt: skip
        return None if last is None else (last - interval) / 1000

    # ── what the waker does ──────────────────────────────────────────────────────────────────────────────

    def due_circuits(self) -> Iterator[Health]:
        """Circuits to be looked at now."""
        pages = self._client.get_paginator("query").paginate(
            TableName=self._table,
            IndexName="gsi2",
            KeyConditionExpression="gsi2pk = :pk AND gsi2sk <= :now",
            ExpressionAttributeValues={":pk": "CIRCUIT", ":now": events.timestamp(self._clock())},
        )
        for page in pages:
            for entry in page["Items"]:
                _, owner, destination = entry["pk"].split("#", 2)
                yield self.get(owner, destination)

    def begin_probe(self, health: Health) -> bool:
        """Whether a probe is to be sent now, by whoever asks first."""
        return self._apply_first(health, _Write(sets=_looked_at(self._clock() + PROBE_SECONDS)))

    def half_open(self, health: Health) -> None:
        """There is nothing to probe with: what comes next is tried, and one more failure opens it again.

        It is not closed yet, for a sender that read that it is open may still hold a delivery.
        """
        write = _Write(sets={"consecutive_failures": self._failures_to_open - 1} | self._draining())
        self._apply_first(health, write)

    def close(self, health: Health) -> None:
        """Nothing is held any more, and nobody can think that it must be."""
        write = _Write(sets={"state": "closed"}, removes=("gsi2pk", "gsi2sk", "look_at", "pause", "drained_at"))
        self._apply_first(health, write)

    # ── inside ───────────────────────────────────────────────────────────────────────────────────────────

    def _open(self, health: Health) -> Health | None:
        """None if another sender has."""
        condition = "attribute_not_exists(#state) OR #state <> :open"
        write = _Write(sets=self._opened(FIRST_PAUSE_SECONDS))
        return self._apply(health, write, condition=condition, values={":open": "open"})

    def _opened(self, pause: int) -> Item:
        at = self._clock() + pause * self._spread(1 - JITTER, 1 + JITTER)
        return {"state": "open", "pause": pause} | _looked_at(at)

    def _draining(self) -> Item:
        now = self._clock()
        return {"state": "draining", "drained_at": int(now) + DRAIN_SECONDS} | _looked_at(now)

    def _apply_first(self, health: Health, write: _Write) -> bool:
        """False where somebody has looked at the circuit since it was read: nothing is written then."""
        return bool(self._apply(health, write, condition="look_at = :seen", values={":seen": health.look_at}))

    def _apply(
        self, health: Health, write: _Write, *, condition: str = "", values: Mapping[str, Any] = {}
    ) -> Health | None:
        """The item as it is then; None where the condition does not hold."""
        names = {f"#{name}": name for name in (*write.names, *(("state",) if "#state" in condition else ()))}
        options: Item = {"ConditionExpression": condition} if condition else {}
        try:
            answer = self._client.update_item(
                TableName=self._table,
                Key=health_key(health.owner, health.destination),
                UpdateExpression=write.expression,
                ExpressionAttributeNames=names,
                ExpressionAttributeValues=write.values | dict(values),
                ReturnValues="ALL_NEW",
                **options,
            )
        except self._client.exceptions.ConditionalCheckFailedException:
            return None
        return read_health(health.owner, health.destination, answer["Attributes"])

    def _slot(self, expression: str, condition: str, owner: str, destination: str, values: Item) -> int | None:
        try:
            answer = self._client.update_item(
                TableName=self._table,
                Key=health_key(owner, destination),
                UpdateExpression=expression,
                ConditionExpression=condition,
                ExpressionAttributeValues=values,
                ReturnValues="UPDATED_NEW",
            )
        except self._client.exceptions.ConditionalCheckFailedException:
            return None
        return int(answer["Attributes"]["slot"])


@dataclass
class _Write:
    """An update in parts; `defaults` are set where the item has no such attribute."""

    sets: Item = field(default_factory=dict)
    defaults: Item = field(default_factory=dict)
    adds: Item = field(default_factory=dict)
    removes: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.sets, *self.defaults, *self.adds, *self.removes)

    @property
    def values(self) -> Item:
        return {f":{name}": value for name, value in (self.sets | self.defaults | self.adds).items()}

    @property
    def expression(self) -> str:
        sets = [f"#{name} = :{name}" for name in self.sets]
        sets += [f"#{name} = if_not_exists(#{name}, :{name})" for name in self.defaults]
        clauses = (
            ("SET", sets),
            ("ADD", [f"#{name} :{name}" for name in self.adds]),
            ("REMOVE", [f"#{name}" for name in self.removes]),
        )
        return " ".join(f"{clause} {', '.join(parts)}" for clause, parts in clauses if parts)


def _count_streak(write: _Write, outcomes: Sequence[AttemptOutcome]) -> None:
    """Failures in a row: those since the last success, or so many more where there was none."""
    failures = [outcome.at for outcome in outcomes if not outcome.succeeded]
    successes = [outcome.at for outcome in outcomes if outcome.succeeded]
    if failures:
        write.sets["last_failure_at"] = events.timestamp(failures[-1])
    if not successes:
        write.defaults["failing_since"] = events.timestamp(failures[0])
        write.adds["consecutive_failures"] = len(failures)
        return
    write.sets["last_success_at"] = events.timestamp(successes[-1])
    since = [at for at in failures if at > successes[-1]]
    write.sets["consecutive_failures"] = len(since)
    if since:
        write.sets["failing_since"] = events.timestamp(since[0])
    else:
        write.removes = ("failing_since",)


def _looked_at(seconds: float) -> Item:
    look_at = events.timestamp(seconds)
    return {"look_at": look_at, "gsi2pk": "CIRCUIT", "gsi2sk": look_at}
