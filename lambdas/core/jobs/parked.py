"""Events that could not be published, as objects: of the publisher, or of Lambda, which gives up on old records.

Lambda's object is its report of an invocation, with the records of the batch in its payload:
https://docs.aws.amazon.com/lambda/latest/dg/services-dynamodb-errors.html
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from core.aws.blobs import Blobs, parked_key
from core.aws.dynamodb import new_image
from core.jobs.publisher import OF_JOBS

PARKED = "parked/"
DISCARDED = "aws/lambda/"
ATTRIBUTES = ("name", "kind", "owner", "event_id", "body", *OF_JOBS)


NAMESPACE, METRIC, DIMENSION = "Recado", "ParkedEvents", "FunctionName"
"""Of the metric that the alarm in stacks/constructs/alarms.py watches."""


class Unreadable(ValueError):
    """The object is neither an event nor Lambda's report."""


def park(blobs: Blobs, item: Mapping[str, Any]) -> None:
    """Set one event aside."""
    facts = {key: value for key, value in item.items() if key in ATTRIBUTES}
    blobs.put(parked_key(item["event_id"]), json.dumps(facts).encode())


def keys(blobs: Blobs) -> Iterator[str]:
    """All objects of events that wait to be published."""
    yield from (key for key in blobs.keys(PARKED) if key.endswith(".json"))
    yield from blobs.keys(DISCARDED)


def metric(count: int, *, function: str, at: float) -> dict[str, Any]:
    """A log entry that CloudWatch reads as a metric. `at`: epoch seconds.

    https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Embedded_Metric_Format_Specification.html
    """
    directive = {
        "Namespace": NAMESPACE,
        "Dimensions": [[DIMENSION]],
        "Metrics": [{"Name": METRIC, "Unit": "Count"}],
    }
    metadata = {"Timestamp": int(at * 1000), "CloudWatchMetrics": [directive]}
    return {"_aws": metadata, DIMENSION: function, METRIC: count}


def events(content: bytes, *, publisher: str) -> list[dict[str, Any]]:
    """The events of an object that the function `publisher` did not publish, in order.

    Of records that another reader of the stream did not read there is nothing to publish: the publisher had them.
    Raises Unreadable.
    """
    try:
        found = json.loads(content)
        items = _of_report(found, publisher) if "payload" in found else [found]
        logged = [item for item in items if item.get("entity", "event") == "event"]
        return [item for item in logged if all(item[key] for key in ATTRIBUTES[:5])]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Unreadable(f"it is neither an event nor a report of Lambda: {type(error).__name__}") from error


def _of_report(report: Mapping[str, Any], publisher: str) -> list[dict[str, Any]]:
    function = report["requestContext"]["functionArn"].split(":")[6]
    return (
        [new_image(record) for record in json.loads(report["payload"])["Records"]] if function == publisher else []
    )


def job_of(item: Mapping[str, Any]) -> str | None:
    """The id of the event's job; None if it belongs to its owner only."""
    try:
        body = json.loads(item["body"])
    except ValueError:
        return None
    return body.get("job_id") if isinstance(body, dict) else None
