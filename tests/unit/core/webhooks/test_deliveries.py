from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from core import events
from core.webhooks.deliveries import LEASE_SECONDS, Attempt, Delivery, DeliveryStore, fairness_group, for_job
from tests.unit.core.jobs.memory_table import MemoryTable
from tests.unit.examples import DAY, NOW, FakeClock, event

URL = "https://example.com/hook"
OK, ERROR = Attempt(at="now", duration_ms=5, status=204), Attempt(at="now", duration_ms=5, error="timeout")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(dynamodb: Any, deliveries_table: str, clock: FakeClock) -> DeliveryStore:
    return DeliveryStore(dynamodb, deliveries_table, clock=clock)


def created(store: DeliveryStore, **facts: Any) -> Delivery:
    return store.create(
        event(**facts), endpoint_id="default", url=URL, job_expires_at=int(NOW) + DAY, retention_seconds=30 * DAY
    )


def claimed(store: DeliveryStore, delivery: Delivery) -> Delivery:
    claim = store.claim(delivery)
    assert claim is not None
    return claim


def test_create(store: DeliveryStore) -> None:
    """A delivery keeps the event's bytes, the URL as it was then, and when it may be forgotten."""
    delivery = created(store, event_id="evt_1", body='{"a":"\\u00e9"}')
    assert store.get("evt_1#default") == delivery
    assert (delivery.status, delivery.attempts, delivery.body, delivery.url) == (
        "pending",
        0,
        '{"a":"\\u00e9"}',
        URL,
    )
    assert delivery.expires_at == int(NOW) + 30 * DAY
    assert delivery.created_at == events.timestamp(NOW)


def test_create_twice(store: DeliveryStore) -> None:
    """An event that comes twice finds its delivery, whatever has become of it, and overwrites nothing."""
    subject = event()
    options: dict[str, Any] = {"endpoint_id": "default", "job_expires_at": 1, "retention_seconds": 60}
    first = store.create(subject, url=URL, **options)
    store.record(claimed(store, first), OK, wait=None)
    again = store.create(subject, url="https://elsewhere.example.com", **options)
    assert (again.status, again.attempts, again.url) == ("delivered", 1, URL)


def test_unknown(store: DeliveryStore) -> None:
    """A delivery that does not exist is None."""
    assert store.get("evt_1#default") is None


def test_claim_once(store: DeliveryStore) -> None:
    """Two workers that saw the same delivery cannot both have its attempt."""
    delivery = created(store)
    mine = claimed(store, delivery)
    assert (mine.status, mine.attempts, mine.lease_until) == ("sending", 0, int(NOW) + LEASE_SECONDS)
    assert store.claim(delivery) is None
    assert store.get(delivery.delivery_id) == mine


def test_claim_after_a_death(store: DeliveryStore, clock: FakeClock) -> None:
    """An attempt whose worker died is claimed again, once, and the dead one's word counts no more."""
    dead = claimed(store, created(store))
    clock.now += LEASE_SECONDS + 1
    found = store.get(dead.delivery_id)
    assert found is not None
    taken = claimed(store, found)
    assert store.claim(found) is None
    store.record(dead, OK, wait=None)
    assert store.get(dead.delivery_id) == taken


def test_success(store: DeliveryStore) -> None:
    """An attempt that succeeds ends the delivery, whatever wait was planned."""
    done = store.record(claimed(store, created(store)), OK, wait=60)
    assert (done.status, done.attempts, done.lease_until) == ("delivered", 1, 0)
    assert store.get(done.delivery_id) == done


def test_failure_with_another_try(store: DeliveryStore, clock: FakeClock) -> None:
    """An attempt that fails leaves the delivery pending until its next one is due."""
    clock.now += 0.9
    done = store.record(claimed(store, created(store)), ERROR, wait=60)
    assert (done.status, done.attempts, done.due, done.lease_until) == ("pending", 1, int(NOW) + 60, 0)
    assert store.get(done.delivery_id) == done


def test_last_failure(store: DeliveryStore) -> None:
    """The last attempt that fails ends the delivery."""
    done = store.record(claimed(store, created(store)), ERROR, wait=None)
    assert (done.status, done.attempts) == ("failed", 1)


@pytest.mark.parametrize(
    ("status", "succeeded"),
    [(199, False), (200, True), (204, True), (299, True), (300, False), (404, False), (500, False), (None, False)],
)
def test_succeeded(status: int | None, *, succeeded: bool) -> None:
    """An attempt succeeded if it was answered with 2xx, and in no other case."""
    assert Attempt(at="", duration_ms=1, status=status).succeeded is succeeded


def test_give_up(store: DeliveryStore) -> None:
    """A delivery that waits can be given up."""
    delivery = created(store)
    assert store.fail(delivery)
    found = store.get(delivery.delivery_id)
    assert found is not None
    assert found.status == "failed"


