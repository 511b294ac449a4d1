"""core.webhooks.deliveries.after_attempt"""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest

from core import events
from core.jobs import JobStore
from core.webhooks.deliveries.after_attempt import AfterAttempt, job_webhook
from core.webhooks.deliveries.model import Delivery
from core.webhooks.deliveries.queue import Message, WebhooksQueue
from core.webhooks.deliveries.store import DeliveryStore
from kinds.document.kind import DOCUMENT
from tests.unit.core.jobs.memory_table import MemoryTable
from tests.unit.core.webhooks.samples import FakeSqs, attempt, delivery, failure
from tests.unit.examples import NOW, FakeClock, job

URL = "https://example.com/hook"


class Bench:
    def __init__(self) -> None:
        self.clock, self.sqs = FakeClock(), FakeSqs()
        self.jobs = JobStore(MemoryTable(), "jobs", clock=self.clock)
        self.store = DeliveryStore(MemoryTable(), "deliveries", clock=self.clock)
        self.after_attempt = AfterAttempt(self.jobs, self.store, WebhooksQueue(self.sqs, "url"), clock=self.clock)

    def attempted(self, subject: Delivery, **options: Any) -> Delivery:
        """The delivery after one more attempt: by default a failure with a wait."""
        made = options.get("made", failure)
        trigger = options.get("trigger", "automatic")
        claim = self.store.claim(subject.delivery_id, attempts=subject.attempts, manual=trigger == "manual")
        assert claim is not None
        one = made(claim.attempts + 1, trigger=trigger, at=events.timestamp(self.clock.now))
        done = self.store.record(claim, one, wait=options.get("wait", 60))
        assert done is not None
        return done

    def chain(self) -> tuple[Delivery, Delivery]:
        """A delivery and its follower."""
        predecessor = self.store.create(delivery())
        follower = self.store.create(delivery(follows=predecessor.delivery_id))
        assert self.store.link(predecessor.delivery_id, follower.delivery_id)
        return predecessor, follower

    @property
    def queued(self) -> list[str]:
        return [message.delivery_id for message in self.sqs.messages]


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.mark.parametrize(("wait", "delays"), [(0, [0]), (5, [5]), (900, [900]), (901, []), (86_400, [])])
def test_the_next_attempt(bench: Bench, wait: int, delays: list[int]) -> None:
    """The next attempt is queued with its delay, if a queue can delay that long."""
    done = bench.attempted(bench.store.create(delivery()), wait=wait)
    bench.after_attempt.follow_up(done)
    assert bench.sqs.delays == delays
    assert bench.sqs.messages == [Message.of(done)] * len(delays)


def test_a_fraction_of_a_second_does_not_shorten_the_wait(bench: Bench) -> None:
    """The delay is rounded up to whole seconds, so that a Retry-After of 5 s is respected."""
    bench.clock.now += 0.4
    done = bench.attempted(bench.store.create(delivery()), wait=5)
    bench.clock.now += 0.1
    bench.after_attempt.follow_up(done)
    assert bench.sqs.delays[0] >= 5


@pytest.mark.parametrize("trigger", ["automatic", "manual"])
def test_a_follower_waits(bench: Bench, trigger: str) -> None:
    """The follower is not queued while its predecessor has attempts left."""
    predecessor, _ = bench.chain()
    bench.after_attempt.follow_up(bench.attempted(predecessor, trigger=trigger))
    assert bench.queued == [predecessor.delivery_id]


def test_a_follower_waits_for_a_claimed_delivery(bench: Bench) -> None:
    """The follower is not queued while its predecessor is claimed."""
    predecessor, _ = bench.chain()
    claim = bench.store.claim(predecessor.delivery_id, attempts=0)
    assert claim is not None
    bench.after_attempt.follow_up(claim)
    assert bench.queued == []


def test_a_follower_keeps_its_time(bench: Bench) -> None:
    """A follower that waits for its retry keeps its due time when its predecessor ends again."""
    predecessor, follower = bench.chain()
    ended = bench.attempted(predecessor, wait=None)
    bench.attempted(follower, wait=5000)
    bench.after_attempt.follow_up(bench.attempted(ended, made=attempt, trigger="manual"))
    assert bench.queued == []


def test_a_follower_that_has_ended(bench: Bench) -> None:
    """A follower that has ended, or does not exist, is not queued."""
    predecessor, follower = bench.chain()
    bench.attempted(follower, made=attempt, trigger="manual")
    ended = bench.attempted(predecessor, made=attempt)
    bench.after_attempt.follow_up(ended)
    bench.after_attempt.follow_up(replace(ended, followed_by="dlv_gone"))
    assert bench.queued == []


