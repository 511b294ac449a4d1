from __future__ import annotations

import json
from typing import Any

import pytest

from core import events, ids
from core.webhooks.endpoints.owner_log import OwnerLog
from tests.unit.examples import DAY, NOW, FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def log(dynamodb: Any, jobs_table: str, clock: FakeClock) -> OwnerLog:
    return OwnerLog(dynamodb, jobs_table, retention_seconds=90 * DAY, clock=clock)


def pages(log: OwnerLog, owner: str, limit: int) -> list[str]:
    found, cursor = [], None
    while True:
        page, cursor = log.page(owner, limit=limit, cursor=cursor)
        assert len(page) <= limit
        found += page
        if cursor is None:
            return found


def test_append(log: OwnerLog, dynamodb: Any, jobs_table: str) -> None:
    """An event is written like a job's event, for the stream, but without job and sequence."""
    event_id = log.append("ana", "ping", endpoint_id="wh_1", event="forged", event_id="forged")
    (item,) = dynamodb.scan(TableName=jobs_table)["Items"]
    assert (item["entity"], item["name"], item["kind"], item["owner"]) == ("event", "ping", "endpoint", "ana")
    assert (item["pk"], item["sk"], item["event_id"]) == ("OWNER#ana", f"EVENT#{event_id}", event_id)
    assert item["expires_at"] == int(NOW) + 90 * DAY
    assert json.loads(item["body"]) == {
        "event": "ping",
        "event_id": event_id,
        "timestamp": events.timestamp(NOW),
        "endpoint_id": "wh_1",
    }
    assert ids.is_id("evt", event_id)


def test_draft(log: OwnerLog, dynamodb: Any) -> None:
    """A drafted event is written by the caller's transaction."""
    event_id, operation = log.draft("ana", "endpoint.disabled", endpoint_id="wh_1")
    assert log.page("ana") == ([], None)
    dynamodb.transact_write_items(TransactItems=[operation])
    ((body,), cursor) = log.page("ana")
    assert (json.loads(body)["event_id"], cursor) == (event_id, None)


@pytest.mark.parametrize("limit", [1, 2, 3, 6, 7, 8, 100])
def test_pages(log: OwnerLog, clock: FakeClock, limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages of any size contain each of the owner's events once, newest first."""
    made = []
    for number in range(7):
        event_id = ids.floor("evt", NOW + number)
        monkeypatch.setattr(ids, "new", lambda prefix, made=event_id: made)
        made.append(log.append("ana", "ping", endpoint_id="wh_1"))
        log.append("ben", "ping", endpoint_id="wh_2")
    assert [json.loads(body)["event_id"] for body in pages(log, "ana", limit)] == made[::-1]


def test_nothing_but_events(log: OwnerLog, dynamodb: Any, jobs_table: str) -> None:
    """Other items of the owner are not in the log."""
    for sk in ("ENDPOINT#default", "EVENT", "EVENTS#1", "JOB#1"):
        dynamodb.put_item(TableName=jobs_table, Item={"pk": "OWNER#ana", "sk": sk})
    assert log.page("ana") == ([], None)


def test_expired(log: OwnerLog, clock: FakeClock) -> None:
    """An expired event is not returned, even if DynamoDB has not deleted it yet."""
    log.append("ana", "ping", endpoint_id="wh_1")
    clock.now += 90 * DAY
    assert log.page("ana") == ([], None)
