"""150 events for five receivers that fail in different ways, for a week, while senders are killed."""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any

import pytest
from moto.dynamodb.models import dynamodb_backends
from moto.dynamodb.models.dynamo_type import DynamoType

from core import ids
from core.errors import DeliveryError
from core.webhooks.deliveries.model import Delivery, delivery_id
from core.webhooks.transport import client
from tests.simulated_cloud.calls import caller
from tests.simulated_cloud.cloud import Cloud, Killed
from tests.simulated_cloud.functions import ACCOUNT, REGION
from tests.support.receiver import Answer, Received, Receiver
from tests.support.service import Service
from tests.support.webhooks import HOUR, assert_no_leftovers, deliveries, endpoint, get_endpoint

EVENTS, JOBS = 150, 6
SHARE = EVENTS // 5
INSIDE = "http://169.254.169.254/latest/meta-data/"
URLS = {name: f"https://{name}.example.com/hook" for name in ("flapping", "dead", "slow", "redirecting", "gone")}
SLOW_SECONDS = 14.0
DOWN = ((0, 3 * HOUR), (4 * HOUR, 5 * HOUR))
"""When the flapping one is down, in seconds from the start."""


class Receivers:
    """The reactions of the receivers. `complaints` are requests for deliveries that were recorded as delivered."""

    def __init__(self, cloud: Cloud, endpoints: dict[str, str], seed: int) -> None:
        self.cloud, self.endpoints = cloud, endpoints
        self.chance, self.start = random.Random(seed), cloud.clock.time
        self.complaints: list[Received] = []
        self.taken: Counter[tuple[str, str]] = Counter()

    def react(self, received: Received) -> Answer:
        (name,) = [name for name, url in URLS.items() if url == received.url]
        if self.status(received.event_id, self.endpoints[name]) == "delivered":
            self.complaints.append(received)
        answer: Answer = getattr(self, name)(received)
        if answer == 200:
            self.taken[name, received.event_id] += 1
        return answer

    def flapping(self, received: Received) -> Answer:
        passed = received.at - self.start
        if any(low <= passed < high for low, high in DOWN):
            answers: list[Answer] = [500, 503, DeliveryError("timeout", "no response")]
            return self.chance.choice(answers)
        return 200 if self.chance.random() < 0.9 else 502

    def dead(self, received: Received) -> Answer:
        return DeliveryError("connect", "connection refused")

    def slow(self, received: Received) -> Answer:
        """All requests of one sender are concurrent, so they end at the same time."""
        sender: Any = caller.get()
        self.cloud.clock.advance_to(max(received.at, sender.started + SLOW_SECONDS))
        return 200

    def redirecting(self, received: Received) -> Answer:
        return client.Response(status=302, headers={"location": INSIDE}, body=b"", truncated=False)

    def gone(self, received: Received) -> Answer:
        return 410

    def status(self, event_id: str, endpoint_id: str) -> str:
        """The current status of a delivery, read directly from moto, which is faster than its API."""
        table = dynamodb_backends[ACCOUNT][REGION].tables[self.cloud.table("Deliveries").name]
        key = DynamoType({"S": f"DELIVERY#{delivery_id(event_id, endpoint_id)}"})
        row = table.items[key][DynamoType({"S": "META"})]
        return str(row.attrs["status"].value)


def part(name: str) -> dict[str, Any]:
    """The filter with which an endpoint gets a fifth of every job's events."""
    size = EVENTS // JOBS // len(URLS)
    first = 1 + list(URLS).index(name) * size
    return {"sequence": [{"numeric": [">=", first, "<", first + size]}]}


def write_events(service: Service) -> None:
    """Write the events to the logs of the jobs, like the API."""
    service.cloud.pause("publisher", "start_job")
    table = service.cloud.table("Jobs")
    with table.batch_writer() as batch:
        for _ in range(JOBS):
            job_id = service.submit()
            first = table.get_item(Key={"pk": f"JOB#{job_id}", "sk": "EVENT#000001"})["Item"]
            for sequence in range(2, EVENTS // JOBS + 1):
                event_id = ids.new("evt")
                changed = {"event_id": event_id, "event": "document.progressed", "sequence": sequence}
                body = json.dumps(json.loads(first["body"]) | changed)
                row = {"sk": f"EVENT#{sequence:06}", "name": "document.progressed", "body": body}
                batch.put_item(Item=first | row | {"event_id": event_id, "sequence": sequence})
                service.cloud.clock.tick()
    service.cloud.resume("publisher")


@pytest.mark.parametrize("seed", [1])
def test_every_delivery_ends(service: Service, receiver: Receiver, seed: int) -> None:
    """Every delivery ends with the right status, and none is sent after a recorded 2xx."""
    cloud = service.cloud
    made = {
        name: str(endpoint(service, url, filter=part(name), events=["document.*"])["webhook_id"])
        for name, url in URLS.items()
    }
    receivers = Receivers(cloud, made, seed)
    receiver.react = receivers.react
    write_events(service)
    cloud.unreliable(seed, duplicates=0.2)
    kills = [
        cloud.fail("*", "*", Killed, function="sender", every=31, times=4),
        cloud.fail("*", "*", Killed, function="sender", after=True, every=67, times=4),
        cloud.fail("*", "*", Killed, function="dispatch", every=233, times=2),
        cloud.fail("*", "*", Killed, function="retry_scheduler", every=333, times=2),
    ]
    service.let_pass(2 * HOUR)
    service.let_pass(7.75 * 24 * HOUR, every=HOUR)  # as if most runs had failed: it only takes longer

    assert [rule.hits for rule in kills] == [4, 4, 2, 2]
    found = {name: deliveries(cloud, endpoint_id=identifier) for name, identifier in made.items()}
    assert {name: len(each) for name, each in found.items()} == dict.fromkeys(URLS, SHARE)
    for name in ("flapping", "slow"):
        assert ended(found[name]) == {"delivered"}
        assert get_endpoint(service, made[name])["enabled"]
    for name in ("dead", "redirecting", "gone"):
        assert ended(found[name]) == {"failed", "discarded"}
        assert get_endpoint(service, made[name])["disabled_reason"] == ("gone" if name == "gone" else "failing")

    assert receivers.complaints == []
    again = {key: count for key, count in receivers.taken.items() if count > 1}
    assert sum(again.values()) <= 8 * 50  # the groups of the killed senders, which were sent but not recorded
    assert len(receivers.taken) == 2 * SHARE
    assert {received.url for received in receiver.requests} == set(URLS.values())
    alerts = {event["event_id"]: event["endpoint_id"] for event in service.published("ErrorAlertsTopic")}
    assert Counter(alerts.values()) == dict.fromkeys([made[name] for name in ("dead", "redirecting", "gone")], 1)
    assert_no_leftovers(cloud)


def ended(found: list[Delivery]) -> set[str]:
    return {each.status for each in found}
