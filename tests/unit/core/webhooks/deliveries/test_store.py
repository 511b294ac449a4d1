from __future__ import annotations

import json
from dataclasses import asdict, replace
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, precondition, rule

from core import events, ids
from core.errors import NotFound
from core.webhooks.deliveries.store import (
    DUE_SHARDS,
    LEASE_SECONDS,
    MAX_SAFETY_DOUBLINGS,
    OPEN,
    SAFETY_SECONDS,
    STATUSES,
    UNSENT,
    Attempt,
    Delivery,
    DeliveryStore,
    after,
    delivery_id,
    destination_of,
    for_job,
    id_of,
    is_delivery_id,
)
from tests.unit.core.jobs.memory_table import MemoryTable
from tests.unit.core.webhooks.rows import ENDPOINT, attempt, delivery, failure
from tests.unit.examples import DAY, NOW, FakeClock

URL = "https://example.com/hook"
Item = dict[str, Any]


class Bench:
    """A store over a table, and the clock that it goes by."""

    def __init__(self, table: Any = None, name: str = "deliveries") -> None:
        self.table, self.name = table or MemoryTable(), name
        self.clock = FakeClock()
        self.store = DeliveryStore(self.table, name, clock=self.clock)

    def created(self, **facts: Any) -> Delivery:
        return self.store.create(delivery(now=self.clock.now, **facts))

    def claimed(self, subject: Delivery, **options: Any) -> Delivery:
        claim = self.store.claim(subject.delivery_id, attempts=subject.attempts, **options)
        assert claim is not None
        return claim

    def attempted(self, subject: Delivery, attempt: Attempt, wait: int | None = 60) -> Delivery:
        done = self.store.record(self.claimed(subject, manual=attempt.trigger == "manual"), attempt, wait=wait)
        assert done is not None
        return done

    def now(self, subject: Delivery) -> Delivery:
        found = self.store.get(subject.delivery_id)
        assert found is not None
        return found

    def place(self, subject: Delivery) -> tuple[str, str] | None:
        """Where it stands in the index of what waits."""
        item = self.table.get_item(
            TableName=self.name, Key={"pk": f"DELIVERY#{subject.delivery_id}", "sk": "META"}
        )
        item = item["Item"]
        assert ("gsi2pk" in item) == ("gsi2sk" in item)
        return (item["gsi2pk"], item["gsi2sk"]) if "gsi2pk" in item else None

    def due(self) -> list[str]:
        """Ids of what must be looked at now."""
        return [id_of(entry) for shard in range(DUE_SHARDS) for entry in self.store.due(shard)]

    def entries(self) -> list[Item]:
        return [entry for shard in range(DUE_SHARDS) for entry in self.store.due(shard)]


@pytest.fixture
def bench(dynamodb: Any, deliveries_table: str) -> Bench:
    return Bench(dynamodb, deliveries_table)


# ── any number of workers, in any order, with deaths ─────────────────────────────────────────────────────────


