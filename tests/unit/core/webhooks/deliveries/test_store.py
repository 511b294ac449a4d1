"""core.webhooks.deliveries.store"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, precondition, rule

from core import events, ids
from core.errors import NotFound
from core.webhooks.deliveries.model import OPEN, STATUSES, UNSENT, Attempt, Delivery
from core.webhooks.deliveries.rows import QUEUE_RETRY_SECONDS, id_of
from core.webhooks.deliveries.store import LEASE_SECONDS, MAX_QUEUE_RETRY_DOUBLINGS
from tests.unit.core.webhooks.deliveries.conftest import Bench
from tests.unit.core.webhooks.samples import ENDPOINT, attempt, delivery, failure
from tests.unit.examples import DAY, NOW

Item = dict[str, Any]


# ── concurrent workers, some of which are killed ─────────────────────────────────────────────────────────


class Workers(RuleBasedStateMachine):
    """Senders, schedulers, replays and owners act on outdated reads of two deliveries of one destination."""

    claims = Bundle("claims")
    entries = Bundle("entries")
    which = st.sampled_from([0, 1])

    def new_bench(self) -> Bench:
        return Bench()

    @initialize()
    def create(self) -> None:
        self.bench = self.new_bench()
        self.store = self.bench.store
        self.ids = [self.bench.created().delivery_id for _ in range(2)]
        self.log: list[list[Attempt]] = [[], []]
        self.used: list[Delivery] = []

    def row(self, which: int) -> Delivery:
        found = self.store.get(self.ids[which])
        assert found is not None
        return found

    def attempts(self, data: st.DataObject, which: int) -> int:
        """The number of attempts that a worker has read: mostly current, sometimes outdated."""
        return data.draw(st.sampled_from([self.row(which).attempts, self.row(which).attempts, 0, 1, 2]))

    @rule(seconds=st.sampled_from([0, 1, LEASE_SECONDS - 1, LEASE_SECONDS, QUEUE_RETRY_SECONDS, 5000]))
    def pass_time(self, seconds: int) -> None:
        self.bench.clock.now += seconds

    @rule(target=claims, data=st.data(), which=which, manual=st.booleans())
    def claim(self, data: st.DataObject, which: int, manual: bool) -> tuple[int, Delivery | None, bool]:
        before, number = self.row(which), self.attempts(data, which)
        claim = self.store.claim(self.ids[which], attempts=number, manual=manual)
        free = before.lease_until <= self.bench.clock.now and number == before.attempts
        assert (claim is not None) == (free and (manual or before.is_open))
        if claim and manual:
            assert claim == replace(before, lease_until=claim.lease_until)
        return which, claim, manual

    @rule(
        claim=claims, outcome=st.sampled_from(["ok", "error"]), wait=st.sampled_from([None, 0, 5, 900, 901, 9000])
    )
    def record(self, claim: tuple[int, Delivery | None, bool], outcome: str, wait: int | None) -> None:
        """Record a claim, which can be expired or recorded already."""
        which, claimed, manual = claim
        if claimed is None:
            return
        before = self.row(which)
        keys = self.bench.entry(before)
        made = attempt if outcome == "ok" else failure
        trigger = "manual" if manual else "automatic"
        one = made(claimed.attempts + 1, trigger=trigger, at=f"{self.bench.clock.now} {len(self.log[which])}")
        recorded = self.store.record(claimed, one, wait=wait)
        valid = before.lease_until == claimed.lease_until and before.attempts == claimed.attempts
        assert (recorded is not None) == valid
        if recorded is None:
            assert self.row(which) == before
            return
        assert claimed not in self.used, "one claim, one attempt"
        self.used.append(claimed)
        self.log[which].append(one)
        assert recorded == self.row(which)
        if manual and outcome == "error":
            own = {"attempts": before.attempts + 1, "last_attempt": one, "queue_retries": 0, "lease_until": 0}
            status = "pending" if before.is_open else before.status
            assert recorded == replace(before, **own, status=status)
            assert self.bench.entry(before) == keys

    @rule(data=st.data(), which=which, status=st.sampled_from(UNSENT))
    def end(self, data: st.DataObject, which: int, status: str) -> None:
        before, number = self.row(which), self.attempts(data, which)
        ended = self.store.end(self.ids[which], status, attempts=number, reason="disabled")
        unclaimed = before.is_open and before.lease_until <= self.bench.clock.now and number == before.attempts
        assert (ended is not None) == unclaimed

    @rule(
        which=which, replay=st.sampled_from(["job_1", "job_2"]), statuses=st.sampled_from([STATUSES, ("failed",)])
    )
    def requeue(self, which: int, replay: str, statuses: tuple[str, ...]) -> None:
        before = self.row(which)
        again = self.store.requeue(before, replay=replay, statuses=statuses)
        free = before.lease_until <= self.bench.clock.now and before.replay != replay
        assert (again is not None) == (free and before.status in statuses)
        if again:
            assert (again.status, again.tries, again.attempts) == ("pending", 0, before.attempts)

    @rule(data=st.data(), which=which, seconds=st.integers(0, 5000))
    def postpone(self, data: st.DataObject, which: int, seconds: int) -> None:
        self.store.postpone(
            self.ids[which], attempts=self.attempts(data, which), until=self.bench.clock.now + seconds
        )

    @rule(data=st.data(), which=which)
    def hold(self, data: st.DataObject, which: int) -> None:
        row, number = self.row(which), self.attempts(data, which)
        self.store.hold(
            row.delivery_id, owner=row.owner, destination=row.destination, attempts=number, queued_at=row.queued_at
        )

    @rule(target=entries, which=which)
    def see(self, which: int) -> Item:
        """Read an index entry, to be used now or later."""
        row = self.row(which)
        keys = self.bench.entry(row) or ("DUE#00", "never")
        return {"pk": f"DELIVERY#{row.delivery_id}", "sk": "META", "gsi2pk": keys[0], "gsi2sk": keys[1]}

    @rule(entry=entries)
    def mark_queued(self, entry: Item) -> None:
        which = self.ids.index(id_of(entry))
        before, keys = self.row(which), self.bench.entry(self.row(which))
        marked = self.store.mark_queued(entry)
        current = keys == (entry["gsi2pk"], entry["gsi2sk"])
        assert (marked is not None) == (before.is_open and current)
        if marked:
            assert marked == replace(before, queue_retries=marked.queue_retries, held_by=None)

    @rule()
    def link(self) -> None:
        predecessor = self.row(0)
        assert self.store.link(self.ids[0], self.ids[1]) == predecessor.is_open
        if predecessor.is_open:
            assert self.row(0).followed_by == self.ids[1]

    @invariant()
    def index_entries_match_the_status(self) -> None:
        """An open delivery is due or held, one without success is unsent, and a delivered one has no entry."""
        for which in (0, 1):
            row = self.row(which)
            keys = self.bench.entry(row)
            if row.status == "delivered":
                assert keys is None
                continue
            assert keys is not None
            if row.status in UNSENT:
                assert keys[0] == f"UNSENT#ana#{ENDPOINT}#{row.status}"
                assert keys[1] == f"{row.created_at}#{row.delivery_id}"
            else:
                assert keys[0].startswith("DUE#") or keys[0] == f"HELD#ana#{ENDPOINT}"
                assert row.status in OPEN

    @invariant()
    def all_attempts_are_stored(self) -> None:
        """Every recorded attempt is stored once, in order, with numbers from 1 without gaps."""
        for which in (0, 1):
            row, attempts = self.store.with_attempts(self.ids[which], owner="ana")
            assert attempts == self.log[which]
            assert [one.number for one in attempts] == list(range(1, row.attempts + 1))

    @precondition(lambda self: all(self.bench.entry(self.row(which)) for which in (0, 1)))
    @invariant()
    def open_deliveries_become_due(self) -> None:
        """Every open delivery that is not held becomes due."""
        clock, now = self.bench.clock, self.bench.clock.now
        clock.now += QUEUE_RETRY_SECONDS * 2**MAX_QUEUE_RETRY_DOUBLINGS
        due = self.bench.due()
        clock.now = now
        for which in (0, 1):
            keys = self.bench.entry(self.row(which))
            assert keys is not None
            assert (self.ids[which] in due) == keys[0].startswith("DUE#")


TestWorkers = Workers.TestCase
TestWorkers.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)


# ── from one status to another ───────────────────────────────────────────────────────────────────────────────


def test_create(bench: Bench) -> None:
    """A new delivery has the event's bytes and an expiry, and becomes due if no sender makes an attempt."""
    subject = bench.created(body='{"a":"\\u00e9"}')
    assert bench.now(subject) == subject
    assert (subject.status, subject.attempts, subject.body) == ("pending", 0, '{"a":"\\u00e9"}')
    assert subject.expires_at == int(NOW) + 30 * DAY
    assert subject.created_at == events.timestamp(NOW)
    assert bench.due() == []
    bench.clock.now += QUEUE_RETRY_SECONDS
    assert bench.due() == [subject.delivery_id]


