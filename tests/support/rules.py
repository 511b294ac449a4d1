"""EventBridge: rules on events and on the clock, and their targets."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from . import patterns
from .calls import behind_the_scenes
from .clock import Clock
from .cooperative import EPSILON
from .functions import ACCOUNT, REGION, Functions
from .invocations import send

RATE = re.compile(r"rate\((\d+) (minute|hour|day)s?\)")
UNIT_SECONDS = {"minute": 60, "hour": 3600, "day": 86400}


class Rule:
    """One rule: a pattern or a rate in seconds, and targets as CloudFormation has them."""

    def __init__(self, name: str, properties: dict[str, Any]) -> None:
        self.name = name
        self.arn = f"arn:aws:events:{REGION}:{ACCOUNT}:rule/{name}"
        self.enabled = properties.get("State", "ENABLED") != "DISABLED"
        self.targets: list[dict[str, Any]] = properties.get("Targets", [])
        self.pattern: dict[str, Any] | None = properties.get("EventPattern")
        self.every = rate(properties["ScheduleExpression"]) if "ScheduleExpression" in properties else None
        self.next_run = 0.0
        if self.pattern:
            patterns.check(self.pattern)


def rate(expression: str) -> float:
    """Seconds between two runs."""
    if not (match := RATE.fullmatch(expression)):
        raise ValueError(f"only rates are supported, not {expression}")
    return int(match[1]) * UNIT_SECONDS[match[2]]


class Bus:
    """Events on their way to targets. Lambda targets are invoked asynchronously."""

    def __init__(self, clock: Clock, functions: Functions, client: Callable[[str], Any]) -> None:
        self._clock = clock
        self._functions = functions
        self._client = client
        self._pending: list[dict[str, Any]] = []
        self.rules: list[Rule] = []
        self.events: list[dict[str, Any]] = []

    def put(self, source: str, detail_type: str, detail: dict[str, Any], resources: list[str]) -> None:
        self._pending.append(self._event(source, detail_type, detail, resources))

    def put_events(self, params: dict[str, Any]) -> dict[str, Any]:
        """Answers `events:PutEvents`."""
        for entry in params["Entries"]:
            detail = json.loads(entry["Detail"])
            self.put(entry["Source"], entry["DetailType"], detail, entry.get("Resources", []))
        return {"FailedEntryCount": 0, "Entries": [{"EventId": str(uuid.uuid4())} for _ in params["Entries"]]}

    def deliver(self) -> int:
        events, self._pending = self._pending, []
        for event in events:
            self.events.append(event)
            for rule in self.rules:
                if rule.enabled and rule.pattern and patterns.matches(rule.pattern, event):
                    self._send(rule, event)
        return len(events)

    def fire_due(self) -> int:
        """Run the schedules whose time has come, each once for every interval that has passed."""
        fired = 0
        for rule in self.rules:
            while rule.every and rule.enabled and rule.next_run <= self._clock.time + EPSILON:
                rule.next_run += rule.every
                self._send(rule, self._event("aws.events", "Scheduled Event", {}, [rule.arn]))
                fired += 1
        return fired

    def next_tick(self) -> float | None:
        return min((rule.next_run for rule in self.rules if rule.every and rule.enabled), default=None)

    def skip_ticks(self) -> None:
        """Forget the runs that are overdue."""
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

    def _send(self, rule: Rule, event: dict[str, Any]) -> None:
        with behind_the_scenes():
            for target in rule.targets:
                self._send_to(target, target_input(target, event))

    def _send_to(self, target: dict[str, Any], body: str) -> None:
        service = target["Arn"].split(":")[2]
        if service == "lambda":
            self._functions.post(self._functions.get(target["Arn"]), body)
        elif service == "states":
            client: Any = self._client("stepfunctions")
            client.start_execution(stateMachineArn=target["Arn"], input=body, name=str(uuid.uuid4()))
        else:
            send(self._client, target["Arn"], body)


def target_input(target: dict[str, Any], event: dict[str, Any]) -> str:
    """What the target gets: the event, a part of it, a constant, or a template filled from it."""
    if "Input" in target:
        return str(target["Input"])
    if "InputPath" in target:
        return json.dumps(_at(event, target["InputPath"]))
    if "InputTransformer" in target:
        return _transformed(target["InputTransformer"], event)
    return json.dumps(event)


def _at(event: Any, path: str) -> Any:
    for part in path.removeprefix("$").strip(".").split("."):
        event = event.get(part) if part and isinstance(event, dict) else event
    return event


def _transformed(transformer: dict[str, Any], event: dict[str, Any]) -> str:
    template, paths = str(transformer["InputTemplate"]), transformer.get("InputPathsMap", {})

    def value(match: re.Match[str]) -> str:
        found = _at(event, paths[match[1]])
        within_string = template[: match.start()].count('"') % 2
        if not within_string:
            return json.dumps(found)
        return json.dumps(found if isinstance(found, str) else json.dumps(found))[1:-1]

    return re.sub(r"<([\w-]+)>", value, template)
