"""Publishes stored events to SNS, each with the bytes that were stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core.events import is_failure

OF_JOBS = ("lifecycle", "status")
"""Attributes that a job's event has and an owner's event has not."""


class EventPublisher:
    """Publishes events to `events_topic`, and failures to `alerts_topic`, too. `sns` is a boto3 client."""

    def __init__(self, sns: Any, events_topic: str, alerts_topic: str) -> None:
        self._sns, self._events_topic, self._alerts_topic = sns, events_topic, alerts_topic

    def publish(self, item: Mapping[str, Any]) -> None:
        """Publish one stored event to its topics. Raises what boto3 raises."""
        self._send(item, self._events_topic)
        if is_failure(item["name"]):
            self.alert(item)

    def alert(self, item: Mapping[str, Any]) -> None:
        """Publish one event to the alerts topic only."""
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
            MessageGroupId=item["owner"],  # fair queues: many events of one owner do not delay those of others
        )