def test_create_twice(bench: Bench) -> None:
    """A repeated event returns the existing delivery, and overwrites nothing."""
    first = bench.created(event_id=ids.new("evt"))
    done = bench.attempted(first, attempt(1))
    assert bench.store.create(delivery(event_id=first.event_id, body="{}", replay="job_9")) == done
    assert bench.now(first) == done


def test_create_after_expiry(bench: Bench) -> None:
    """An expired delivery that DynamoDB has not deleted is replaced."""
    first = bench.created(retention_seconds=DAY)
    bench.attempted(first, attempt(1))
    bench.clock.now += DAY
    again = bench.store.create(delivery(event_id=first.event_id, now=bench.clock.now))
    assert (again.status, bench.now(again)) == ("pending", again)
    assert bench.store.with_attempts(again.delivery_id, owner="ana")[1] == []


def test_claim_expired(bench: Bench) -> None:
    """An expired delivery cannot be claimed, also not manually."""
    subject = bench.created(retention_seconds=DAY)
    bench.clock.now += DAY
    assert bench.store.claim(subject.delivery_id, attempts=0) is None
    assert bench.store.claim(subject.delivery_id, attempts=0, manual=True) is None
    assert bench.store.get(subject.delivery_id) is None


@pytest.mark.parametrize("status", STATUSES)
def test_manual_attempt(bench: Bench, status: str) -> None:
    """A manual attempt can be made in each status, and changes it only by a success."""
    subject = bench.created(status=status)
    mine = bench.claimed(subject, manual=True)
    assert mine.status == status
    done = bench.store.record(mine, attempt(1, trigger="manual"), wait=5)
    assert done is not None
    assert (done.status, done.tries, bench.entry(done)) == ("delivered", 0, None)