class Workers(RuleBasedStateMachine):
    """Senders, wakers, replays and owners that act on what they once read, on two deliveries of one destination."""

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
        """What a worker believes: mostly right, sometimes out of date."""
        return data.draw(st.sampled_from([self.row(which).attempts, self.row(which).attempts, 0, 1, 2]))

    @rule(seconds=st.sampled_from([0, 1, LEASE_SECONDS - 1, LEASE_SECONDS, SAFETY_SECONDS, 5000]))
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
        """Perhaps long after the lease, and perhaps for the second time."""
        which, claimed, manual = claim
        if claimed is None:
            return
        before = self.row(which)
        place = self.bench.place(before)
        made = attempt if outcome == "ok" else failure
        trigger = "manual" if manual else "automatic"
        one = made(claimed.attempts + 1, trigger=trigger, at=f"{self.bench.clock.now} {len(self.log[which])}")
        recorded = self.store.record(claimed, one, wait=wait)
        held = before.lease_until == claimed.lease_until and before.attempts == claimed.attempts
        assert (recorded is not None) == held
        if recorded is None:
            assert self.row(which) == before
            return
        assert claimed not in self.used, "one claim, one attempt"
        self.used.append(claimed)
        self.log[which].append(one)
        assert recorded == self.row(which)
        if manual and outcome == "error":
            own = {"attempts": before.attempts + 1, "last_attempt": one, "wakes": 0, "lease_until": 0}
            status = "pending" if before.is_open else before.status
            assert recorded == replace(before, **own, status=status)
            assert self.bench.place(before) == place

    @rule(data=st.data(), which=which, status=st.sampled_from(UNSENT))
    def end(self, data: st.DataObject, which: int, status: str) -> None:
        before, number = self.row(which), self.attempts(data, which)
        ended = self.store.end(self.ids[which], status, attempts=number, reason="disabled")
        idle = before.is_open and before.lease_until <= self.bench.clock.now and number == before.attempts
        assert (ended is not None) == idle

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
        """An entry of the index as it is, to be acted on now or much later."""
        row = self.row(which)
        place = self.bench.place(row) or ("DUE#00", "never")
        return {"pk": f"DELIVERY#{row.delivery_id}", "sk": "META", "gsi2pk": place[0], "gsi2sk": place[1]}

    @rule(entry=entries)
    def wake(self, entry: Item) -> None:
        which = self.ids.index(id_of(entry))
        before, place = self.row(which), self.bench.place(self.row(which))
        woken = self.store.wake(entry)
        current = place == (entry["gsi2pk"], entry["gsi2sk"])
        assert (woken is not None) == (before.is_open and current)
        if woken:
            assert woken == replace(before, wakes=woken.wakes)

    @rule()
    def link(self) -> None:
        former = self.row(0)
        assert self.store.link(self.ids[0], self.ids[1]) == former.is_open
        if former.is_open:
            assert self.row(0).followed_by == self.ids[1]

    @invariant()
    def everything_stands_where_it_should(self) -> None:
        """What is open waits for a time or a circuit; what ended without success can be found; else nothing."""
        for which in (0, 1):
            row = self.row(which)
            place = self.bench.place(row)
            if row.status == "delivered":
                assert place is None
                continue
            assert place is not None
            if row.status in UNSENT:
                assert place[0] == f"UNSENT#ana#{ENDPOINT}#{row.status}"
                assert place[1] == f"{row.created_at}#{row.delivery_id}"
            else:
                assert place[0].startswith("DUE#") or place[0] == f"HELD#ana#{ENDPOINT}"
                assert row.status in OPEN

    @invariant()
    def the_log_is_whole(self) -> None:
        """Every attempt that was written down is there, once, in order, numbered from 1 without a gap."""
        for which in (0, 1):
            row, attempts = self.store.with_attempts(self.ids[which], owner="ana")
            assert attempts == self.log[which]
            assert [one.number for one in attempts] == list(range(1, row.attempts + 1))

    @precondition(lambda self: all(self.bench.place(self.row(which)) for which in (0, 1)))
    @invariant()
    def nothing_waits_for_ever(self) -> None:
        """What waits for a time is due once that time has come."""
        clock, now = self.bench.clock, self.bench.clock.now
        clock.now += SAFETY_SECONDS * 2**MAX_SAFETY_DOUBLINGS
        due = self.bench.due()
        clock.now = now
        for which in (0, 1):
            place = self.bench.place(self.row(which))
            assert place is not None
            assert (self.ids[which] in due) == place[0].startswith("DUE#")


TestWorkers = Workers.TestCase
TestWorkers.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)


# ── from one status to another ───────────────────────────────────────────────────────────────────────────────


def test_create(bench: Bench) -> None:
    """A delivery keeps the event's bytes and when it may be forgotten, and is looked at if nobody takes it."""
    subject = bench.created(body='{"a":"\\u00e9"}')
    assert bench.now(subject) == subject
    assert (subject.status, subject.attempts, subject.body) == ("pending", 0, '{"a":"\\u00e9"}')
    assert subject.expires_at == int(NOW) + 30 * DAY
    assert subject.created_at == events.timestamp(NOW)
    assert bench.due() == []
    bench.clock.now += SAFETY_SECONDS
    assert bench.due() == [subject.delivery_id]


def test_create_discarded(bench: Bench) -> None:
    """One that is written as discarded waits for nothing, and can be found."""
    subject = bench.created(status="discarded", reason="disabled")
    assert bench.place(subject) == (
        f"UNSENT#ana#{ENDPOINT}#discarded",
        f"{subject.created_at}#{subject.delivery_id}",
    )


def test_create_twice(bench: Bench) -> None:
    """An event that comes twice finds its delivery, whatever has become of it, and overwrites nothing."""
    first = bench.created(event_id=ids.new("evt"))
    done = bench.attempted(first, attempt(1))
    assert bench.store.create(delivery(event_id=first.event_id, body="{}", replay="job_9")) == done
    assert bench.now(first) == done


