"""Stored events on their way to SNS, each with the bytes that were stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core.events import is_failure

OF_JOBS = ("lifecycle", "status")
"""Attributes of a job's event. An owner's own event has neither."""


class EventPublisher:
    """Sends events to `events_topic`, and failures to `alerts_topic` as well. `sns` is a client."""

    def __init__(self, sns: Any, events_topic: str, alerts_topic: str) -> None:
        self._sns, self._events_topic, self._alerts_topic = sns, events_topic, alerts_topic

    def publish(self, item: Mapping[str, Any]) -> None:
        """Send one stored event to its topics. Raises what boto3 raises."""
        self._send(item, self._events_topic)
        if is_failure(item["name"]):
            self.alert(item)

    def alert(self, item: Mapping[str, Any]) -> None:
        """Send one event to the alerts topic alone."""
        self._send(item, self._alerts_topic)

    def _send(self, item: Mapping[str, Any], topic: str) -> None:
        attributes = {"event_type": item["name"], "kind": item["kind"], "owner": item["owner"]}
        attributes |= {key: item[key] for key in OF_JOBS if key in item}
        self._sns.publish(
            TopicArn=topic,
            Message=item["body"],
            MessageAttributes={
                key: {"DataType": "String", "StringValue": value} for key, value in attributes.items()
            },
            MessageGroupId=item["owner"],  # fair queues: one owner's flood does not delay the others
        )