def test_manual_attempt_after_a_killed_sender(bench: Bench) -> None:
    """A manual failure sets a delivery of a killed sender to pending."""
    subject = bench.claimed(bench.created())
    bench.clock.now += LEASE_SECONDS
    done = bench.attempted(subject, failure(1, trigger="manual"))
    assert (done.status, done.attempts, done.tries) == ("pending", 1, 0)


def test_manual_attempt_of_a_ping(bench: Bench) -> None:
    """A delivered ping stays delivered after a failed manual attempt."""
    done = bench.attempted(bench.created(single=True), attempt(1, trigger="manual"))
    assert bench.attempted(done, failure(2, trigger="manual")).status == "delivered"


def test_a_ping_fails(bench: Bench) -> None:
    """A ping has one attempt."""
    assert bench.attempted(bench.created(single=True), failure(1, trigger="manual"), wait=5).status == "failed"
    assert bench.attempted(bench.created(single=True), failure(1), wait=5).status == "failed"


@pytest.mark.parametrize(
    ("status", "manual", "after"), [("pending", False, "pending"), ("failed", True, "failed")]
)
def test_release(bench: Bench, status: str, manual: bool, after: str) -> None:
    """A released claim leaves the delivery as it was, and another sender can claim it at once."""
    subject = bench.created(status=status)
    released = bench.store.release(bench.claimed(subject, manual=manual))
    assert released is not None
    assert (released.status, released.attempts, released.tries, released.lease_until) == (after, 0, 0, 0)
    assert bench.store.claim(subject.delivery_id, attempts=0, manual=manual)


