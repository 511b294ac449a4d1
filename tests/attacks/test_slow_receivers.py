"""An owner whose receivers answer late, or whose names are never resolved, delays no other owner."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter as real_time
from typing import Any

import pytest

from core import ids
from core.errors import DeliveryError
from core.webhooks.deliveries.model import Delivery, draft
from core.webhooks.transport import client, lookups
from core.webhooks.transport.guard import Policy
from core.webhooks.transport.lookups import Lookups, LookupsBusy
from tests.simulated_cloud.calls import outside_functions
from tests.simulated_cloud.cloud import Cloud
from tests.simulated_cloud.event_source_mappings import moto_queue
from tests.support.receiver import Answer, Received, Receiver
from tests.support.service import Service
from tests.support.webhooks import deliveries, endpoint, message, statuses, store
from webhooks.sender.in_flight import NEW_HOST_ATTEMPTS, OWNER_ATTEMPTS

REAL_SECONDS = 20.0  # for which a slow receiver stalls if the rest is not sent meanwhile


@pytest.fixture
def mallory(service: Service) -> Service:
    return Service(service.cloud, "mallory")


class Stalling:
    """Receivers at hosts that contain `slow` answer when `released` is true, the others at once.

    `most` is how many slow requests there were at a time, `answered` the number of the others.
    """

    def __init__(self, receiver: Receiver) -> None:
        self.released: Callable[[], bool] = lambda: False
        self.on_first: Callable[[], None] = lambda: None
        self.running, self.most, self.answered, self.timed_out = 0, 0, 0, False
        self._lock = threading.Lock()
        receiver.react = self.react

    def react(self, received: Received) -> Answer:
        with self._lock:
            if "slow" not in received.url:
                self.answered += 1
                return 200
            self.running += 1
            self.most = max(self.most, self.running)
            on_first, self.on_first = self.on_first, lambda: None
        with outside_functions():
            on_first()
        until = real_time() + REAL_SECONDS
        while not self.released() and not self.timed_out:
            threading.Event().wait(0.02)
            self.timed_out |= real_time() > until
        with self._lock:
            self.running -= 1
        return 200


def written(cloud: Cloud, owner: str, endpoint_id: str, count: int) -> list[Delivery]:
    """New deliveries to an endpoint, not queued."""
    with outside_functions():
        return [
            store(cloud).create(
                draft(
                    event_id=ids.new("evt"),
                    endpoint_id=endpoint_id,
                    now=cloud.clock.time,
                    retention_seconds=86_400,
                    event="document.canceled",
                    owner=owner,
                    format="recado",
                    body="{}",
                )
            )
            for _ in range(count)
        ]


def queue(cloud: Cloud, found: list[Delivery]) -> None:
    for each in found:
        cloud.queue("Webhooks/Queue").send(message(each), MessageGroupId=each.owner)


@pytest.mark.parametrize("count", [1, 3, 10])
def test_small_batch_of_slow_receivers(service: Service, mallory: Service, receiver: Receiver, count: int) -> None:
    """A sender that waits for slow receivers sends what comes to the queue meanwhile."""
    cloud, stalling = service.cloud, Stalling(receiver)
    slow = [str(endpoint(mallory, f"https://slow-{n}.example.com/")["webhook_id"]) for n in range(count)]
    fast = written(cloud, "ana", str(endpoint(service)["webhook_id"]), 3)
    stalling.on_first = lambda: queue(cloud, fast)
    stalling.released = lambda: stalling.answered == len(fast)
    queue(cloud, [each for identifier in slow for each in written(cloud, "mallory", identifier, 1)])
    cloud.settle()
    assert not stalling.timed_out
    assert statuses(deliveries(cloud)) == {"delivered"}


@pytest.mark.parametrize(
    ("hosts", "most"), [(1, NEW_HOST_ATTEMPTS), (24, OWNER_ATTEMPTS)], ids=["one host", "many hosts"]
)
def test_many_slow_attempts(service: Service, mallory: Service, receiver: Receiver, hosts: int, most: int) -> None:
    """However many messages an owner has, few attempts run at once, and another owner's go out meanwhile."""
    cloud, stalling = service.cloud, Stalling(receiver)
    fast = written(cloud, "ana", str(endpoint(service)["webhook_id"]), 1)
    slow: list[Delivery] = []
    for number in range(hosts):
        identifier = str(endpoint(mallory, f"https://slow-{number}.example.com/")["webhook_id"])
        slow += written(cloud, "mallory", identifier, 120 // hosts)
    begin = real_time()
    stalling.released = lambda: real_time() - begin > 3 and stalling.answered == len(fast)
    queue(cloud, slow)
    queue(cloud, fast)
    cloud.settle()
    assert not stalling.timed_out
    assert 0 < stalling.most <= most
    receives = [
        each.approximate_receive_count for each in moto_queue(cloud.queue("Webhooks/Queue").name)._messages
    ]
    assert set(receives) <= {0}  # what there was no room for came back as a new message
    stalling.released = lambda: True
    cloud.settle(within=600)
    found = [each for each in deliveries(cloud) if each.owner == "mallory"]
    assert {(each.status, each.attempts) for each in found} == {("delivered", 1)}


def test_one_group_for_all_urls_of_an_owner(service: Service, receiver: Receiver) -> None:
    """The queue counts an owner, however many URLs and queries the owner has."""
    cloud = service.cloud
    cloud.pause("sender")
    for number in range(3):
        service.cancel(service.submit(webhook_url=f"https://h{number}.example.com/?order={number}"))
    endpoint(service)
    service.cancel(service.submit())
    cloud.settle()
    queued = moto_queue(cloud.queue("Webhooks/Queue").name)._messages
    assert len(queued) > 3
    assert {each.group_id for each in queued} == {"ana"}


# ── names that are never resolved ──────────────────────────────────────────────────────────────────────────


@pytest.fixture
def hang(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], list[str]]]:
    """A resolver that answers at the end of the test."""
    monkeypatch.setattr(client, "_LOOKUPS", Lookups(wait_seconds=0.05))
    over = threading.Event()

    def resolve(host: str) -> list[str]:
        over.wait(REAL_SECONDS)
        return []

    yield resolve
    over.set()