def test_create_anew(bench: Bench) -> None:
    """What has expired does not stand in the way, though the table has not removed it yet."""
    first = bench.created(retention_seconds=DAY)
    bench.attempted(first, attempt(1))
    bench.clock.now += DAY
    again = bench.store.create(delivery(event_id=first.event_id, now=bench.clock.now))
    assert (again.status, bench.now(again)) == ("pending", again)
    assert bench.store.with_attempts(again.delivery_id, owner="ana")[1] == []


def test_claim_once(bench: Bench) -> None:
    """Two workers that saw the same delivery cannot both have its attempt."""
    subject = bench.created()
    mine = bench.claimed(subject)
    assert (mine.status, mine.attempts, mine.lease_until) == ("sending", 0, int(NOW) + LEASE_SECONDS)
    assert bench.store.claim(subject.delivery_id, attempts=0) is None
    assert bench.store.claim(subject.delivery_id, attempts=0, manual=True) is None
    assert bench.now(subject) == mine


def test_claim_what_has_expired(bench: Bench) -> None:
    """What is to be forgotten is not sent, by nobody's wish."""
    subject = bench.created(retention_seconds=DAY)
    bench.clock.now += DAY
    assert bench.store.claim(subject.delivery_id, attempts=0) is None
    assert bench.store.claim(subject.delivery_id, attempts=0, manual=True) is None
    assert bench.store.get(subject.delivery_id) is None


@pytest.mark.parametrize("status", STATUSES)
def test_by_hand(bench: Bench, status: str) -> None:
    """An attempt by hand is made whatever the status, and leaves it alone until it succeeds."""
    subject = bench.created(status=status)
    mine = bench.claimed(subject, manual=True)
    assert mine.status == status
    done = bench.store.record(mine, attempt(1, trigger="manual"), wait=5)
    assert done is not None
    assert (done.status, done.tries, bench.place(done)) == ("delivered", 0, None)


def test_by_hand_after_a_death(bench: Bench) -> None:
    """One whose sender died and that fails by hand waits again, rather than being in nobody's hands for long."""
    subject = bench.claimed(bench.created())
    bench.clock.now += LEASE_SECONDS
    done = bench.attempted(subject, failure(1, trigger="manual"))
    assert (done.status, done.attempts, done.tries) == ("pending", 1, 0)


def test_a_test_by_hand_again(bench: Bench) -> None:
    """A test that arrived stays so, though it fails when it is sent once more."""
    done = bench.attempted(bench.created(single=True), attempt(1, trigger="manual"))
    assert bench.attempted(done, failure(2, trigger="manual")).status == "delivered"


def test_a_test_fails(bench: Bench) -> None:
    """A test has one attempt."""
    assert bench.attempted(bench.created(single=True), failure(1, trigger="manual"), wait=5).status == "failed"
    assert bench.attempted(bench.created(single=True), failure(1), wait=5).status == "failed"


def test_the_dead_ones_word(bench: Bench) -> None:
    """Once another has claimed what a dead worker had, the dead one's word counts no more."""
    dead = bench.claimed(bench.created())
    bench.clock.now += LEASE_SECONDS
    taken = bench.claimed(bench.now(dead))
    assert bench.store.record(dead, attempt(1), wait=None) is None
    assert bench.now(dead) == taken


def test_a_lost_answer(bench: Bench) -> None:
    """Whoever writes an attempt down again, because the answer was lost, learns that it is written."""
    claim = bench.claimed(bench.created())
    done = bench.store.record(claim, failure(1), wait=60)
    assert done is not None
    assert bench.store.record(claim, failure(1), wait=60) == done
    assert bench.store.record(claim, failure(1, duration_ms=6), wait=60) is None


def test_a_claim_in_the_same_second(bench: Bench) -> None:
    """What was written down twice does not hit the next claim, though its lease ends at the same second."""
    first = bench.claimed(bench.created())
    done = bench.store.record(first, failure(1), wait=0)
    assert done is not None
    second = bench.claimed(done)
    assert second.lease_until == first.lease_until
    bench.store.record(first, attempt(1, duration_ms=9), wait=0)
    assert bench.now(second) == second


@pytest.mark.parametrize(
    ("wait", "due_after"), [(0, SAFETY_SECONDS), (900, 900 + SAFETY_SECONDS), (901, 901), (86_400, 86_400)]
)
def test_when_it_is_looked_at(bench: Bench, wait: int, due_after: int) -> None:
    """A near attempt is the queue's, and the index is for safety; a far one is the index's alone."""
    done = bench.attempted(bench.created(), failure(1), wait=wait)
    assert (done.status, done.due, done.tries) == ("pending", int(NOW) + wait, 1)
    assert bench.place(done)[1] == events.timestamp(NOW + due_after)  # type: ignore[index]
    bench.clock.now += due_after - 1
    assert bench.due() == []
    bench.clock.now += 1
    assert bench.due() == [done.delivery_id]


