"""EventBridge: rules for events, rules on a schedule, and their targets.

Targets are Lambda functions, which are invoked asynchronously with the whole event. Of the schedule expressions
only `rate(...)` is supported.
"""

from __future__ import annotations

import json
import re
import uuid
from datetime import UTC, datetime
from typing import Any

from . import event_patterns
from .clock import Clock
from .cooperative_threads import EPSILON
from .functions import ACCOUNT, REGION, Functions
from .template import Unsupported

RATE = re.compile(r"rate\((\d+) (minute|hour|day)s?\)")
UNIT_SECONDS = {"minute": 60, "hour": 3600, "day": 86400}
TARGET_FIELDS = {"Arn", "Id", "RetryPolicy"}


class EventRule:
    """One rule: an event pattern or an interval (`every`, in seconds), and its targets as in CloudFormation.

    Raises `Unsupported` for a target that is not a function or has a field that would be ignored.
    """

    def __init__(self, name: str, properties: dict[str, Any]) -> None:
        self.name = name
        self.arn = f"arn:aws:events:{REGION}:{ACCOUNT}:rule/{name}"
        self.enabled = properties.get("State", "ENABLED") != "DISABLED"
        self.targets: list[dict[str, Any]] = properties.get("Targets", [])
        self.pattern: dict[str, Any] | None = properties.get("EventPattern")
        self.every = rate(properties["ScheduleExpression"]) if "ScheduleExpression" in properties else None
        self.next_run = 0.0
        if self.pattern:
            event_patterns.check(self.pattern)
        for target in self.targets:
            if not set(target) <= TARGET_FIELDS or target["Arn"].split(":")[2] != "lambda":
                raise Unsupported(f"the target {target} of the rule {name}")


def rate(expression: str) -> float:
    """The seconds between two runs. Raises ValueError for a schedule expression that is not a rate."""
    if not (match := RATE.fullmatch(expression)):
        raise ValueError(f"only rates are supported, not {expression}")
    return int(match[1]) * UNIT_SECONDS[match[2]]


class EventBus:
    """Matches events against the rules and sends them to the targets. `events` records all events."""

    def __init__(self, clock: Clock, functions: Functions) -> None:
        self._clock = clock
        self._functions = functions
        self._pending: list[dict[str, Any]] = []
        self.rules: list[EventRule] = []
        self.events: list[dict[str, Any]] = []

    def put(self, source: str, detail_type: str, detail: dict[str, Any], resources: list[str]) -> None:
        self._pending.append(self._event(source, detail_type, detail, resources))

    def put_events(self, params: dict[str, Any]) -> dict[str, Any]:
        """The fake of `events:PutEvents`."""
        for entry in params["Entries"]:
            detail = json.loads(entry["Detail"])
            self.put(entry["Source"], entry["DetailType"], detail, entry.get("Resources", []))
        return {"FailedEntryCount": 0, "Entries": [{"EventId": str(uuid.uuid4())} for _ in params["Entries"]]}

    def deliver(self) -> int:
        """Send the pending events to the targets of the rules that match. Returns how many events there were."""
        events, self._pending = self._pending, []
        for event in events:
            self.events.append(event)
            for rule in self.rules:
                if rule.enabled and rule.pattern and event_patterns.matches(rule.pattern, event):
                    self._send(rule, event)
        return len(events)

    def fire_due(self) -> int:
        """Run the schedules that are due, once for each interval that has passed. Returns the number of runs."""
        fired = 0
        for rule in self.rules:
            while rule.every and rule.enabled and rule.next_run <= self._clock.time + EPSILON:
                rule.next_run += rule.every
                self._send(rule, self._event("aws.events", "Scheduled Event", {}, [rule.arn]))
                fired += 1
        return fired

    def next_tick(self) -> float | None:
        """When the next schedule is due."""
        return min((rule.next_run for rule in self.rules if rule.every and rule.enabled), default=None)

    def skip_ticks(self) -> None:
        """Skip the runs that are overdue."""
        for rule in self.rules:
            while rule.every and rule.next_run <= self._clock.time + EPSILON:
                rule.next_run += rule.every

    def reset(self) -> None:
        self._pending.clear()
        self.events.clear()
        for rule in self.rules:
            rule.next_run = self._clock.time + (rule.every or 0)

    def _event(
        self, source: str, detail_type: str, detail: dict[str, Any], resources: list[str]
    ) -> dict[str, Any]:
        now = datetime.fromtimestamp(self._clock.time, UTC)
        return {
            "version": "0",
            "id": str(uuid.uuid4()),
            "detail-type": detail_type,
            "source": source,
            "account": ACCOUNT,
            "time": f"{now:%Y-%m-%dT%H:%M:%SZ}",
            "region": REGION,
            "resources": resources,
            "detail": detail,
        }

    def _send(self, rule: EventRule, event: dict[str, Any]) -> None:
        for target in rule.targets:
            self._functions.enqueue(self._functions.get(target["Arn"]), json.dumps(event))