def test_late_release(bench: Bench) -> None:
    """A sender whose claim was taken over cannot release it."""
    dead = bench.claimed(bench.created())
    bench.clock.now += LEASE_SECONDS
    taken = bench.claimed(bench.now(dead))
    assert bench.store.release(dead) is None
    assert bench.now(dead) == taken


def test_late_record(bench: Bench) -> None:
    """A worker whose claim was taken over cannot record."""
    dead = bench.claimed(bench.created())
    bench.clock.now += LEASE_SECONDS
    taken = bench.claimed(bench.now(dead))
    assert bench.store.record(dead, attempt(1), wait=None) is None
    assert bench.now(dead) == taken


def test_lost_response(bench: Bench) -> None:
    """A record that is repeated after a lost response returns the delivery."""
    claim = bench.claimed(bench.created())
    done = bench.store.record(claim, failure(1), wait=60)
    assert done is not None
    assert bench.store.record(claim, failure(1), wait=60) == done
    assert bench.store.record(claim, failure(1, duration_ms=6), wait=60) is None


def test_a_claim_in_the_same_second(bench: Bench) -> None:
    """A repeated record does not affect the next claim, even if both leases end in the same second."""
    first = bench.claimed(bench.created())
    done = bench.store.record(first, failure(1), wait=0)
    assert done is not None
    second = bench.claimed(done)
    assert second.lease_until == first.lease_until
    bench.store.record(first, attempt(1, duration_ms=9), wait=0)
    assert bench.now(second) == second


@pytest.mark.parametrize(
    ("wait", "due_after"),
    [(0, QUEUE_RETRY_SECONDS), (900, 900 + QUEUE_RETRY_SECONDS), (901, 901), (86_400, 86_400)],
)
def test_when_it_is_due(bench: Bench, wait: int, due_after: int) -> None:
    """A near attempt is due in the index after the time of its message; a far one at its own time."""
    done = bench.attempted(bench.created(), failure(1), wait=wait)
    assert (done.status, done.due, done.tries) == ("pending", int(NOW) + wait, 1)
    assert bench.entry(done)[1] == events.timestamp(NOW + due_after)  # type: ignore[index]
    bench.clock.now += due_after - 1
    assert bench.due() == []
    bench.clock.now += 1
    assert bench.due() == [done.delivery_id]


def test_last_failure(bench: Bench) -> None:
    """After the last attempt fails, the delivery is in the index of failed ones."""
    done = bench.attempted(bench.created(), failure(1), wait=None)
    assert done.status == "failed"
    assert bench.entry(done) == (f"UNSENT#ana#{ENDPOINT}#failed", f"{done.created_at}#{done.delivery_id}")


@pytest.mark.parametrize(("manual", "ended"), [(False, False), (True, False), (True, True)])
def test_late_record_after_a_requeue(bench: Bench, manual: bool, ended: bool) -> None:
    """A record after the lease does not undo a requeue."""
    subject = bench.created()
    if ended:
        subject = bench.attempted(subject, failure(1), wait=None)
    claimed = bench.claimed(subject, manual=manual)
    bench.clock.now += LEASE_SECONDS
    again = bench.store.requeue(bench.now(subject), replay="job_1")
    trigger = "manual" if manual else "automatic"
    assert bench.store.record(claimed, failure(claimed.attempts + 1, trigger=trigger), wait=None) is None
    assert bench.now(subject) == again
    assert again is not None
    assert (again.status, again.tries, again.due) == ("pending", 0, int(bench.clock.now))


def test_requeue(bench: Bench) -> None:
    """A requeued delivery has its whole schedule again, the same bytes, and its attempts."""
    failed = bench.attempted(bench.created(), failure(1), wait=None)
    bench.clock.now += 50_000
    again = bench.store.requeue(failed, replay="job_1", follows="dlv_x")
    assert again is not None
    assert (again.status, again.tries, again.attempts, again.due) == ("pending", 0, 1, int(bench.clock.now))
    assert again.expires_at - failed.expires_at == again.queued_at - failed.queued_at == 50_000
    assert (again.queued_at, again.replay, again.follows, again.body) == (
        int(bench.clock.now),
        "job_1",
        "dlv_x",
        failed.body,
    )
    assert bench.entry(again) == (
        "DUE#" + bench.entry(again)[0][4:],
        events.timestamp(again.due + QUEUE_RETRY_SECONDS),
    )  # type: ignore[index]
    assert bench.store.requeue(again, replay="job_1") is None
    assert bench.store.requeue(again, replay="job_2", statuses=("failed",)) is None
    assert bench.store.requeue(again, replay="job_2") is not None