def test_last_failure(bench: Bench) -> None:
    """The last attempt that fails ends the delivery, and it can be found among the failed ones."""
    done = bench.attempted(bench.created(), failure(1), wait=None)
    assert done.status == "failed"
    assert bench.place(done) == (f"UNSENT#ana#{ENDPOINT}#failed", f"{done.created_at}#{done.delivery_id}")


@given(
    trigger=st.sampled_from(["automatic", "manual", "probe"]),
    succeeded=st.booleans(),
    wait=st.none() | st.integers(0, 10**6),
    status=st.sampled_from(STATUSES),
    single=st.booleans(),
)
def test_after(trigger: str, succeeded: bool, wait: int | None, status: str, single: bool) -> None:
    """Only what counts for the schedule costs a try; success ends everything; a wait is from now."""
    before = delivery(status=status, single=single, tries=2, attempts=4)
    one = (attempt if succeeded else failure)(5, trigger=trigger)
    done = after(before, one, wait=wait, now=1000)
    assert (done.attempts, done.last_attempt, done.lease_until) == (5, one, 0)
    assert done.tries == 2 + (trigger != "manual")
    assert (done.status == "delivered") == (succeeded or (status == "delivered" and trigger == "manual"))
    if not succeeded and trigger != "manual" and not single:
        assert (done.status, done.due) == (("failed", before.due) if wait is None else ("pending", 1000 + wait))


@pytest.mark.parametrize(("manual", "ended"), [(False, False), (True, False), (True, True)])
def test_an_attempt_that_comes_too_late_undoes_no_requeue(bench: Bench, manual: bool, ended: bool) -> None:
    """What a replay has made pending anew stays so when an attempt is recorded whose lease was over before."""
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
    """What is sent again has the whole schedule before it, the same bytes, and its log."""
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
    assert bench.place(again) == ("DUE#" + bench.place(again)[0][4:], events.timestamp(again.due + SAFETY_SECONDS))  # type: ignore[index]
    assert bench.store.requeue(again, replay="job_1") is None
    assert bench.store.requeue(again, replay="job_2", statuses=("failed",)) is None
    assert bench.store.requeue(again, replay="job_2") is not None


def test_end(bench: Bench) -> None:
    """What is in nobody's hands can be ended, and says why."""
    ended = bench.store.end(bench.created().delivery_id, "discarded", attempts=0, reason="disabled")
    assert ended is not None
    assert (ended.status, ended.reason, ended.last_attempt) == ("discarded", "disabled", None)
    assert bench.store.end(ended.delivery_id, "canceled", attempts=0, reason="deleted") is None
    assert bench.store.end("dlv_none", "canceled", attempts=0, reason="deleted") is None


def test_sent_after_all(bench: Bench) -> None:
    """What was discarded and then arrives says no more why it was not sent."""
    ended = bench.store.end(bench.created().delivery_id, "discarded", attempts=0, reason="disabled")
    assert ended is not None
    assert bench.attempted(ended, attempt(1, trigger="manual")).reason is None


# ── waiting ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_wake(bench: Bench) -> None:
    """What nobody took is looked at again, each time after twice as long, up to a bound; an attempt ends that."""
    subject = bench.created()
    pauses = []
    for _ in range(MAX_SAFETY_DOUBLINGS + 2):
        bench.clock.now += SAFETY_SECONDS * 2**MAX_SAFETY_DOUBLINGS
        (entry,) = bench.entries()
        woken = bench.store.wake(entry)
        assert woken is not None
        assert bench.store.wake(entry) is None
        place = bench.place(woken)
        assert place is not None
        moment = datetime.fromisoformat(place[1]).timestamp()
        pauses.append(moment - bench.clock.now)
    assert pauses == [SAFETY_SECONDS * 2 ** min(n, MAX_SAFETY_DOUBLINGS - 1) for n in range(len(pauses))]
    assert bench.attempted(bench.now(subject), failure(1)).wakes == 0