def test_give_up_what_is_over(store: DeliveryStore) -> None:
    """A delivery that arrived, or was given up before, stays as it is."""
    done = store.record(claimed(store, created(store)), OK, wait=None)
    assert not store.fail(done)
    assert store.get(done.delivery_id) == done


def test_give_up_what_somebody_has_in_hand(store: DeliveryStore, clock: FakeClock) -> None:
    """A delivery whose sender may be alive is not given up; once its lease is over, it is."""
    mine = claimed(store, created(store))
    clock.now += LEASE_SECONDS - 1
    assert not store.fail(mine)
    assert store.record(mine, OK, wait=None).status == "delivered"
    dead = claimed(store, created(store))
    clock.now += LEASE_SECONDS
    assert store.fail(dead)


def test_give_up_what_has_changed(store: DeliveryStore) -> None:
    """A delivery that moved on since it was looked at is not given up."""
    seen = created(store)
    mine = claimed(store, seen)
    assert not store.fail(seen)
    assert store.get(seen.delivery_id) == mine


def test_for_job(store: DeliveryStore) -> None:
    """What the job shows is JSON, with the last attempt and when the next one is due."""
    waiting = store.record(claimed(store, created(store)), ERROR, wait=60)
    shown = json.loads(json.dumps(for_job(waiting, ERROR)))
    assert shown["next_attempt_at"] == events.timestamp(NOW + 60)
    assert shown["last_attempt"] == {
        "at": "now",
        "duration_ms": 5,
        "status": None,
        "error": "timeout",
        "message": None,
        "body": None,
    }
    assert for_job(replace(waiting, status="delivered"), OK)["next_attempt_at"] is None
    assert "body" not in {key for key in shown if key != "last_attempt"}


def test_fairness(store: DeliveryStore) -> None:
    """Deliveries are grouped by owner and URL, in letters that a group may have."""
    one = created(store)
    others = [replace(one, event_id="evt_2"), replace(one, owner="ben"), replace(one, url=URL + "2")]
    groups = [fairness_group(delivery) for delivery in (one, *others)]
    assert groups[0] == groups[1]
    assert len(set(groups)) == 3
    assert all(len(group) <= 128 and group.isalnum() for group in groups)


class Senders(RuleBasedStateMachine):
    """Workers that hold what they once read, claim, die, record late, and a sweep that gives up."""

    @initialize()
    def create(self) -> None:
        self.clock = FakeClock()
        self.store = DeliveryStore(MemoryTable(), "deliveries", clock=self.clock)
        self.delivery_id = created(self.store).delivery_id
        self.seen = [self.now()]
        self.claims: list[Delivery] = []
        self.sent: list[int] = []
        self.before = self.now()

    def now(self) -> Delivery:
        found = self.store.get(self.delivery_id)
        assert found is not None
        return found

    @rule(seconds=st.integers(0, LEASE_SECONDS + 30))
    def pass_time(self, seconds: int) -> None:
        self.clock.now += seconds

    def known(self, data: st.DataObject) -> Delivery:
        """What a worker believes: what is there now, or what was there some time ago."""
        return data.draw(st.sampled_from([self.now(), *reversed(self.seen)]))

    @rule(data=st.data())
    def claim(self, data: st.DataObject) -> None:
        """What `webhook_sender` does: it claims what is open, due and in nobody's hands, as far as it knows."""
        known = self.known(data)
        if known.status in ("delivered", "failed") or known.lease_until > self.clock.now:
            return
        claim = self.store.claim(known)
        if claim:
            assert claim.attempts not in self.sent or self.before.lease_until <= self.clock.now
            self.sent.append(claim.attempts)
            self.claims.append(claim)

    @rule(data=st.data(), attempt=st.sampled_from([OK, ERROR]), wait=st.sampled_from([None, 0, 5]))
    def record(self, data: st.DataObject, attempt: Attempt, wait: int | None) -> None:
        """A worker records what it claimed, perhaps long after its lease, and perhaps for the second time."""
        if self.claims:
            claim = data.draw(st.sampled_from(self.claims))
            held = self.now() == claim
            recorded = self.store.record(claim, attempt, wait=wait)
            assert (self.now() == recorded) or not held

    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        known = self.known(data)
        held = self.now().status == "sending" and self.now().lease_until > self.clock.now
        assert not (self.store.fail(known) and held)

    @invariant()
    def nothing_goes_back(self) -> None:
        """An end stays, attempts count up one by one, and each needs a claim of its own."""
        before, now = self.before, self.now()
        assert before.status not in ("delivered", "failed") or now == before
        assert now.attempts - before.attempts in (0, 1)
        assert now.attempts <= len(self.claims)
        assert (now.status == "sending") == (now.lease_until > 0)
        if now != before:
            self.seen.append(now)
        self.before = now


TestSenders = Senders.TestCase
TestSenders.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