def test_end(bench: Bench) -> None:
    """An unclaimed delivery can be ended with a reason."""
    ended = bench.store.end(bench.created().delivery_id, "discarded", attempts=0, reason="disabled")
    assert ended is not None
    assert (ended.status, ended.reason, ended.last_attempt) == ("discarded", "disabled", None)
    assert bench.store.end(ended.delivery_id, "canceled", attempts=0, reason="deleted") is None
    assert bench.store.end("dlv_none", "canceled", attempts=0, reason="deleted") is None


def test_success_clears_the_reason(bench: Bench) -> None:
    """A discarded delivery that is delivered later has no reason."""
    ended = bench.store.end(bench.created().delivery_id, "discarded", attempts=0, reason="disabled")
    assert ended is not None
    assert bench.attempted(ended, attempt(1, trigger="manual")).reason is None


# ── when a sender gets it ────────────────────────────────────────────────────────────────────────────────────


def test_mark_queued(bench: Bench) -> None:
    """Without an attempt it is due again, each time after twice as long, up to a maximum."""
    subject = bench.created()
    pauses = []
    for _ in range(MAX_QUEUE_RETRY_DOUBLINGS + 2):
        bench.clock.now += QUEUE_RETRY_SECONDS * 2**MAX_QUEUE_RETRY_DOUBLINGS
        (entry,) = bench.entries()
        marked = bench.store.mark_queued(entry)
        assert marked is not None
        assert bench.store.mark_queued(entry) is None
        keys = bench.entry(marked)
        assert keys is not None
        moment = datetime.fromisoformat(keys[1]).timestamp()
        pauses.append(moment - bench.clock.now)
    assert pauses == [QUEUE_RETRY_SECONDS * 2 ** min(n, MAX_QUEUE_RETRY_DOUBLINGS - 1) for n in range(len(pauses))]
    assert bench.attempted(bench.now(subject), failure(1)).queue_retries == 0


def test_hold(bench: Bench) -> None:
    """Held deliveries are listed in the order of their queue times, and are not due."""
    order = []
    for seconds in (30, 10, 20):
        subject = bench.created(queued_at=int(NOW) + seconds)
        held = bench.store.hold(
            subject.delivery_id, owner="ana", destination=ENDPOINT, attempts=0, queued_at=subject.queued_at
        )
        assert held is not None
        order.append((seconds, subject.delivery_id))
    bench.clock.now += DAY
    assert bench.due() == []
    found = [id_of(entry) for entry in bench.index.held("ana", ENDPOINT, limit=9)]
    assert found == [identifier for _, identifier in sorted(order)]
    assert len(bench.index.held("ana", ENDPOINT, limit=2)) == 2
    until = events.timestamp(NOW + 20)
    assert [id_of(entry) for entry in bench.index.held("ana", ENDPOINT, until=until, limit=9)] == found[:1]
    assert bench.index.held("ana", "other", limit=9) == []
    for entry in bench.index.held("ana", ENDPOINT, limit=9):
        assert bench.store.mark_queued(entry)
    assert bench.index.held("ana", ENDPOINT, limit=9) == []


def test_postpone(bench: Bench) -> None:
    """A postponed delivery is due at that time. One that is claimed or has ended is not postponed."""
    subject = bench.created()
    assert bench.store.postpone(subject.delivery_id, attempts=0, until=NOW + 5000.5)
    bench.clock.now += 5000
    assert bench.due() == []
    bench.clock.now += 1
    assert bench.due() == [subject.delivery_id]
    assert bench.store.postpone(subject.delivery_id, attempts=1, until=NOW) is None
    bench.claimed(subject)
    assert bench.store.postpone(subject.delivery_id, attempts=0, until=NOW) is None


