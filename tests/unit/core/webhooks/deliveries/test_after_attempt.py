from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest

from core import events
from core.jobs import JobStore
from core.webhooks.deliveries.after_attempt import AfterAttempt
from core.webhooks.deliveries.queue import Message, WebhooksQueue
from core.webhooks.deliveries.store import Delivery, DeliveryStore
from kinds.document.kind import DOCUMENT
from tests.unit.core.jobs.memory_table import MemoryTable
from tests.unit.core.webhooks.rows import FakeSqs, attempt, delivery, failure
from tests.unit.examples import NOW, FakeClock, job

URL = "https://example.com/hook"


class Bench:
    def __init__(self) -> None:
        self.clock, self.sqs = FakeClock(), FakeSqs()
        self.jobs = JobStore(MemoryTable(), "jobs", clock=self.clock)
        self.store = DeliveryStore(MemoryTable(), "deliveries", clock=self.clock)
        self.after_attempt = AfterAttempt(self.jobs, self.store, WebhooksQueue(self.sqs, "url"), clock=self.clock)

    def attempted(self, subject: Delivery, **options: Any) -> Delivery:
        """After one attempt more, which failed and is followed by a wait unless the options say otherwise."""
        made = options.get("made", failure)
        trigger = options.get("trigger", "automatic")
        claim = self.store.claim(subject.delivery_id, attempts=subject.attempts, manual=trigger == "manual")
        assert claim is not None
        one = made(claim.attempts + 1, trigger=trigger, at=events.timestamp(self.clock.now))
        done = self.store.record(claim, one, wait=options.get("wait", 60))
        assert done is not None
        return done

    def chain(self) -> tuple[Delivery, Delivery]:
        """A delivery, and one that waits for it."""
        former = self.store.create(delivery())
        follower = self.store.create(delivery(follows=former.delivery_id))
        assert self.store.link(former.delivery_id, follower.delivery_id)
        return former, follower

    @property
    def queued(self) -> list[str]:
        return [message.delivery_id for message in self.sqs.messages]


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.mark.parametrize(("wait", "delays"), [(0, [0]), (5, [5]), (900, [900]), (901, []), (86_400, [])])
def test_the_next_attempt(bench: Bench, wait: int, delays: list[int]) -> None:
    """The next attempt is queued for when it is due, unless that is farther ahead than a queue can delay."""
    done = bench.attempted(bench.store.create(delivery()), wait=wait)
    bench.after_attempt.follow_up(done)
    assert bench.sqs.delays == delays
    assert bench.sqs.messages == [Message.of(done)] * len(delays)


def test_a_fraction_of_a_second_does_not_shorten_the_wait(bench: Bench) -> None:
    """A queue delays by whole seconds: rounded down, a Retry-After of 5 s would be undercut by one."""
    bench.clock.now += 0.4
    done = bench.attempted(bench.store.create(delivery()), wait=5)
    bench.clock.now += 0.1
    bench.after_attempt.follow_up(done)
    assert bench.sqs.delays[0] >= 5


def test_overdue(bench: Bench) -> None:
    """What should have been queued long ago is queued at once."""
    done = bench.attempted(bench.store.create(delivery()), wait=60)
    bench.clock.now += 5000
    bench.after_attempt.follow_up(done)
    assert bench.sqs.delays == [0]


@pytest.mark.parametrize("made", [attempt, failure])
def test_a_follower_is_released(bench: Bench, made: Any) -> None:
    """The delivery that waits is queued when the one before it has ended, well or badly."""
    former, follower = bench.chain()
    bench.after_attempt.follow_up(bench.attempted(former, made=made, wait=None))
    assert bench.queued == [follower.delivery_id]
    assert bench.sqs.delays == [0]


def test_a_follower_of_what_was_discarded(bench: Bench) -> None:
    """One that ends without an attempt lets its follower go too."""
    former, follower = bench.chain()
    ended = bench.store.end(former.delivery_id, "discarded", attempts=0, reason="disabled")
    assert ended is not None
    bench.after_attempt.follow_up(ended)
    assert bench.queued == [follower.delivery_id]


