"""Deliveries: one event to one endpoint, with HTTP attempts of its own. The row is the outbox.

    pending ──claim──▶ sending ──record──▶ delivered
     ▲  ▲ │              ├────record────▶ failed        attempts are used up
     │  └─┼────record────┘                              the next attempt is due later
     │    ├──discard──▶ discarded                       its endpoint is disabled
     │    └──cancel───▶ canceled                        its endpoint is gone
     └─────────────────requeue────────── any of the last four, when its owner asks for it again

Each attempt is claimed by number, so a message that comes twice is sent once. Where a delivery waits stands in one
sparse index (gsi2): `DUE#{shard}` by when it must be looked at, `HELD#…` while its destination's circuit is open, and
`UNSENT#…` once it has ended without success. A message in the queue is only a faster way to be looked at.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from core import events, ids
from core.aws.dynamodb import batch_get
from core.errors import NotFound
from core.webhooks.endpoints.store import DEFAULT

LEASE_SECONDS = 120  # longer than the sender may run, so that only a dead sender loses its claim
SAFETY_SECONDS = 900  # after which a delivery that should have been taken from the queue is queued again
MAX_SAFETY_DOUBLINGS = 8  # a queue that is hours behind must not fill up with repetitions
DUE_SHARDS = 16  # an index partition takes 1,000 writes a second
MAX_QUEUE_DELAY_SECONDS = (
    900  # https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-delay-queues.html
)
MAX_EXAMINED = 1000
PAGE = 100
MISSING = "There is no such delivery. Check the id; deliveries are kept for a limited time."
JOB_BODY_CHARACTERS = 1000  # of an answer, a multiple of 4 as base64 needs; the delivery has the rest
OPEN = ("pending", "sending")
UNSENT = ("failed", "discarded", "canceled")
STATUSES = (*OPEN, "delivered", *UNSENT)

Item = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """What one HTTP attempt came to. `error` is a class such as `timeout`; it is None for a 2xx.

    `request_headers` hold signatures but no secret; `body` is the start of the answer, base64 if `body_is_base64`.
    """

    number: int
    at: str
    trigger: str
    url: str
    duration_ms: int = 0
    status: int | None = None
    error: str | None = None
    message: str | None = None
    request_headers: Mapping[str, str] = field(default_factory=dict)
    response_headers: Mapping[str, str] = field(default_factory=dict)
    body: str | None = None
    body_is_base64: bool = False
    truncated: bool = False

    @property
    def succeeded(self) -> bool:
        return self.error is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """The row `DELIVERY#{delivery_id}` / `META`. `due`, `lease_until`, `queued_at` are epoch seconds.

    `attempts` numbers all attempts, `tries` counts those that the schedule knows of. `url` is set for a job's own
    webhook; an endpoint's is read when it is sent. A `single` one has one attempt. `follows` and `followed_by`
    chain ordered deliveries. `reason` says why it ended without an attempt: `disabled`, `deleted`, `circuit_open`.
    """

    delivery_id: str
    event_id: str
    event: str
    endpoint_id: str
    owner: str
    format: str
    body: str
    created_at: str
    expires_at: int
    queued_at: int
    job_id: str | None = None
    job_expires_at: int | None = None
    sequence: int | None = None
    url: str | None = None
    single: bool = False
    follows: str | None = None
    followed_by: str | None = None
    replay: str | None = None
    status: str = "pending"
    reason: str | None = None
    attempts: int = 0
    tries: int = 0
    wakes: int = 0
    due: int = 0
    lease_until: int = 0
    last_attempt: Attempt | None = None

    @property
    def is_open(self) -> bool:
        return self.status in OPEN

    @property
    def destination(self) -> str:
        return destination_of(self.endpoint_id, self.url)


def delivery_id(event_id: str, endpoint_id: str) -> str:
    """One event has one delivery to one endpoint."""
    return f"dlv_{ids.ulid_of(event_id)}_{ids.ulid_of(endpoint_id)}"


def is_delivery_id(text: str) -> bool:
    """Whether `text` has the form of a delivery's id."""
    event, _, endpoint = text.removeprefix("dlv_").partition("_")
    return text == f"dlv_{event}_{endpoint}" and (
        ids.is_id("evt", f"evt_{event}") and (endpoint == DEFAULT or ids.is_id("wh", f"wh_{endpoint}"))
    )