def test_link(bench: Bench) -> None:
    """An open delivery stores its follower. One that has ended or does not exist returns False."""
    predecessor = bench.created()
    assert bench.store.link(predecessor.delivery_id, "dlv_next")
    done = bench.attempted(predecessor, attempt(1))
    assert done.followed_by == "dlv_next"
    assert not bench.store.link(predecessor.delivery_id, "dlv_other")
    assert not bench.store.link("dlv_none", "dlv_other")
    assert bench.now(predecessor).followed_by == "dlv_next"


# ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_owners(bench: Bench) -> None:
    """A delivery of another owner is not found."""
    subject = bench.created()
    assert bench.store.get(subject.delivery_id, owner="ana") == subject
    assert bench.store.get(subject.delivery_id, owner="ben") is None
    with pytest.raises(NotFound):
        bench.store.with_attempts(subject.delivery_id, owner="ben")
    with pytest.raises(NotFound):
        bench.store.with_attempts("dlv_none", owner="ana")


def test_attempts(bench: Bench) -> None:
    """All attempts are stored with all fields, in the order of their numbers."""
    subject, made = bench.created(), []
    for number in range(1, 13):
        one = failure(number, body="\u00e9" * number, truncated=number % 2 == 0, body_is_base64=number == 3)
        subject = bench.attempted(subject, one, wait=0)
        made.append(one)
    assert bench.store.with_attempts(subject.delivery_id, owner="ana") == (subject, made)


def test_attempts_expire_with_it(bench: Bench) -> None:
    """Attempts expire with their delivery."""
    subject = bench.created()
    for number in (1, 2, 3):
        subject = bench.attempted(subject, failure(number), wait=0)
    items = bench.table.scan(TableName=bench.name)["Items"]
    assert len(items) == 3
    assert {int(item["expires_at"]) for item in items} == {subject.expires_at}


# ── erase ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("status", STATUSES)
def test_erase(bench: Bench, status: str) -> None:
    """An open delivery is canceled with the reason; one that has ended keeps its status. No payload is left."""
    created = bench.created(status=status)
    assert bench.store.erase(created)
    erased = bench.now(created)
    was_open = status in ("pending", "sending")
    assert (erased.status, erased.reason) == (("canceled", "job_deleted") if was_open else (status, None))
    assert (erased.body, erased.is_erased) == ("", True)
    assert bench.due() == []
    assert bench.store.erase(erased)


@pytest.mark.parametrize("manual", [False, True])
def test_erase_during_an_attempt(bench: Bench, manual: bool) -> None:
    """While an attempt is in progress nothing is erased; after its record it is, and not tried again."""
    created = bench.created()
    claimed = bench.claimed(created, manual=manual)
    assert not bench.store.erase(claimed)
    assert bench.now(created) == claimed
    recorded = bench.store.record(claimed, failure(1), wait=60)
    assert recorded is not None
    assert bench.store.erase(recorded)
    assert (bench.now(created).status, bench.due()) == ("canceled", [])


def test_erase_of_what_has_changed(bench: Bench) -> None:
    """A delivery that was claimed or attempted since it was read is not erased."""
    created = bench.created()
    claimed = bench.claimed(created)
    assert not bench.store.erase(created)
    bench.store.record(claimed, failure(1), wait=60)
    assert not bench.store.erase(created)
    assert bench.now(created).body == created.body


@pytest.mark.parametrize("status", STATUSES)
def test_erased_delivery_is_not_sent(bench: Bench, status: str) -> None:
    """No attempt of an erased delivery can be claimed, by hand neither, and no replay opens it again."""
    created = bench.created(status=status)
    bench.store.erase(created)
    for manual in (False, True):
        assert bench.store.claim(created.delivery_id, attempts=0, manual=manual) is None
    assert bench.store.requeue(created, replay="job_2") is None
    assert bench.now(created).is_erased


def test_read_all(bench: Bench) -> None:
    """More deliveries than one request reads are read; those that do not exist are left out."""
    wanted = [bench.created(event_id=ids.new("evt")).delivery_id for _ in range(3)]
    missing = [f"dlv_{number}" for number in range(200)]
    assert {each.delivery_id for each in bench.store.read_all([*missing, *wanted])} == set(wanted)