@pytest.mark.parametrize("trigger", ["automatic", "manual"])
def test_a_follower_waits(bench: Bench, trigger: str) -> None:
    """While the one before has attempts to come, its follower is not queued."""
    former, _ = bench.chain()
    bench.after_attempt.follow_up(bench.attempted(former, trigger=trigger))
    assert bench.queued == [former.delivery_id]


def test_a_follower_waits_for_what_is_in_hand(bench: Bench) -> None:
    """While somebody sends the one before, its follower is not queued."""
    former, _ = bench.chain()
    claim = bench.store.claim(former.delivery_id, attempts=0)
    assert claim is not None
    bench.after_attempt.follow_up(claim)
    assert bench.queued == []


def test_a_follower_keeps_its_time(bench: Bench) -> None:
    """A follower that has been tried already is not sent before its time when the one before ends once more."""
    former, follower = bench.chain()
    ended = bench.attempted(former, wait=None)
    bench.attempted(follower, wait=5000)
    bench.after_attempt.follow_up(bench.attempted(ended, made=attempt, trigger="manual"))
    assert bench.queued == []


def test_a_follower_that_is_done(bench: Bench) -> None:
    """A follower that was sent by hand meanwhile, or is gone, is left alone."""
    former, follower = bench.chain()
    bench.attempted(follower, made=attempt, trigger="manual")
    ended = bench.attempted(former, made=attempt)
    bench.after_attempt.follow_up(ended)
    bench.after_attempt.follow_up(replace(ended, followed_by="dlv_gone"))
    assert bench.queued == []


@pytest.mark.parametrize("first", list(combinations(range(4), 2)))
def test_any_interleaving(bench: Bench, first: tuple[int, int]) -> None:
    """Between them, whoever writes the follower and whoever ends the one before queue it, however they meet."""
    former = bench.store.create(delivery())
    follower = delivery(follows=former.delivery_id)

    def dispatch() -> Any:
        bench.store.create(follower)
        yield
        if not bench.store.link(former.delivery_id, follower.delivery_id):
            bench.sqs.messages.append(Message.of(follower))
        yield

    def send() -> Any:
        done = bench.attempted(former, made=attempt)
        yield
        bench.after_attempt.follow_up(done)
        yield

    one, other = dispatch(), send()
    for step in range(4):
        next(one if step in first else other)
    assert bench.queued == [follower.delivery_id]


def test_done_again(bench: Bench) -> None:
    """Done again it leads to the same messages, for the same attempts."""
    former, follower = bench.chain()
    ended = bench.attempted(former, made=attempt)
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


def test_the_job_shows_it(bench: Bench) -> None:
    """The job's owner sees the last attempt and when the next one is due, for as long as the job is kept."""
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
    """What is followed up late does not hide what came after it."""
    first = bench.attempted(of_job(bench), wait=0)
    bench.clock.now += 60
    second = bench.attempted(first, made=attempt)
    bench.after_attempt.follow_up(second)
    bench.after_attempt.follow_up(first)
    assert shown(bench, second)["status"] == "delivered"


def test_the_job_shows_why_not(bench: Bench) -> None:
    """What ended without an attempt says so on the job."""
    ended = bench.store.end(of_job(bench).delivery_id, "canceled", attempts=0, reason="deleted")
    assert ended is not None
    bench.after_attempt.follow_up(ended)
    seen = shown(bench, ended)
    assert (seen["status"], seen["reason"], seen["last_attempt"]) == ("canceled", "deleted", None)


def test_an_endpoint_is_no_jobs(bench: Bench) -> None:
    """What goes to an endpoint is not shown on the job that the event is about."""
    subject = bench.jobs.submit(DOCUMENT, job()).job
    done = bench.attempted(bench.store.create(delivery(job_id=subject.job_id)), made=attempt)
    bench.after_attempt.follow_up(done)
    assert shown(bench, done) is None