def destination_of(endpoint_id: str, url: str | None) -> str:
    """What fails or works as one: an endpoint, or one of the URLs that jobs name."""
    if endpoint_id != DEFAULT:
        return endpoint_id
    return f"{DEFAULT}-{hashlib.sha256(str(url).encode()).hexdigest()[:16]}"


def after(delivery: Delivery, attempt: Attempt, *, wait: int | None, now: int) -> Delivery:
    """The delivery once this attempt is over. `wait`: seconds until the next one, None if there is none.

    An attempt that somebody asked for costs no try, and if it fails it leaves everything as it was.
    """
    automatic = attempt.trigger != "manual"
    counted = replace(
        delivery,
        attempts=attempt.number,
        tries=delivery.tries + automatic,
        wakes=0,
        lease_until=0,
        last_attempt=attempt,
    )
    if attempt.succeeded:
        return replace(counted, status="delivered", reason=None)
    if delivery.single and delivery.is_open:
        return replace(counted, status="failed")
    if not automatic:  # nobody has it in hand any more
        return replace(counted, status="pending") if delivery.is_open else counted
    if wait is None:
        return replace(counted, status="failed")
    return replace(counted, status="pending", due=now + wait)


class DeliveryStore:
    """Deliveries in one DynamoDB table. `client` is a resource's client."""

    def __init__(self, client: Any, table: str, *, clock: Callable[[], float] = lambda: time.time()) -> None:
        self._client, self._table, self._clock = client, table, clock

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────────

    def get(self, delivery_id: str, *, owner: str | None = None) -> Delivery | None:
        """The delivery as it is now; None if there is none, or it is another owner's."""
        item = self._client.get_item(
            TableName=self._table, Key=delivery_key(delivery_id), ConsistentRead=True
        ).get("Item")
        return self._visible(item, owner)

    def with_attempts(self, delivery_id: str, *, owner: str) -> tuple[Delivery, list[Attempt]]:
        """A delivery and all its attempts, oldest first. Raises NotFound."""
        pages = self._client.get_paginator("query").paginate(
            TableName=self._table,
            KeyConditionExpression="pk = :pk",
            ExpressionAttributeValues={":pk": delivery_key(delivery_id)["pk"]},
            ConsistentRead=True,
        )
        items = {item["sk"]: item for page in pages for item in page["Items"]}
        delivery = self._visible(items.pop("META", None), owner)
        if delivery is None:
            raise NotFound(MISSING)
        last = delivery.last_attempt
        earlier = [_attempt(items[sk]["attempt"]) for sk in sorted(items)]
        return delivery, [a for a in earlier if last is None or a.number < last.number] + ([last] if last else [])

    def page(
        self,
        owner: str,
        endpoint_id: str,
        *,
        status: str | None = None,
        event: str | None = None,
        since: str | None = None,
        cursor: str | None = None,
        limit: int = 20,
    ) -> tuple[list[Delivery], str | None]:
        """An endpoint's deliveries, newest first, and a cursor for what follows, if anything does.

        Looks at MAX_EXAMINED at most, so a page of few wanted ones may be short, or empty, with a cursor.
        """
        index, pk = _index_of(owner, endpoint_id, status)
        found: list[Delivery] = []
        examined, last = 0, cursor
        for sk, delivery in self._newest_first(index, pk, before=cursor, since=since):
            if len(found) == limit or examined == MAX_EXAMINED:
                return found, last
            if delivery and status in (None, delivery.status) and event in (None, delivery.event):
                found.append(delivery)
            examined, last = examined + 1, sk
        return found, None

    def unsent(
        self, owner: str, endpoint_id: str, status: str, *, since: str, until: str, after: str = "", limit: int
    ) -> list[Item]:
        """Entries of the index for deliveries that ended without success, made from `since` until before `until`.

        Oldest first; `after` is the `gsi2sk` of the last one seen. `id_of` tells whose entry it is.
        """
        pk = f"UNSENT#{owner}#{endpoint_id}#{status}"
        found = self._index("gsi2", pk, low=max(since, after), high=until, limit=limit + 1)
        return [entry for entry in found if entry["gsi2sk"] != after][:limit]

    def count_unsent(self, owner: str, endpoint_id: str, status: str, *, since: str, until: str) -> int:
        pages = self._client.get_paginator("query").paginate(
            TableName=self._table,
            IndexName="gsi2",
            KeyConditionExpression="gsi2pk = :pk AND gsi2sk BETWEEN :low AND :high",
            ExpressionAttributeValues={
                ":pk": f"UNSENT#{owner}#{endpoint_id}#{status}",
                ":low": since,
                ":high": until,
            },
            Select="COUNT",
        )
        return sum(page["Count"] for page in pages)

    # ── from one status to another ───────────────────────────────────────────────────────────────────────

    def create(self, delivery: Delivery) -> Delivery:
        """Write a new delivery, or return the one that is there already."""
        try:
            self._client.put_item(
                TableName=self._table,
                Item=self.row(delivery),
                ConditionExpression="attribute_not_exists(pk) OR expires_at <= :now",
                ExpressionAttributeValues={":now": int(self._clock())},
            )
        except self._client.exceptions.ConditionalCheckFailedException:
            return self.get(delivery.delivery_id) or delivery
        return delivery

    def claim(self, delivery_id: str, *, attempts: int, manual: bool = False) -> Delivery | None:
        """Take attempt `attempts` + 1 for this worker, or None if that is not what is to be done now.

        An attempt that somebody asked for is made whatever the status, and leaves it alone.
        """
        now = int(self._clock())
        values: Item = {":attempts": attempts, ":now": now, ":lease": now + LEASE_SECONDS}
        condition = "attempts = :attempts AND lease_until <= :now AND expires_at > :now"
        if manual:
            return self._update(delivery_id, "SET lease_until = :lease", condition, values)
        return self._update(
            delivery_id,
            "SET lease_until = :lease, #status = :sending",
            f"{condition} AND #status IN (:pending, :sending)",
            values | {":sending": "sending", ":pending": "pending"},
        )

    def record(
        self, claimed: Delivery, attempt: Attempt, *, wait: int | None, chained: bool = True
    ) -> Delivery | None:
        """Write down an attempt, with all it leads to, in one write. None if the claim was lost.

        `chained`: whether another delivery may have been linked behind it since it was claimed. The attempt before
        it, which the row carried until now, first gets an item of its own.
        """
        if claimed.last_attempt:
            self._keep(claimed, claimed.last_attempt)
        changed = after(claimed, attempt, wait=wait, now=math.ceil(self._clock()))
        place = self._place(changed) if attempt.trigger != "manual" or not changed.is_open else {}
        values = {
            name: getattr(changed, name) for name in ("status", "reason", "attempts", "tries", "wakes", "due")
        }
        values |= {"lease_until": 0, "last_attempt": _text(attempt)}
        written = self._set(
            claimed.delivery_id,
            values | place,
            condition="lease_until = :lease AND attempts = :attempts",
            values={":lease": claimed.lease_until, ":attempts": claimed.attempts},
            remove=() if place or changed.is_open else ("gsi2pk", "gsi2sk"),
            unless_returned=None if chained else changed,
        )
        return written or self._recorded(claimed.delivery_id, attempt)

    def _recorded(self, identifier: str, attempt: Attempt) -> Delivery | None:
        """The delivery, if this very attempt is its last: the SDK asks again where an answer was lost."""
        found = self.get(identifier)
        return found if found and found.last_attempt == attempt else None

    def end(self, delivery_id: str, status: str, *, attempts: int, reason: str) -> Delivery | None:
        """End an open delivery that is in nobody's hands as failed, discarded or canceled; None leaves it."""
        delivery = self.get(delivery_id)
        if delivery is None:
            return None
        return self._set(
            delivery_id,
            {"status": status, "reason": reason, "lease_until": 0} | self._place(replace(delivery, status=status)),
            condition=_IDLE,
            values=self._idle(attempts),
        )

    def requeue(
        self,
        delivery: Delivery,
        *,
        replay: str,
        follows: str | None = None,
        statuses: Sequence[str] = STATUSES,
    ) -> Delivery | None:
        """Make it pending anew, with the whole schedule before it and kept as long again, if it has such a status.

        None if this replay has done so already, or somebody has it in hand. An attempt that has outlived its lease
        loses its claim, for its record would undo this.
        """
        now = int(self._clock())
        sets = {
            "lease_until": 0,
            "status": "pending",
            "reason": None,
            "tries": 0,
            "wakes": 0,
            "due": now,
            "queued_at": now,
            "expires_at": now + delivery.expires_at - delivery.queued_at,
            "replay": replay,
            "follows": follows,
        }
        allowed = {f":status_{number}": status for number, status in enumerate(statuses)}
        return self._set(
            delivery.delivery_id,
            sets | self._place(replace(delivery, status="pending", due=now)),
            condition="lease_until <= :now AND (attribute_not_exists(replay) OR replay <> :replay_id)"
            f" AND #status IN ({', '.join(allowed)})",
            values={":now": now, ":replay_id": replay} | allowed,
        )

    # ── waiting ──────────────────────────────────────────────────────────────────────────────────────────

    def postpone(self, delivery_id: str, *, attempts: int, until: float) -> Delivery | None:
        """Look at it again at `until` (epoch seconds); None if somebody has it in hand or it has ended."""
        place = self._due_at(delivery_id, until)
        return self._set(delivery_id, place, condition=_IDLE, values=self._idle(attempts))

    def hold(
        self, delivery_id: str, *, owner: str, destination: str, attempts: int, queued_at: int
    ) -> Delivery | None:
        """Let it wait until the destination's circuit closes; it comes back by `held` and `wake`."""
        place = {"gsi2pk": f"HELD#{owner}#{destination}", "gsi2sk": f"{events.timestamp(queued_at)}#{delivery_id}"}
        return self._set(delivery_id, place | {"status": "pending"}, condition=_IDLE, values=self._idle(attempts))

    def held(self, owner: str, destination: str, *, until: str = "~", limit: int) -> list[Item]:
        """Entries of the index for what waits for a circuit, oldest first, queued before `until`; see `wake`."""
        return self._index("gsi2", f"HELD#{owner}#{destination}", low="", high=until, limit=limit)

    def due(self, shard: int) -> Iterator[Item]:
        """Entries of the index that must be looked at now; see `wake`."""
        now = events.timestamp(self._clock())
        yield from self._entries("gsi2", f"DUE#{shard:02d}", low="", high=now)

    def wake(self, entry: Mapping[str, Any]) -> Delivery | None:
        """The delivery of an index entry, put off until it should have been taken from the queue.

        Each time that nobody took it, twice as long. None if it has moved on since the entry was read.
        """
        identifier = id_of(entry)
        delivery = self.get(identifier)
        if delivery is None or not delivery.is_open:
            return None
        wakes = min(delivery.wakes + 1, MAX_SAFETY_DOUBLINGS)
        pause = SAFETY_SECONDS * 2 ** (wakes - 1)
        return self._set(
            identifier,
            self._due_at(identifier, self._clock() + pause) | {"wakes": wakes},
            condition="gsi2pk = :seen_pk AND gsi2sk = :seen_sk",
            values={":seen_pk": entry["gsi2pk"], ":seen_sk": entry["gsi2sk"]},
        )

    # ── order ────────────────────────────────────────────────────────────────────────────────────────────

    def link(self, former: str, follower: str) -> bool:
        """Have `former` wake `follower` when it ends; False if it has ended, so there is nothing to wait for."""
        return bool(
            self._set(
                former,
                {"followed_by": follower},
                condition="#status IN (:pending, :sending)",
                values={":pending": "pending", ":sending": "sending"},
            )
        )

    # ── inside ───────────────────────────────────────────────────────────────────────────────────────────

    def _visible(self, item: Mapping[str, Any] | None, owner: str | None) -> Delivery | None:
        """Expiry is checked on reading: the table's own is lazy."""
        if item is None or int(item["expires_at"]) <= self._clock():
            return None
        delivery = read_delivery(item)
        return delivery if owner in (None, delivery.owner) else None

    def _idle(self, attempts: int) -> Item:
        return {":attempts": attempts, ":now": int(self._clock()), ":pending": "pending", ":sending": "sending"}

    def row(self, delivery: Delivery) -> Item:
        """The whole item of a delivery, its place in the index of what waits included."""
        return _item(delivery) | self._place(delivery)

    def _place(self, delivery: Delivery) -> Item:
        """Where it stands in the index of what waits. What was delivered stands nowhere."""
        if delivery.is_open:
            soon = delivery.due - self._clock() <= MAX_QUEUE_DELAY_SECONDS
            return self._due_at(delivery.delivery_id, delivery.due + (SAFETY_SECONDS if soon else 0))
        if delivery.status in UNSENT:
            pk = f"UNSENT#{delivery.owner}#{delivery.endpoint_id}#{delivery.status}"
            return {"gsi2pk": pk, "gsi2sk": f"{delivery.created_at}#{delivery.delivery_id}"}
        return {}

    def _due_at(self, identifier: str, seconds: float) -> Item:
        shard = int(hashlib.sha256(identifier.encode()).hexdigest(), 16) % DUE_SHARDS
        return {"gsi2pk": f"DUE#{shard:02d}", "gsi2sk": events.timestamp(seconds)}

    def _keep(self, delivery: Delivery, attempt: Attempt) -> None:
        self._client.put_item(TableName=self._table, Item=attempt_item(delivery, attempt))

    def _set(
        self,
        identifier: str,
        sets: Item,
        *,
        condition: str,
        values: Item,
        remove: Sequence[str] = (),
        unless_returned: Delivery | None = None,
    ) -> Delivery | None:
        expression = "SET " + ", ".join(f"#{name} = :set_{name}" for name in sets)
        if remove:
            expression += " REMOVE " + ", ".join(remove)
        return self._update(
            identifier,
            expression,
            condition,
            values | {f":set_{name}": value for name, value in sets.items()},
            names=sets,
            unless_returned=unless_returned,
        )

    def _update(
        self,
        identifier: str,
        expression: str,
        condition: str,
        values: Item,
        *,
        names: Mapping[str, Any] = {},
        unless_returned: Delivery | None = None,
    ) -> Delivery | None:
        """The row as it is then, or None where the condition does not hold or there is no row.

        Whoever knows what the row is then passes it: reading an answer is half of a call's time.
        """
        used = {f"#{name}": name for name in {*names, "status"} if f"#{name}" in f"{expression} {condition}"}
        try:
            answer = self._client.update_item(
                TableName=self._table,
                Key=delivery_key(identifier),
                UpdateExpression=expression,
                ConditionExpression=f"attribute_exists(pk) AND {condition}",
                ExpressionAttributeValues=values,
                ReturnValues="NONE" if unless_returned else "ALL_NEW",
                **({"ExpressionAttributeNames": used} if used else {}),
            )
        except self._client.exceptions.ConditionalCheckFailedException:
            return None
        return unless_returned or read_delivery(answer["Attributes"])

    def _newest_first(
        self, index: str, pk: str, *, before: str | None, since: str | None
    ) -> Iterator[tuple[str, Delivery | None]]:
        page: list[Item] = []
        entries = self._entries(index, pk, low=since or "", high=before or "~", newest_first=True)
        for entry in entries:
            if entry[f"{index}sk"] == before:
                continue
            page.append(entry)
            if len(page) == 50:
                yield from self._rows(index, page)
                page = []
        yield from self._rows(index, page)

    def _rows(self, index: str, entries: Sequence[Item]) -> Iterator[tuple[str, Delivery | None]]:
        """The row of each of at most 100 entries, as it is now: the index knows only which there are."""
        rows = {delivery.delivery_id: delivery for delivery in self._many([id_of(entry) for entry in entries])}
        for entry in entries:
            yield entry[f"{index}sk"], rows.get(id_of(entry))

    def _many(self, identifiers: Sequence[str]) -> list[Delivery]:
        """The rows of at most 100 deliveries, those that there are."""
        keys = [delivery_key(identifier) for identifier in identifiers]
        found = batch_get(self._client, {self._table: {"Keys": keys, "ConsistentRead": True}})
        return [delivery for row in found[self._table] if (delivery := self._visible(row, None))]

    def _index(self, index: str, pk: str, *, low: str, high: str, limit: int) -> list[Item]:
        found = []
        for entry in self._entries(index, pk, low=low, high=high, page=min(limit, PAGE)):
            found.append(entry)
            if len(found) == limit:
                break
        return found

    def _entries(
        self, index: str, pk: str, *, low: str, high: str, newest_first: bool = False, page: int = PAGE
    ) -> Iterator[Item]:
        if low > high:  # nothing lies between, and DynamoDB refuses to look
            return
        pages = self._client.get_paginator("query").paginate(
            TableName=self._table,
            IndexName=index,
            KeyConditionExpression=f"{index}pk = :pk AND {index}sk BETWEEN :low AND :high",
            ExpressionAttributeValues={":pk": pk, ":low": low or " ", ":high": high},
            ScanIndexForward=not newest_first,
            PaginationConfig={"PageSize": page},
        )
        for each in pages:
            yield from each["Items"]