@pytest.mark.parametrize("first", list(combinations(range(4), 2)))
def test_any_interleaving(bench: Bench, first: tuple[int, int]) -> None:
    """Whatever the order of the dispatcher's and the sender's steps, the follower is queued once."""
    predecessor = bench.store.create(delivery())
    follower = delivery(follows=predecessor.delivery_id)

    def dispatch() -> Any:
        bench.store.create(follower)
        yield
        if not bench.store.link(predecessor.delivery_id, follower.delivery_id):
            bench.sqs.messages.append(Message.of(follower))
        yield

    def send() -> Any:
        done = bench.attempted(predecessor, made=attempt)
        yield
        bench.after_attempt.follow_up(done)
        yield

    one, other = dispatch(), send()
    for step in range(4):
        next(one if step in first else other)
    assert bench.queued == [follower.delivery_id]


def test_repeated_follow_up(bench: Bench) -> None:
    """A repeated follow-up queues the same attempts."""
    predecessor, follower = bench.chain()
    ended = bench.attempted(predecessor, made=attempt)
    for _ in range(3):
        bench.after_attempt.follow_up(ended)
    assert set(bench.queued) == {follower.delivery_id}
    assert {message.attempts for message in bench.sqs.messages} == {0}


# ── what the job shows ───────────────────────────────────────────────────────────────────────────────────────


def of_job(bench: Bench, **facts: Any) -> Delivery:
    subject = bench.jobs.submit(DOCUMENT, job(webhook_url=URL)).job
    made = delivery(
        endpoint_id="default", url=URL, job_id=subject.job_id, job_expires_at=subject.expires_at, **facts
    )
    return bench.store.create(made)


def shown(bench: Bench, subject: Delivery) -> Any:
    return bench.jobs.snapshot(str(subject.job_id), owner="ana").webhook


def test_the_job_shows_its_webhook(bench: Bench) -> None:
    """The job shows the last attempt and the time of the next one, for as long as the job is kept."""
    done = bench.attempted(of_job(bench), wait=60)
    bench.after_attempt.follow_up(done)
    seen = shown(bench, done)
    assert (seen["status"], seen["attempts"], seen["url"]) == ("pending", 1, URL)
    assert seen["next_attempt_at"] == events.timestamp(NOW + 60)
    assert seen["last_attempt"]["error"] == "timeout"
    assert seen["expires_at"] == done.job_expires_at
    bench.clock.now += 60
    bench.after_attempt.follow_up(bench.attempted(done, made=attempt))
    assert shown(bench, done)["status"] == "delivered"


def test_the_job_shows_the_latest(bench: Bench) -> None:
    """A late follow-up does not overwrite the result of a later attempt."""
    first = bench.attempted(of_job(bench), wait=0)
    bench.clock.now += 60
    second = bench.attempted(first, made=attempt)
    bench.after_attempt.follow_up(second)
    bench.after_attempt.follow_up(first)
    assert shown(bench, second)["status"] == "delivered"


def test_the_job_shows_the_reason(bench: Bench) -> None:
    """The job shows the reason of a delivery that ended without an attempt."""
    ended = bench.store.end(of_job(bench).delivery_id, "canceled", attempts=0, reason="deleted")
    assert ended is not None
    bench.after_attempt.follow_up(ended)
    seen = shown(bench, ended)
    assert (seen["status"], seen["reason"], seen["last_attempt"]) == ("canceled", "deleted", None)


def test_the_job_does_not_show_deliveries_to_endpoints(bench: Bench) -> None:
    """The job does not show deliveries to endpoints."""
    subject = bench.jobs.submit(DOCUMENT, job()).job
    done = bench.attempted(bench.store.create(delivery(job_id=subject.job_id)), made=attempt)
    bench.after_attempt.follow_up(done)
    assert shown(bench, done) is None


def test_job_webhook(bench: Bench) -> None:
    """The view of a job has no request headers, and no next attempt after the end. Before, it has no last one."""
    subject = bench.store.create(delivery(endpoint_id="default", url=URL))
    assert job_webhook(subject)["last_attempt"] is None
    pending = bench.attempted(subject)
    assert "request_headers" not in json.dumps(job_webhook(pending))
    assert job_webhook(replace(pending, status="delivered"))["next_attempt_at"] is None
