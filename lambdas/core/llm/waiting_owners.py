"""The owners whose jobs wait for a model's rate limit, so that each gets its share.

One item per model, with two attributes per owner: `count#{owner}`, its waiting jobs, and `times#{owner}`, when
they ask again and how much of the limit the owner has used. It is only a hint: a job that is canceled while it
waits is counted until no job of its owner waits any more. Then jobs wait too long; no limit is exceeded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass, replace
from itertools import product
from typing import Any

from core.aws.dynamodb import Item

MAX_OWNERS = 20
"""In the item, which stays below 4 KB. Others wait like an owner with one job, and nobody yields to them."""
SOON, LATE = 500_000, 5_000_000
"""Microseconds. An owner's job is expected so soon, and until it is so late: its message may wait for a worker."""
_COUNT, _TIMES = "count#", "times#"


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """`due`, `until`: when the first and the last waiting job of the owner asks again (epoch microseconds).

    `used`: how much of the limit the owner has used in the window of this number, as the sum of the intervals of
    its calls (microseconds). `used_before`: in the window before.
    """

    due: int = 0
    until: int = 0
    window: int = 0
    used: int = 0
    used_before: int = 0


class WaitingOwners:
    """What `item` says at `now`. `window`: of the rate limit. Both are microseconds.

    `refused` and `granted` return an update of the item, for UpdateItem, or None.
    """

    def __init__(self, item: Mapping[str, Any], *, now: int, window: int) -> None:
        self._now, self._window = now, window
        self._counts = {name.removeprefix(_COUNT): int(item[name]) for name in item if name.startswith(_COUNT)}
        self._times = {
            name.removeprefix(_TIMES): Times(**dict(zip(Times.__slots__, map(int, item[name]), strict=True)))
            for name in item
            if name.startswith(_TIMES)
        }
        self._gone = {owner for owner, times in self._times.items() if times.until + LATE < now}

    @property
    def is_empty(self) -> bool:
        return not any(map(self._count, self._times))

    def must_yield(self, owner: str) -> bool:
        """Whether the owner has had its share, and a job of another owner is about to ask."""
        others = self._others(owner)
        used = self._used(self._times.get(owner, Times()))
        return used * (len(others) + 1) >= self._window and any(
            times.due - SOON <= self._now <= times.due + LATE for times in map(self._times.__getitem__, others)
        )

    def place(self, owner: str) -> int:
        """The place in line of another job of the owner, if owners take turns."""
        own = self._count(owner) + 1
        return own + sum(min(own, self._count(other)) for other in self._others(owner))

    def refused(self, owner: str, due: int, *, waited: bool) -> Item | None:
        """For a job that has to wait until `due`. `waited`: it is counted already."""
        known = self._live(owner)
        if known is None and len(self._times.keys() - self._gone) >= MAX_OWNERS:
            return None
        times = known or Times()
        nearest = min(times.due, due) if times.due >= self._now else due
        return self._change(
            owner,
            replace(times, due=nearest, until=max(times.until, due)),
            added=0 if waited and known else 1,
        )

    def granted(self, owner: str, pace: int, *, waited: bool) -> Item | None:
        """For a job that may call now. Owners without waiting jobs are not in the item, and cost no write."""
        times = self._live(owner)
        if times is None:
            return None
        left = self._count(owner) - waited
        if left <= 0:
            return self._change(owner, None)
        window = self._now // self._window
        same, next_one = times.window == window, times.window == window - 1
        return self._change(
            owner,
            Times(
                due=self._now + max(times.until - self._now, 0) // left,
                until=times.until,
                window=window,
                used=(times.used if same else 0) + pace,
                used_before=times.used_before if same else times.used if next_one else 0,
            ),
            added=-int(waited),
        )

    def _live(self, owner: str) -> Times | None:
        return None if owner in self._gone else self._times.get(owner)

    def _count(self, owner: str) -> int:
        return 0 if owner in self._gone else max(self._counts.get(owner, 0), 0)

    def _others(self, owner: str) -> list[str]:
        return [other for other in self._times if other != owner and self._count(other)]

    def _used(self, times: Times) -> int:
        """In the window that ends now, as if the use of the fixed window before had been even."""
        number, passed = divmod(self._now, self._window)
        if number == times.window:
            return times.used + times.used_before * (self._window - passed) // self._window
        return times.used * (self._window - passed) // self._window if number == times.window + 1 else 0

    def _change(self, owner: str, times: Times | None, *, added: int = 0) -> Item:
        """The update that sets these times and adds to the count, or removes the owner, and all that is stale."""
        sets, adds, values = list[str](), "", dict[str, Any]()
        removed = self._gone - {owner} if times else self._gone | {owner}
        names = {
            f"#old{n}": f"{prefix}{gone}" for n, (prefix, gone) in enumerate(product((_COUNT, _TIMES), removed))
        }
        removes = ", ".join(names)
        if times is not None:
            names["#times"], values[":times"] = f"{_TIMES}{owner}", list(astuple(times))
            sets.append("#times = :times")
        if added:
            names["#count"], values[":added"] = f"{_COUNT}{owner}", added
            if owner in self._gone:
                sets.append("#count = :added")
            else:
                adds = "#count :added"
        clauses = (("SET", ", ".join(sets)), ("ADD", adds), ("REMOVE", removes))
        return {
            "UpdateExpression": " ".join(f"{clause} {changes}" for clause, changes in clauses if changes),
            "ExpressionAttributeNames": names,
            **({"ExpressionAttributeValues": values} if values else {}),
        }
