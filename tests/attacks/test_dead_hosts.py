"""A host that is down costs about as many requests with many URLs as with one, and hurts no host that is up."""

from __future__ import annotations

import pytest

from core.errors import DeliveryError
from tests.support.receiver import Answer, Received, Receiver
from tests.support.service import Service
from tests.support.webhooks import HOUR, canceled, deliveries, endpoint, get_endpoint, health, statuses

DOWN: dict[str, Answer] = {"refused": DeliveryError("connect", "connection refused"), "unavailable": 503}
EVENTS = 24


def requests(service: Service, receiver: Receiver, urls: list[str]) -> int:
    """How many requests there are in three hours for one job to each of these URLs."""
    for url in urls:
        canceled(service, webhook_url=url)
    service.let_pass(3 * HOUR)
    return len(receiver.requests)


@pytest.mark.parametrize("answer", DOWN.values(), ids=DOWN)
def test_number_in_the_query(service: Service, receiver: Receiver, answer: Answer) -> None:
    """24 URLs of a host that is down make about as many requests as one URL: a probe now and then."""
    receiver.always = answer
    many = requests(service, receiver, [f"https://down.example.com/in?order={n}" for n in range(EVENTS)])
    receiver.requests.clear()
    one = requests(service, receiver, ["https://down2.example.com/in"] * EVENTS)
    assert many <= one + 5
    assert many <= 20  # some to open it, and a probe in twice as many minutes each time
    assert statuses(deliveries(service.cloud)) <= {"pending", "failed"}


def test_many_endpoints_of_a_host(service: Service, receiver: Receiver) -> None:
    """So do endpoints of the host. Each shows why its deliveries wait."""
    receiver.always = DeliveryError("connect", "connection refused")
    made = [endpoint(service, f"https://down.example.com/{n}")["webhook_id"] for n in range(EVENTS)]
    canceled(service)
    service.let_pass(HOUR)
    assert len(receiver.requests) <= 20
    shown = [get_endpoint(service, str(identifier)) for identifier in made]
    assert {each["host_circuit"]["state"] for each in shown} == {"open"}
    assert {each["circuit"]["state"] for each in shown} == {"closed"}
    assert all(each["host_circuit"]["next_probe_at"] for each in shown)


def test_host_that_comes_back(service: Service, receiver: Receiver) -> None:
    """When the host is up again, all that was held for it arrives, and probes later by their schedule."""
    receiver.always = DeliveryError("connect", "connection refused")
    requests(service, receiver, [f"https://down.example.com/in?order={n}" for n in range(EVENTS)])
    receiver.always = 200
    service.let_pass(2 * HOUR)
    found = deliveries(service.cloud)
    assert sum(each.status == "delivered" for each in found) > EVENTS / 2
    assert all(each.status == "delivered" or each.due > service.cloud.clock.time for each in found)
    assert health(service.cloud, "host#down.example.com:443").state in ("draining", "closed")


def test_probe_of_a_path_that_fails(service: Service, receiver: Receiver) -> None:
    """A response to the probe that is no sign of a host that is down lets the other paths try."""
    receiver.always = DeliveryError("connect", "connection refused")
    requests(service, receiver, [f"https://down.example.com/in?order={n}" for n in range(EVENTS)])
    receiver.react = lambda received: 200 if received.url.endswith(("7", "8", "9")) else 404
    service.let_pass(3 * HOUR)
    good = [each for each in deliveries(service.cloud) if (each.url or "").endswith(("7", "8", "9"))]
    assert statuses(good) == {"delivered"}


@pytest.mark.parametrize("answer", [503, 404])
def test_one_bad_path(service: Service, receiver: Receiver, answer: Answer) -> None:
    """One path that always fails does not stop nine good ones of the same host."""

    def react(received: Received) -> Answer:
        return answer if received.url.endswith("/0") else 200

    receiver.react = react
    for _ in range(3):
        for number in range(10):
            canceled(service, webhook_url=f"https://chat.example.com/{number}")
        service.let_pass(120)
    good = [each for each in deliveries(service.cloud) if not (each.url or "").endswith("/0")]
    assert (len(good), {(each.status, each.attempts) for each in good}) == (27, {("delivered", 1)})
    assert health(service.cloud, "host#chat.example.com:443").state == "closed"


def test_other_owners_of_a_host(service: Service, receiver: Receiver) -> None:
    """The circuit of one owner's host holds nothing of another owner to the same host."""
    receiver.react = lambda received: 200 if "good" in received.url else DeliveryError("connect", "refused")
    requests(service, receiver, [f"https://shared.example.com/bad?order={n}" for n in range(EVENTS)])
    assert health(service.cloud, "host#shared.example.com:443").is_open
    other = Service(service.cloud, "ben")
    canceled(other, webhook_url="https://shared.example.com/good")
    service.cloud.settle()
    assert statuses([each for each in deliveries(service.cloud) if each.owner == "ben"]) == {"delivered"}


def test_url_that_moves_to_another_host(service: Service, receiver: Receiver) -> None:
    """Deliveries that a dead host's circuit holds go to the endpoint's new URL when it is changed."""
    receiver.react = lambda received: 200 if "up" in received.url else DeliveryError("connect", "refused")
    moved = str(endpoint(service, "https://down.example.com/")["webhook_id"])
    for _ in range(8):
        canceled(service)
    service.let_pass(400)
    assert health(service.cloud, "host#down.example.com:443").is_open
    service.call("PATCH", f"/webhooks/{moved}", json={"url": "https://up.example.com/"})
    service.let_pass(HOUR)
    assert statuses(deliveries(service.cloud)) == {"delivered"}