_IDLE = "attempts = :attempts AND lease_until <= :now AND #status IN (:pending, :sending)"


def for_job(delivery: Delivery) -> dict[str, Any]:
    """What the job shows of its webhook."""
    shown = ("at", "duration_ms", "status", "error", "message", "body_is_base64")
    last = delivery.last_attempt
    return {
        "url": delivery.url,
        "event": delivery.event,
        "event_id": delivery.event_id,
        "delivery_id": delivery.delivery_id,
        "status": delivery.status,
        "reason": delivery.reason,
        "attempts": delivery.attempts,
        "next_attempt_at": events.timestamp(delivery.due) if delivery.status == "pending" else None,
        "last_attempt": {name: getattr(last, name) for name in shown}
        | {"body": last.body and last.body[:JOB_BODY_CHARACTERS]}
        if last
        else None,
    }


def draft(*, event_id: str, endpoint_id: str, now: float, retention_seconds: int, **facts: Any) -> Delivery:
    """A new delivery of this event to this endpoint, due at once."""
    return Delivery(
        delivery_id=delivery_id(event_id, endpoint_id),
        event_id=event_id,
        endpoint_id=endpoint_id,
        created_at=events.timestamp(now),
        expires_at=int(now) + retention_seconds,
        queued_at=int(now),
        due=int(now),
        **facts,
    )


