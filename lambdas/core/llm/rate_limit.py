"""Rate limits of models, requests and tokens, for all workers together. One item per model in the jobs table.

Requests have time slots, each at least `window / limit` after the one before: the generic cell rate algorithm with
a burst of 1 (https://en.wikipedia.org/wiki/Generic_cell_rate_algorithm). Tokens are counted by parts of the
window: calls have different sizes, and give back what they did not use. So no half-open window has more slots than
the limit of requests, nor more tokens, reserved or used, than the limit of tokens.

That holds for the times of the slots. Workers call some milliseconds later: set limits 5 % below the provider's.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from core import jobs_table
from core.aws.batch import MAX_QUEUE_DELAY_SECONDS
from core.aws.dynamodb import Item, get_all, refusing_item
from core.jobs.kind import Wait
from core.llm.catalog import Model, Rate
from core.llm.waiting_owners import WaitingOwners

REASON = "rate_limit"
SECOND = 1_000_000
"""Times are whole microseconds."""
FIRST_AHEAD, NEXT_AHEAD = SECOND // 10, SECOND // 2
"""How far ahead a slot may be: of a job that asks first while others wait, and of all others. Its worker sleeps.

Queues delay by whole seconds, so jobs would miss most slots otherwise. If it were the same for all, new jobs would
keep the workers from those that have waited.
"""
PARTS = 40
"""Parts of a window. Tokens are free again up to one part late. The item has a number per part, 1 KB in all."""
TRIES = 5
_PART_PREFIX = "t#"


@dataclass(frozen=True, slots=True)
class Slot:
    """A call may start at `at` (epoch microseconds), `seconds` from now."""

    at: int
    seconds: float


class RateLimiter:
    """Attributes: `slot`, the next free slot (epoch microseconds), and for each part of the window its tokens:
    `t#` and when it begins (epoch milliseconds). `tokens_reserved` and `tokens_used` are sums over settled calls.

    `client` is a resource's client.
    """

    def __init__(self, client: Any, table: str, *, clock: Callable[[], float] = lambda: time.time()) -> None:
        self._client, self._table, self._clock = client, table, clock

    def reserve(self, model: Model, *, owner: str, tokens: int, waited: bool) -> Slot | Wait:
        """Reserve a slot and tokens, at most 0.5 s ahead, or say when to ask again, in whole seconds of 1 to 900.

        `tokens`: of the input, and `max_tokens`. `model.fits` them. `waited`: whether the job has waited before.
        """
        now = self._now()
        if not model.is_limited:
            return Slot(now, 0.0)
        item, waiting = self._read(model, now)
        horizon = now + (NEXT_AHEAD if waited or waiting.is_empty else FIRST_AHEAD)
        for _ in range(TRIES):
            start = _earliest(model, item, tokens, now)
            if start > horizon or waiting.must_yield(owner):
                break
            changed = self._take(model, item, tokens, start)
            if changed is None:
                self._note(model, waiting.granted(owner, _duration(model, item, tokens), waited=waited))
                return Slot(start, (start - now) / SECOND)
            item = changed
        before = _duration(model, item, tokens, calls=_calls_before(model, waiting.place(owner), waited=waited))
        seconds = min(max((start - now + before) // SECOND, 1), MAX_QUEUE_DELAY_SECONDS)
        self._note(model, waiting.refused(owner, now + seconds * SECOND, waited=waited))
        return Wait(REASON, seconds)

    def settle(self, model: Model, slot: Slot, *, reserved: int, used: int) -> None:
        """Give back the tokens that a call has reserved and not used, or add those that it used beyond that.

        They are given back in the part of the window in which they were reserved: later calls keep theirs.
        """
        if model.tokens is None or used == reserved:
            return
        self._write(
            jobs_table.rate_limit_key(model.name),
            UpdateExpression="ADD #part :change, tokens_reserved :reserved, tokens_used :used",
            ConditionExpression="attribute_exists(#part)",
            ExpressionAttributeNames={"#part": _name(_part(model.tokens, slot.at))},
            ExpressionAttributeValues={":change": used - reserved, ":reserved": reserved, ":used": used},
        )

    def _now(self) -> int:
        return int(self._clock() * SECOND)

    def _read(self, model: Model, now: int) -> tuple[Item, WaitingOwners]:
        keys = [jobs_table.rate_limit_key(model.name), jobs_table.waiting_owners_key(model.name)]
        found = {item["sk"]: item for item in get_all(self._client, self._table, keys, ConsistentRead=True)}
        limits, waiting = (found.get(key["sk"], {}) for key in keys)
        return limits, WaitingOwners(waiting, now=now, window=min(map(_window, _rates(model))))

    def _take(self, model: Model, item: Item, tokens: int, start: int) -> Item | None:
        """Reserve the slot at `start`: None, or the item as it is now if `slot` has changed since it was read.

        `slot` grows with every call. Tokens that were given back in the meantime do no harm.
        """
        names, values = {}, {":next": start + _interval(model)}
        expression, condition = "SET slot = :next", "attribute_not_exists(slot)"
        if "slot" in item:
            condition, values[":slot"] = "slot = :slot", item["slot"]
        if model.tokens is not None:
            names["#part"], values[":tokens"] = _name(_part(model.tokens, start)), tokens
            expression += " ADD #part :tokens"
        past = set(_parts(item)) - set(_counted(model.tokens, item, start))
        if past:
            names |= {f"#past{number}": _name(part) for number, part in enumerate(past)}
            expression += " REMOVE " + ", ".join(f"#past{number}" for number in range(len(past)))
        return self._write(
            jobs_table.rate_limit_key(model.name),
            UpdateExpression=expression,
            ConditionExpression=condition,
            ExpressionAttributeValues=values,
            **({"ExpressionAttributeNames": names} if names else {}),
        )

    def _note(self, model: Model, change: Item | None) -> None:
        """Update the hint about waiting owners."""
        if change is not None:
            self._write(jobs_table.waiting_owners_key(model.name), **change)

    def _write(self, key: jobs_table.Key, **request: Any) -> Item | None:
        """None if it was written, else the item that the condition was false for."""
        try:
            self._client.update_item(
                TableName=self._table, Key=key, ReturnValuesOnConditionCheckFailure="ALL_OLD", **request
            )
        except self._client.exceptions.ConditionalCheckFailedException as error:
            return refusing_item(error)
        return None


def _rates(model: Model) -> list[Rate]:
    return [rate for rate in (model.requests, model.tokens) if rate is not None]


def _window(rate: Rate) -> int:
    return rate.seconds * SECOND


def _interval(model: Model) -> int:
    """Between two slots. At least 1, also without a limit of requests: so `slot` grows with every call."""
    return -(-_window(model.requests) // model.requests.limit) if model.requests else 1


def _calls_before(model: Model, place: int, *, waited: bool) -> int:
    """How many calls a job lets pass before it asks again. One that has waited is among the first.

    Tokens become free in bulk, when a part of the window passes. If all waiting jobs came then, most would wait
    again; if each came in its turn, tokens that calls give back would not be used. Hence a sixteenth.
    """
    if not waited:
        return place
    return 1 + place // 16 if model.tokens else 1


def _duration(model: Model, item: Item, tokens: int, calls: int = 1) -> int:
    """An estimate: how long the limits need for calls of this size, if these use as much of it as others did.

    At most a window because of tokens: then it is known how much the calls before have used.
    """
    duration = calls * _interval(model)
    if model.tokens is None:
        return duration
    used = calls * tokens * int(item.get("tokens_used", 1)) // max(int(item.get("tokens_reserved", 1)), 1)
    return max(duration, _window(model.tokens) * min(used, model.tokens.limit) // model.tokens.limit)


def _earliest(model: Model, item: Item, tokens: int, now: int) -> int:
    """The first slot in which the call has its tokens."""
    start = max(now, int(item.get("slot", 0)))
    if model.tokens is None:
        return start
    counted = _counted(model.tokens, item, start)
    total = sum(counted.values()) + tokens
    for part in sorted(counted):
        if total <= model.tokens.limit:
            break
        total -= counted[part]
        start = max(start, part + _window(model.tokens) + _window(model.tokens) // PARTS)
    return start


# ── tokens of parts of a window ──────────────────────────────────────────────────────────────────────────


def _part(rate: Rate, at: int) -> int:
    """The beginning of the part that contains the time."""
    return at - at % (_window(rate) // PARTS)


def _parts(item: Item) -> dict[int, int]:
    """Tokens by the beginnings of parts."""
    prefix = len(_PART_PREFIX)
    return {int(name[prefix:]) * 1000: int(item[name]) for name in item if name.startswith(_PART_PREFIX)}


def _counted(rate: Rate | None, item: Item, at: int) -> dict[int, int]:
    """The parts that a window which ends at `at` has in common with, and later ones."""
    oldest = _part(rate, at) - _window(rate) if rate else at
    return {part: tokens for part, tokens in _parts(item).items() if part >= oldest}


def _name(part: int) -> str:
    return f"{_PART_PREFIX}{part // 1000}"
