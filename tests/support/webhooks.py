"""Webhooks in tests: endpoints and cheap events through the API, and the contents of the tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from core.webhooks.deliveries.health import Health
from core.webhooks.deliveries.health_store import HealthStore
from core.webhooks.deliveries.model import Attempt, Delivery
from core.webhooks.deliveries.queue import Message
from core.webhooks.deliveries.rows import id_of
from core.webhooks.deliveries.store import DeliveryStore
from core.webhooks.endpoints.model import Endpoint
from core.webhooks.endpoints.store import Endpoints
from tests.simulated_cloud.calls import Call, outside_functions
from tests.simulated_cloud.cloud import Cloud

from .service import Service

HOOK = "https://hooks.example.com/in?token=1"
WAITS = [5, 300, 1800, 7200, 18000, 36000, 50400, 72000, 86400]  # cdk.json's schedule after the first attempt
HOUR = 3600.0
WHOLE = 96 * HOUR  # longer than the whole schedule of a delivery


def canceled(service: Service, **fields: Any) -> str:
    """A job that ends at once, with two events: the cheapest job."""
    job_id = service.submit(**fields)
    service.cancel(job_id)
    return job_id


def secret_of(service: Service) -> str:
    """The owner's default secret, from a job that sends no event to its webhook."""
    job = {"kind": "document", "input": {"text": "t"}, "webhook_url": HOOK, "webhook_events": ["document.started"]}
    answer = service.call("POST", "/jobs", json=job).json()
    service.cancel(answer["job_id"])
    service.cloud.settle()
    return str(answer["webhook_secret"])


def endpoint(service: Service, url: str = HOOK, **fields: Any) -> dict[str, Any]:
    """The response of POST /webhooks to a new endpoint, which gets `document.canceled` by default."""
    body = {"url": url, "events": ["document.canceled"]} | fields
    answer = service.call("POST", "/webhooks", json=body)
    assert answer.status == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


def get_endpoint(service: Service, webhook_id: str) -> dict[str, Any]:
    """GET /webhooks/{webhook_id}"""
    answer = service.call("GET", f"/webhooks/{webhook_id}")
    assert answer.status == 200, answer.text
    view: dict[str, Any] = answer.json()
    return view


def list_deliveries(service: Service, webhook_id: str, **params: str) -> list[dict[str, Any]]:
    """All pages of GET /webhooks/{webhook_id}/deliveries, newest first."""
    found: list[dict[str, Any]] = []
    params = params | {"limit": "100"}
    while True:
        page = service.call("GET", f"/webhooks/{webhook_id}/deliveries", params=params).json()
        found += page["deliveries"]
        if page["cursor"] is None:
            return found
        params["cursor"] = page["cursor"]


def get_delivery(service: Service, delivery_id: str) -> dict[str, Any]:
    """GET /deliveries/{delivery_id}"""
    answer = service.call("GET", f"/deliveries/{delivery_id}")
    assert answer.status == 200, answer.text
    delivery: dict[str, Any] = answer.json()
    return delivery


def store(cloud: Cloud) -> DeliveryStore:
    table = cloud.table("Deliveries")
    return DeliveryStore(table.meta.client, table.name)


def endpoints(cloud: Cloud) -> Endpoints:
    table = cloud.table("Jobs")
    return Endpoints(table.meta.client, table.name)


def stored_endpoint(cloud: Cloud, owner: str, endpoint_id: str) -> Endpoint:
    with outside_functions():
        return endpoints(cloud).get(owner, endpoint_id)


def health(cloud: Cloud, destination: str, owner: str = "ana") -> Health:
    table = cloud.table("Deliveries")
    with outside_functions():
        return HealthStore(table.meta.client, table.name, failures_to_open=10).get(owner, destination)


def deliveries(cloud: Cloud, *, endpoint_id: str | None = None) -> list[Delivery]:
    """All deliveries, or those of one endpoint, in the order of their ids."""
    with outside_functions():
        items = cloud.table("Deliveries").scan()["Items"]
        found = [store(cloud).get(id_of(item)) for item in items if item["sk"] == "META"]
    kept = [each for each in found if each and endpoint_id in (None, each.endpoint_id)]
    return sorted(kept, key=lambda each: each.delivery_id)


def delivery(cloud: Cloud) -> Delivery:
    """The only delivery."""
    (found,) = deliveries(cloud)
    return found


def attempts(cloud: Cloud, found: Delivery) -> list[Attempt]:
    with outside_functions():
        return store(cloud).with_attempts(found.delivery_id, owner=found.owner)[1]


def message(found: Delivery, **facts: Any) -> str:
    """The body of a delivery's message in the webhooks queue."""
    return Message.of(found, **facts).body


def statuses(found: list[Delivery]) -> set[str]:
    return {each.status for each in found}


def assert_no_leftovers(cloud: Cloud) -> None:
    """The queues and dead-letter queues are empty."""
    for name in ("Notify", "Webhooks"):
        for kind in ("Queue", "DeadLetters"):
            assert cloud.queue(f"{name}/{kind}").bodies == [], (name, kind)


def nth(k: int) -> Callable[[Call], bool]:
    """A condition that is true for call number `k` of all invocations. 0 counts as 1."""
    seen = 0

    def matches(call: Call) -> bool:
        nonlocal seen
        seen += 1
        return seen == max(k, 1)

    return matches