def test_hold(bench: Bench) -> None:
    """What waits for a circuit comes out of it oldest first, and stands in line for no time meanwhile."""
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
    found = [id_of(entry) for entry in bench.store.held("ana", ENDPOINT, limit=9)]
    assert found == [identifier for _, identifier in sorted(order)]
    assert len(bench.store.held("ana", ENDPOINT, limit=2)) == 2
    until = events.timestamp(NOW + 20)
    assert [id_of(entry) for entry in bench.store.held("ana", ENDPOINT, until=until, limit=9)] == found[:1]
    assert bench.store.held("ana", "other", limit=9) == []
    for entry in bench.store.held("ana", ENDPOINT, limit=9):
        assert bench.store.wake(entry)
    assert bench.store.held("ana", ENDPOINT, limit=9) == []


def test_put_off(bench: Bench) -> None:
    """What is put off is looked at then, not before; what is in hand, or has moved on, is left alone."""
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
    """A delivery that is open takes a follower, and knows it when it ends; one that has ended, or is not, none."""
    former = bench.created()
    assert bench.store.link(former.delivery_id, "dlv_next")
    done = bench.attempted(former, attempt(1))
    assert done.followed_by == "dlv_next"
    assert not bench.store.link(former.delivery_id, "dlv_other")
    assert not bench.store.link("dlv_none", "dlv_other")
    assert bench.now(former).followed_by == "dlv_next"


# ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_owners(bench: Bench) -> None:
    """Another owner's delivery is none."""
    subject = bench.created()
    assert bench.store.get(subject.delivery_id, owner="ana") == subject
    assert bench.store.get(subject.delivery_id, owner="ben") is None
    with pytest.raises(NotFound):
        bench.store.with_attempts(subject.delivery_id, owner="ben")
    with pytest.raises(NotFound):
        bench.store.with_attempts("dlv_none", owner="ana")


def test_attempts(bench: Bench) -> None:
    """Every attempt is kept, with all that is known of it, in the order of its number: 10 comes after 9."""
    subject, made = bench.created(), []
    for number in range(1, 13):
        one = failure(number, body="\u00e9" * number, truncated=number % 2 == 0, body_is_base64=number == 3)
        subject = bench.attempted(subject, one, wait=0)
        made.append(one)
    assert bench.store.with_attempts(subject.delivery_id, owner="ana") == (subject, made)


def test_attempts_expire_with_it(bench: Bench) -> None:
    """All that is kept of a delivery is forgotten with it."""
    subject = bench.created()
    for number in (1, 2, 3):
        subject = bench.attempted(subject, failure(number), wait=0)
    items = bench.table.scan(TableName=bench.name)["Items"]
    assert len(items) == 3
    assert {int(item["expires_at"]) for item in items} == {subject.expires_at}


def page_through(bench: Bench, limit: int, **options: Any) -> list[Delivery]:
    found, cursor = [], None
    while True:
        page, cursor = bench.store.page("ana", ENDPOINT, limit=limit, cursor=cursor, **options)
        assert len(page) <= limit
        found += page
        if cursor is None:
            return found


@pytest.mark.parametrize("limit", [1, 3, 7, 50, 100])
def test_pages(bench: Bench, limit: int) -> None:
    """Pages of any size, one after the other, hold every delivery of the endpoint once, newest first."""
    made = []
    for _ in range(7):
        bench.clock.now += 1
        made.append(bench.created())
    bench.created(owner="ben")
    bench.created(endpoint_id="default", url=URL)
    assert page_through(bench, limit) == made[::-1]


def test_pages_of_many(bench: Bench) -> None:
    """More than the table gives at once are no trouble."""
    for _ in range(130):
        bench.clock.now += 0.001
        bench.created()
    found = page_through(bench, 100)
    assert len({subject.delivery_id for subject in found}) == 130
    assert [subject.created_at for subject in found] == sorted((s.created_at for s in found), reverse=True)


def test_filters(bench: Bench) -> None:
    """A page can be of one status, of one event, and of what was made since some time."""
    old = bench.created(event="document.failed")
    bench.clock.now += 60
    failed = bench.attempted(bench.created(), failure(1), wait=None)
    arrived = bench.attempted(bench.created(event="document.failed"), attempt(1))
    ended = bench.store.end(bench.created().delivery_id, "canceled", attempts=0, reason="deleted")
    by_status = {status: page_through(bench, 10, status=status) for status in STATUSES}
    assert by_status == {
        "pending": [old],
        "sending": [],
        "delivered": [arrived],
        "failed": [failed],
        "discarded": [],
        "canceled": [ended],
    }
    assert page_through(bench, 10, event="document.failed") == [arrived, old]
    assert page_through(bench, 10, status="failed", event="document.failed") == []
    assert old not in page_through(bench, 10, since=events.timestamp(NOW + 1))
    assert len(page_through(bench, 10, since=events.timestamp(NOW + 60))) == 3
    assert page_through(bench, 10, since=events.timestamp(NOW + 61)) == []