def _index_of(owner: str, endpoint_id: str, status: str | None) -> tuple[str, str]:
    if status in UNSENT:
        return "gsi2", f"UNSENT#{owner}#{endpoint_id}#{status}"
    return "gsi1", f"ENDPOINT#{owner}#{endpoint_id}"


def delivery_key(delivery_id: str) -> dict[str, str]:
    return {"pk": f"DELIVERY#{delivery_id}", "sk": "META"}


def id_of(entry: Mapping[str, Any]) -> str:
    return str(entry["pk"]).removeprefix("DELIVERY#")


def attempt_item(delivery: Delivery, attempt: Attempt) -> Item:
    """The item of an attempt that is no more the last."""
    key = delivery_key(delivery.delivery_id) | {"sk": f"ATTEMPT#{attempt.number:06d}"}
    return key | {"entity": "attempt", "expires_at": delivery.expires_at, "attempt": _text(attempt)}


# What never changes is one attribute, and so is an attempt: the SDK spends its time on each attribute, both ways.
_FACTS = (
    "delivery_id",
    "event_id",
    "event",
    "endpoint_id",
    "owner",
    "format",
    "created_at",
    "job_id",
    "job_expires_at",
    "sequence",
    "url",
    "single",
)
_TEXTS = ("body", "status", "reason", "follows", "followed_by", "replay")
_NUMBERS = ("expires_at", "queued_at", "attempts", "tries", "wakes", "due", "lease_until")