def post(owner: str, resolve: Callable[[str], list[str]]) -> Exception:
    """The error of an attempt."""
    options: dict[str, Any] = {"policy": Policy(), "deadline_seconds": 2, "resolve": resolve, "owner": owner}
    with pytest.raises(Exception) as raised:  # noqa: PT011 its class is the result
        client.post("https://example.com/", body=b"{}", headers={}, **options)
    return raised.value


def test_hung_lookups(hang: Callable[[str], list[str]]) -> None:
    """128 lookups of one owner that never end leave threads for another owner's, and cost no attempt beyond."""
    with ThreadPoolExecutor(129) as threads:
        hung = [threads.submit(post, "mallory", hang) for _ in range(128)]
        threading.Event().wait(0.5)
        begin = real_time()
        other = post("ana", lambda host: [])
        assert isinstance(other, DeliveryError)
        assert (other.error_class, real_time() - begin < 1) == ("dns", True)
        errors = [future.result() for future in hung]
    assert sum(isinstance(error, DeliveryError) for error in errors) == lookups.PER_OWNER
    assert sum(isinstance(error, LookupsBusy) for error in errors) == 128 - lookups.PER_OWNER


def test_lookups_that_outlive_their_attempts(hang: Callable[[str], list[str]]) -> None:
    """A lookup counts until its thread ends, not until its attempt does."""
    with ThreadPoolExecutor(lookups.PER_OWNER) as threads:
        list(threads.map(lambda _: post("mallory", hang), range(lookups.PER_OWNER)))
    assert isinstance(post("mallory", hang), LookupsBusy)
