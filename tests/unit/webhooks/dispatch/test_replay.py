from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.jobs import Job, cancel
from core.webhooks.deliveries.model import Delivery, delivery_id
from core.webhooks.deliveries.queue import Message
from core.webhooks.deliveries.rows import QUEUE_RETRY_SECONDS
from core.webhooks.endpoints.model import Endpoint
from tests.support.webhooks import nth
from tests.unit.examples import DAY
from tests.unit.webhooks.dispatch.conftest import Bench, events_timestamp
from webhooks.dispatch import replay as module
from webhooks.dispatch.replay import Cursor

small = pytest.mark.parametrize("size", [1, 2, 3, 100])


def slices(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(module, "SLICE", size)


def result(bench: Bench, replay: Job) -> dict[str, Any]:
    found = bench.of.jobs.get(replay.job_id)
    assert found.status == "completed"
    return dict(found.result or {})


def unsent(bench: Bench, endpoint: Endpoint, count: int, **facts: Any) -> list[Delivery]:
    """Deliveries to the endpoint that have failed, one after the other."""
    made = []
    for _ in range(count):
        body = bench.bodies(bench.job())[0]
        bench.arrive(body)
        made.append(bench.end(bench.get(body, endpoint)))
        bench.clock.advance(1)
    bench.queued()
    return made


def ids_of(messages: list[Message]) -> list[str]:
    return [message.delivery_id for message in messages]


@given(st.integers(0, 99), st.text(max_size=9), st.booleans())
def test_cursor(sent: int, position: str, ended: bool) -> None:
    """A cursor is read as it was written."""
    cursor = Cursor(sent=sent, position=position, ended=ended)
    assert Cursor.read(cursor.text) == cursor
    assert Cursor.read(None) == Cursor()


# ── recovery ─────────────────────────────────────────────────────────────────────────────────────────────────


@small
def test_recover(bench: Bench, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Failed and discarded deliveries are sent again with the same bytes, slice by slice, each once."""
    slices(monkeypatch, size)
    endpoint = bench.endpoint()
    failed = unsent(bench, endpoint, 4)
    bench.edit(endpoint, enabled=False)
    discarded = []
    for _ in range(3):
        body = bench.bodies(bench.job())[0]
        bench.arrive(body)
        discarded.append(bench.get(body, endpoint))
        bench.clock.advance(1)
    bench.edit(endpoint, enabled=True)
    replay = bench.replay(endpoint, "recover")
    bench.queued()
    bench.run(replay)
    assert ids_of(bench.queued()) == [each.delivery_id for each in [*failed, *discarded]]
    assert result(bench, replay) == {"sent": 7}
    for each in [*failed, *discarded]:
        now = bench.of.deliveries.get(each.delivery_id)
        assert now is not None
        assert (now.status, now.tries, now.attempts, now.body) == ("pending", 0, each.attempts, each.body)


def test_only_what_is_asked_for(bench: Bench) -> None:
    """Only deliveries of the endpoint, the statuses and the time window are sent."""
    endpoint, other = bench.endpoint(), bench.endpoint()
    before = unsent(bench, endpoint, 1)
    since = events_timestamp()
    wanted = unsent(bench, endpoint, 2)
    until = events_timestamp()
    after = unsent(bench, endpoint, 1)
    bench.run(bench.replay(endpoint, "recover", statuses=["discarded"]))
    assert bench.queued() == []
    bench.run(bench.replay(endpoint, "recover", since=since, until=until, statuses=["failed"]))
    assert ids_of(bench.queued()) == [each.delivery_id for each in wanted]
    others = [*before, *after]
    assert [bench.of.deliveries.get(each.delivery_id) for each in others] == others
    assert other.endpoint_id not in {each.endpoint_id for each in wanted}


def test_twice(bench: Bench) -> None:
    """A replay requeues a delivery once. Another replay can requeue it again."""
    endpoint = bench.endpoint()
    (failed,) = unsent(bench, endpoint, 1)
    replay = bench.replay(endpoint, "recover")
    bench.run(replay)
    again = bench.of.deliveries.get(failed.delivery_id)
    assert again is not None
    bench.end(again)
    bench.queued()
    bench.run(bench.replay(endpoint, "recover"))
    assert ids_of(bench.queued()) == [failed.delivery_id]


def test_ping_is_not_recovered(bench: Bench) -> None:
    """A failed ping is not recovered."""
    endpoint = bench.endpoint()
    body = bench.owner_event("ping", endpoint_id=endpoint.endpoint_id)
    bench.arrive(body)
    bench.end(bench.get(body, endpoint))
    bench.queued()
    replay = bench.replay(endpoint, "recover")
    bench.run(replay)
    assert (bench.queued(), result(bench, replay)) == ([], {"sent": 0})


@small
def test_recover_in_order(bench: Bench, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """At an ordered endpoint a recovered delivery waits for its predecessor if that is recovered, too."""
    slices(monkeypatch, size)
    endpoint = bench.endpoint(ordered=True)
    bodies = bench.bodies(bench.canceled())
    for body in bodies:
        bench.arrive(body)
        bench.end(bench.get(body, endpoint))
        bench.clock.advance(1)
    bench.queued()
    replay = bench.replay(endpoint, "recover")
    bench.run(replay)
    first, second, third = (bench.get(body, endpoint) for body in bodies)
    assert ids_of(bench.queued()) == [first.delivery_id]
    assert (first.followed_by, second.followed_by) == (second.delivery_id, third.delivery_id)
    assert result(bench, replay) == {"sent": 3}


# ── replay ───────────────────────────────────────────────────────────────────────────────────────────────────


@small
def test_replay(bench: Bench, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Events from before the endpoint existed are sent, job by job, in the order of the log."""
    slices(monkeypatch, size)
    subjects = [bench.canceled() for _ in range(5)]
    bench.clock.advance(5)
    endpoint = bench.endpoint()
    bench.clock.advance(5)
    replay = bench.replay(endpoint, "replay")
    bench.run(replay)
    bodies = [body for subject in subjects for body in bench.bodies(subject)]
    assert ids_of(bench.queued()) == [bench.get(body, endpoint).delivery_id for body in bodies]
    assert [bench.get(body, endpoint).body for body in bodies] == bodies
    assert result(bench, replay) == {"sent": 15}


def test_window(bench: Bench) -> None:
    """The time window applies to the time of the event, not of the job."""
    endpoint = bench.endpoint()
    subject = bench.job()
    bench.clock.advance(3600)
    since = events_timestamp()
    bench.progress(subject, 1)
    bench.clock.advance(1)
    until = events_timestamp()
    bench.progress(subject, 2)
    bench.run(bench.replay(endpoint, "replay", since=since, until=until))
    first, second, third = bench.bodies(subject)
    assert bench.find(first, endpoint) is None
    assert bench.get(second, endpoint).status == "pending"
    assert bench.find(third, endpoint) is None


def test_no_replay_of_replays(bench: Bench) -> None:
    """Events of replays are not replayed."""
    endpoint = bench.endpoint()
    earlier = bench.replay(endpoint, "recover")
    bench.run(earlier)
    bench.clock.advance(1)
    replay = bench.replay(endpoint, "replay")
    bench.run(replay)
    assert result(bench, replay) == {"sent": 0}


@small
def test_replay_in_order(bench: Bench, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """At an ordered endpoint each event of a job waits for the one before."""
    slices(monkeypatch, size)
    subjects = [bench.canceled() for _ in range(3)]
    endpoint = bench.endpoint(ordered=True)
    replay = bench.replay(endpoint, "replay", until=events_timestamp(1))
    bench.run(replay)
    queued = ids_of(bench.queued())
    for subject in subjects:
        first, second, third = (bench.get(body, endpoint) for body in bench.bodies(subject))
        assert first.delivery_id in queued
        assert (second.follows, third.follows) == (first.delivery_id, second.delivery_id)
        assert (first.followed_by, second.followed_by) == (second.delivery_id, third.delivery_id)
    assert len(queued) == 3
    assert result(bench, replay) == {"sent": 9}


def test_claimed_delivery(bench: Bench) -> None:
    """A claimed delivery is not requeued, and the next one waits for it."""
    endpoint = bench.endpoint(ordered=True)
    first, second, _ = bench.bodies(bench.canceled())
    bench.arrive(first)
    claimed = bench.get(first, endpoint)
    assert bench.of.deliveries.claim(claimed.delivery_id, attempts=0)
    bench.queued()
    bench.run(bench.replay(endpoint, "replay", until=events_timestamp(1)))
    assert bench.queued() == []
    assert bench.get(second, endpoint).follows == claimed.delivery_id


def test_a_disabled_endpoint(bench: Bench) -> None:
    """Deliveries to a disabled endpoint are discarded and not queued."""
    endpoint = bench.endpoint(enabled=False)
    body = bench.bodies(bench.job())[0]
    bench.run(bench.replay(endpoint, "replay", until=events_timestamp(1)))
    assert (bench.get(body, endpoint).status, bench.queued()) == ("discarded", [])


def test_old_jobs_are_not_read(bench: Bench) -> None:
    """Jobs that ended long before the window are not read."""
    endpoint = bench.endpoint()
    bench.canceled()
    bench.clock.advance(DAY)
    subject = bench.canceled()
    replay = bench.replay(endpoint, "replay", since=events_timestamp(-60), until=events_timestamp(1))
    bench.run(replay)
    # the replay itself is a job of that time, too
    assert bench.of.jobs.snapshot(replay.job_id, owner="ana").progress == (2, 2)
    assert result(bench, replay) == {"sent": len(bench.bodies(subject))}


# ── failures, repetitions, ends ──────────────────────────────────────────────────────────────────────────────


def fail_call(bench: Bench, replay: Job, number: int) -> bool:
    """Run a slice and have its call of this number fail. Returns whether there was such a call."""
    body = json.dumps({"event": "replay.continued", "job_id": replay.job_id})
    with bench.calls.fail("*", "*", "InternalServerError", when=nth(number)) as failed:
        bench.arrive(body)
    return failed.hits > 0


def prepare_recover(bench: Bench, endpoint: Endpoint) -> set[str]:
    return {each.delivery_id for each in unsent(bench, endpoint, 3)}


def prepare_replay(bench: Bench, endpoint: Endpoint) -> set[str]:
    bodies = [bench.bodies(bench.canceled()) for _ in range(2)]
    bench.arrive(bodies[0][1])
    bench.end(bench.get(bodies[0][1], endpoint))
    bench.queued()
    return {id_in(body, endpoint) for each in bodies for body in each}


def id_in(body: str, endpoint: Endpoint) -> str:
    return delivery_id(json.loads(body)["event_id"], endpoint.endpoint_id)


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize(
    ("mode", "prepare"), [("recover", prepare_recover), ("replay", prepare_replay)], ids=["recover", "replay"]
)
def test_killed_at_any_call(
    bench: Bench,
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
    prepare: Callable[[Bench, Endpoint], set[str]],
    ordered: bool,
) -> None:
    """After a failure at any (every eleventh) call the replay completes, and each delivery becomes due."""
    slices(monkeypatch, 2)
    number, more = 1, True
    while more:
        endpoint = bench.endpoint(ordered=ordered)
        expected = prepare(bench, endpoint)
        replay = bench.replay(endpoint, mode, until=events_timestamp(1), events=["document.*"])
        more = fail_call(bench, replay, number)
        number += 11
        bench.run(replay)
        assert bench.of.jobs.get(replay.job_id).status == "completed"
        for each in expected:
            found = bench.of.deliveries.get(each)
            assert found is not None
            assert (found.status, found.replay, found.tries) == ("pending", replay.job_id, 0)
        bench.queued()
        bench.edit(endpoint, events=("endpoint.disabled",))
        bench.clock.advance(QUEUE_RETRY_SECONDS + 1)
        due = {
            entry["pk"].partition("#")[2] for shard in range(16) for entry in bench.of.delivery_index.due(shard)
        }
        assert expected <= due
        for each in expected:
            bench.of.deliveries.end(each, "canceled", attempts=_attempts(bench, each), reason="deleted")


def _attempts(bench: Bench, identifier: str) -> int:
    found = bench.of.deliveries.get(identifier)
    assert found is not None
    return found.attempts


def test_repeated_slice(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A repeated message sends nothing twice, and starts no second chain of slices."""
    slices(monkeypatch, 2)
    endpoint = bench.endpoint()
    unsent(bench, endpoint, 3)
    replay = bench.replay(endpoint, "recover")
    body = json.dumps({"event": "replay.continued", "job_id": replay.job_id})
    bench.arrive(body)
    first = ids_of(bench.queued())
    bench.arrive(body)
    second = ids_of(bench.queued())
    bench.arrive(body)
    assert (len(first), len(second), bench.queued()) == (2, 1, [])
    assert not set(first) & set(second)
    assert result(bench, replay) == {"sent": 3}


def test_concurrent_slices(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two workers at one slice one continues, and each delivery is queued once."""
    slices(monkeypatch, 2)
    endpoint = bench.endpoint()
    failed = unsent(bench, endpoint, 5)
    replay = bench.replay(endpoint, "recover")
    body = json.dumps({"event": "replay.continued", "job_id": replay.job_id})
    concurrent = bench.calls.on(
        "dynamodb",
        "UpdateItem",
        lambda call: bench.arrive(body),
        when=lambda call: call.params["Key"]["sk"] == "PROGRESS",
    )
    assert bench.arrive(body) == []
    assert concurrent.hits == 1
    assert [call.operation for call in bench.calls.log].count("SendMessage") == 1
    bench.run(replay)
    assert sorted(ids_of(bench.queued())) == sorted(each.delivery_id for each in failed)
    assert bench.of.jobs.get(replay.job_id).status == "completed"


def test_the_first_event_starts_it(bench: Bench) -> None:
    """The event `replay.requested` starts the replay, and is delivered like any other event."""
    endpoint = bench.endpoint()
    (failed,) = unsent(bench, endpoint, 1)
    replay = bench.replay(endpoint, "recover")
    body = bench.bodies(replay)[0]
    assert bench.arrive(body) == []
    assert ids_of(bench.queued()) == [failed.delivery_id, bench.get(body, endpoint).delivery_id]
    assert result(bench, replay) == {"sent": 1}


def test_canceled(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A canceled replay stops, between two slices or within one."""
    slices(monkeypatch, 1)
    endpoint = bench.endpoint()
    unsent(bench, endpoint, 3)
    replay = bench.replay(endpoint, "recover")
    body = json.dumps({"event": "replay.continued", "job_id": replay.job_id})
    bench.arrive(body)
    bench.of.jobs.apply(replay.job_id, cancel)
    bench.queued()
    bench.run(replay)
    assert bench.queued() == []
    assert bench.of.jobs.get(replay.job_id).status == "canceled"


def test_canceled_at_the_end(bench: Bench) -> None:
    """A replay that is canceled during its last slice stays canceled."""
    endpoint = bench.endpoint()
    replay = bench.replay(endpoint, "recover")
    bench.calls.on(
        "dynamodb",
        "UpdateItem",
        lambda call: bench.of.jobs.apply(replay.job_id, cancel),
        when=lambda call: call.params["Key"]["sk"] == "PROGRESS",
    )
    bench.run(replay)
    assert bench.of.jobs.get(replay.job_id).status == "canceled"


def test_an_expired_replay(bench: Bench) -> None:
    """A message of an expired replay is ignored."""
    assert bench.arrive(json.dumps({"event": "replay.continued", "job_id": "job_gone"})) == []