STORED = ("facts", *_TEXTS, *_NUMBERS, "last_attempt")
"""The attributes that a delivery is made of; the others of its item are keys."""


def _item(delivery: Delivery) -> Item:
    """Texts and numbers alone; what is None is left out."""
    facts = {name: value for name in _FACTS if (value := getattr(delivery, name)) is not None}
    state = {name: value for name in (*_TEXTS, *_NUMBERS) if (value := getattr(delivery, name)) is not None}
    last = {"last_attempt": _text(delivery.last_attempt)} if delivery.last_attempt else {}
    index = {
        "gsi1pk": f"ENDPOINT#{delivery.owner}#{delivery.endpoint_id}",
        "gsi1sk": f"{delivery.created_at}#{delivery.delivery_id}",
    }
    key = delivery_key(delivery.delivery_id)
    return key | {"entity": "delivery", "facts": json.dumps(facts)} | index | state | last


def read_delivery(item: Mapping[str, Any]) -> Delivery:
    """The delivery in an item of the table."""
    values = json.loads(item["facts"]) | {name: item.get(name) for name in _TEXTS}
    values |= {name: int(item[name]) for name in _NUMBERS}
    return Delivery(**values | {"last_attempt": _attempt(item.get("last_attempt"))})


def _text(attempt: Attempt) -> str:
    """As JSON: `asdict` copies deeply what nobody changes."""
    return json.dumps({f.name: getattr(attempt, f.name) for f in fields(Attempt)}, ensure_ascii=False)


def _attempt(text: str | None) -> Any:
    return Attempt(**json.loads(text)) if text else None
