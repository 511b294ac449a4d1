"""Circuit breakers of providers. One item per provider in the jobs table, while there are faults.

    closed ──5 faults without a success──▶ open ──a probe succeeds──▶ closed
                                           ▲ │
                                           └─┘ a probe fails: it stays open twice as long, 10 s to 5 minutes

Jobs wait while it is open. A probe is the call of one job; there is one at a time. A provider may fail because of
the prompts of one owner, which must not shut out others:

- If all faults are of one owner, the circuit is open for this owner only.
- A job of an owner without faults does not wait for the time of the next probe: it is a probe at once.
- A success of any owner closes the circuit.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from core import jobs_table
from core.aws.dynamodb import Item
from core.jobs.kind import Wait
from core.jobs.machine import PROVIDER_CIRCUIT

FAULTS = 5
MIN_OPEN_SECONDS, MAX_OPEN_SECONDS = 10, 300
PROBE_SECONDS = 60
"""After so long without an outcome of a probe, another job may be one: the worker may have been killed."""
MAX_SPREAD_SECONDS = 30
MAX_OWNERS = 100
"""So many owners with faults are enough evidence: then no job is a probe at once, and the item stays small."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _State:
    """Times are epoch milliseconds. `open_until`: of the next probe, 0 while the circuit is closed.

    `probe_until`: when the probe counts as lost, 0 without a probe.
    """

    faults: int = 0
    owners: frozenset[str] = frozenset()
    open_until: int = 0
    open_seconds: int = 0
    probe_until: int = 0

    def is_open_for(self, owner: str) -> bool:
        return self.open_until > 0 and (owner in self.owners or len(self.owners) > 1)

    def may_probe_at_once(self, owner: str) -> bool:
        return owner not in self.owners and len(self.owners) < MAX_OWNERS


@dataclass(frozen=True, slots=True)
class _Probe:
    """`until`: its `probe_until`, which identifies it. `open_seconds`: after its failure; None: as it was."""

    until: int
    open_seconds: int | None


class Circuits:
    """`client` is a resource's client. A healthy provider costs one read per call.

    A job calls `admit`, and then `succeeded`, `failed` or `give_back` in the same process: this object remembers
    which calls are probes, and which providers had faults.
    """

    def __init__(
        self,
        client: Any,
        table: str,
        *,
        clock: Callable[[], float] = lambda: time.time(),
        spread: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._client, self._table, self._clock, self._spread = client, table, clock, spread
        self._probes: dict[tuple[str, str], _Probe] = {}
        self._faulty: set[str] = set()

    def admit(self, provider: str, owner: str) -> Wait | None:
        """None if the job may call, maybe as a probe; else how long to wait, in whole seconds of 1 to 900."""
        state = self._read(provider)
        if not state.is_open_for(owner):
            return None
        now = self._now()
        remaining = max(state.open_until - now, 0)
        at_once = state.may_probe_at_once(owner)
        if (at_once or not remaining) and self._begin_probe(provider, owner, state, now=now):
            return None
        # Jobs come back at different times: one of them is a probe, and the others find out in the meantime.
        spread = self._spread(0, min(state.open_seconds, MAX_SPREAD_SECONDS))
        return Wait(PROVIDER_CIRCUIT, max(math.ceil((0 if at_once else remaining / 1000) + spread), 1))

    def succeeded(self, provider: str, owner: str) -> None:
        """The provider answered. A refusal of the request (4xx) is an answer, too."""
        self._probes.pop((provider, owner), None)
        if provider in self._faulty:
            self._faulty.discard(provider)
            self._client.delete_item(TableName=self._table, Key=jobs_table.circuit_key(provider))

    def failed(self, provider: str, owner: str) -> None:
        """The provider did not answer, or not to the end."""
        self._faulty.add(provider)
        counted = self._update(provider, "ADD faults :one, owners :owner", values={":one": 1, ":owner": {owner}})
        probe = self._probes.pop((provider, owner), None)
        if probe is not None:
            self._end_probe(provider, probe)
        elif counted is not None and counted.faults >= FAULTS and not counted.open_until:
            self._open(provider, MIN_OPEN_SECONDS, "attribute_not_exists(open_until)", {})

    def give_back(self, provider: str, owner: str) -> None:
        """The job did not call, or was canceled or throttled. If it was the probe, another job may be one now."""
        probe = self._probes.pop((provider, owner), None)
        if probe is not None:
            self._end_probe(provider, replace(probe, open_seconds=None))

    def _now(self) -> int:
        return int(self._clock() * 1000)

    def _read(self, provider: str) -> _State:
        key = jobs_table.circuit_key(provider)
        item = self._client.get_item(TableName=self._table, Key=key, ConsistentRead=True).get("Item")
        (self._faulty.add if item else self._faulty.discard)(provider)
        return _state(item or {})

    def _begin_probe(self, provider: str, owner: str, state: _State, *, now: int) -> bool:
        """Whether the job is the only probe."""
        until = now + PROBE_SECONDS * 1000
        begun = self._update(
            provider,
            "SET probe_until = :until",
            condition="open_until = :seen AND (attribute_not_exists(probe_until) OR probe_until <= :now)",
            values={":until": until, ":seen": state.open_until, ":now": now},
        )
        if begun is not None:
            longer = min(2 * state.open_seconds, MAX_OPEN_SECONDS) if now >= state.open_until else None
            self._probes[provider, owner] = _Probe(until, longer)
        return begun is not None

    def _end_probe(self, provider: str, probe: _Probe) -> None:
        """Without success. Nothing is written if the probe counts as lost and there is another one."""
        condition, values = "probe_until = :probe", {":probe": probe.until}
        if probe.open_seconds is None:
            self._update(provider, "REMOVE probe_until", condition=condition, values=values)
        else:
            self._open(provider, probe.open_seconds, condition, values)

    def _open(self, provider: str, seconds: int, condition: str, values: Item) -> None:
        self._update(
            provider,
            "SET open_until = :until, open_seconds = :seconds REMOVE probe_until",
            condition=condition,
            values=values | {":until": self._now() + 1000 * seconds, ":seconds": seconds},
        )

    def _update(
        self, provider: str, expression: str, *, values: Item, condition: str | None = None
    ) -> _State | None:
        """The state after the update; None if the condition is false."""
        try:
            answer = self._client.update_item(
                TableName=self._table,
                Key=jobs_table.circuit_key(provider),
                UpdateExpression=expression,
                ExpressionAttributeValues=values,
                ReturnValues="ALL_NEW",
                **({"ConditionExpression": condition} if condition else {}),
            )
        except self._client.exceptions.ConditionalCheckFailedException:
            return None
        return _state(answer["Attributes"])


def _state(item: Mapping[str, Any]) -> _State:
    numbers = ("faults", "open_until", "open_seconds", "probe_until")
    return _State(
        owners=frozenset(item.get("owners", ())), **{name: int(item[name]) for name in numbers if name in item}
    )