def test_few_of_many(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where few of many are wanted a page may be empty, and its cursor leads on to them all the same."""
    monkeypatch.setattr("core.webhooks.deliveries.store.MAX_EXAMINED", 4)
    wanted = bench.created(event="document.failed")
    for _ in range(9):
        bench.clock.now += 1
        bench.created()
    page, cursor = bench.store.page("ana", ENDPOINT, event="document.failed")
    assert (page, cursor is None) == ([], False)
    assert page_through(bench, 5, event="document.failed") == [wanted]


def test_unsent(bench: Bench) -> None:
    """What ended without success is listed from a time until before another, after a place, and counted."""
    made = []
    for _ in range(5):
        made.append(bench.created(status="failed"))
        bench.clock.now += 10
    bench.created(status="discarded")
    span = {"since": events.timestamp(NOW + 10), "until": events.timestamp(NOW + 40)}
    found = bench.store.unsent("ana", ENDPOINT, "failed", limit=10, **span)
    assert [id_of(entry) for entry in found] == [subject.delivery_id for subject in made[1:4]]
    assert bench.store.count_unsent("ana", ENDPOINT, "failed", **span) == 3
    first = bench.store.unsent("ana", ENDPOINT, "failed", limit=2, **span)
    assert first == found[:2]
    assert bench.store.unsent("ana", ENDPOINT, "failed", limit=2, after=first[-1]["gsi2sk"], **span) == found[2:]
    assert bench.store.unsent("ana", ENDPOINT, "failed", limit=2, after=found[-1]["gsi2sk"], **span) == []


# ── ids and views ────────────────────────────────────────────────────────────────────────────────────────────


def test_ids() -> None:
    """One event has one delivery to one endpoint, and its id can be told from any other text."""
    event, other = ids.new("evt"), ids.new("evt")
    made = {delivery_id(event, ENDPOINT), delivery_id(event, "default"), delivery_id(other, ENDPOINT)}
    assert len(made) == 3
    assert all(map(is_delivery_id, made))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "dlv_",
        "dlv__default",
        "dlv_01JDXQ3V8N2M4K6H8G0F2E4D6C",
        "dlv_01JDXQ3V8N2M4K6H8G0F2E4D6C_",
        "dlv_01JDXQ3V8N2M4K6H8G0F2E4D6C_other",
        "dlv_01JDXQ3V8N2M4K6H8G0F2E4D6C_default\n",
        "dlv_01jdxq3v8n2m4k6h8g0f2e4d6c_default",
        "dlv_dlv_01JDXQ3V8N2M4K6H8G0F2E4D6C_default",
        "01JDXQ3V8N2M4K6H8G0F2E4D6C_default",
        "dlv_01JDXQ3V8N2M4K6H8G0F2E4D6C_default#META",
    ],
)
def test_no_id(text: str) -> None:
    """What has another form is no delivery's id."""
    assert not is_delivery_id(text)


def test_destination() -> None:
    """An endpoint is one destination whatever its URL; each URL that jobs name is one of its own, as SQS takes it."""
    assert destination_of(ENDPOINT, None) == destination_of(ENDPOINT, URL) == ENDPOINT
    destinations = {destination_of("default", URL), destination_of("default", URL + "2")}
    assert len(destinations) == 2
    assert all(len(each) < 64 and each.replace("-", "").isalnum() for each in destinations)


def test_for_job(bench: Bench) -> None:
    """What the job shows is JSON, with the last attempt if there is one, and when the next is due."""
    subject = bench.created(endpoint_id="default", url=URL)
    assert for_job(subject)["last_attempt"] is None
    waiting = bench.attempted(subject, failure(1), wait=60)
    shown = json.loads(json.dumps(for_job(waiting)))
    assert (shown["url"], shown["status"], shown["attempts"]) == (URL, "pending", 1)
    assert shown["next_attempt_at"] == events.timestamp(NOW + 60)
    assert shown["last_attempt"]["error"] == "timeout"
    assert set(shown["last_attempt"]) < set(asdict(failure(1)))
    assert "request_headers" not in shown["last_attempt"]
    assert for_job(replace(waiting, status="delivered"))["next_attempt_at"] is None
    assert "body" not in shown
