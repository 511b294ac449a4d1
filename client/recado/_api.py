"""Every call of the API, written once for both clients."""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from itertools import chain
from typing import Any, TypeVar
from urllib.parse import quote

from recado import _uploads
from recado._calls import Calls, Timer, parsed
from recado._cursor import Cursor, mapping
from recado._feed import Feed
from recado._following import Following, Transport
from recado._io import Request
from recado._operations import iteration, operation
from recado.errors import ApiError, BadAnswer
from recado.models import (
    Delivery,
    Delta,
    Document,
    Hit,
    Job,
    JobEvent,
    JobStatus,
    JobSummary,
    LiveTicket,
    MultipartUpload,
    Pending,
    Record,
    Upload,
    Webhook,
    raise_unless_completed,
)

R = TypeVar("R", bound=Record)
Source = _uploads.Source
OnProgress = _uploads.OnProgress

DEFAULT_KIND = "document"
INLINE_BYTES = 256 * 1024
"""What is longer is uploaded; the service takes no more than this in a POST."""

PAGE = 100
SECOND_LOOK_SECONDS = 1.0
LINK_EXPIRED = frozenset({400, 403})
"""What a store of files answers to a link that has expired: 403, or 400 if what signed it has expired first."""

NOT_IN_TIME = "has not ended in time; it goes on"
TEST_SECONDS = 40.0
"""The service holds the answer to a test of an endpoint for up to 25 s."""


class Operations:
    """Jobs, documents and searches."""

    _calls: Calls

    @operation
    async def submit(
        self,
        file: Source | None = None,
        *,
        text: str | None = None,
        s3_key: str | None = None,
        input: Mapping[str, Any] | None = None,
        kind: str = DEFAULT_KIND,
        document_id: str | None = None,
        filename: str | None = None,
        content_type: str | None = None,
        webhook_url: str | None = None,
        webhook_events: Sequence[str] | None = None,
        metadata: Mapping[str, str] | None = None,
        idempotency_key: str | None = None,
        on_progress: OnProgress | None = None,
    ) -> Job:
        """Submit a job; returns it as soon as it is written down.

        `input` has the fields that jobs of this `kind` take, as the API has them. `text`, `s3_key` (of an earlier
        `upload`) and `document_id` (your name for a document; a later job of that name replaces it) are fields of
        it, too. A `file` (a path, bytes, or a binary file) is uploaded, and its key becomes the field `s3_key`: it
        goes together with all the other fields. A `text` that is too long for a POST is sent as a file.

        An idempotency key is made where none is given, so that a repetition after a lost answer makes no second
        job. One of your own goes with anything but a `file`: every upload is another key, hence another input.
        `on_progress(sent, total)` is called while a file is uploaded, in bytes.

        Raises ValueError, before anything is sent, where nothing is given, or the same field twice.
        """
        fields = _given({"text": text, "s3_key": s3_key, "document_id": document_id})
        if file is None and input is None and not fields:
            raise ValueError("nothing is submitted: give a file, text, s3_key, document_id or input")
        wanted = _together(input or {}, fields, {} if file is None else {"s3_key": None})
        if text is not None and len(text.encode(errors="replace")) > INLINE_BYTES:
            del wanted["text"]
            wanted = _together(wanted, {"s3_key": None})
            file, filename = text.encode(), filename or "text.txt"
            content_type = content_type or "text/plain; charset=utf-8"
        if file is not None:
            wanted["s3_key"] = await self._upload(file, filename, content_type, on_progress)
        body = {
            "kind": kind,
            "input": wanted,
            **_given({"webhook_url": webhook_url, "webhook_events": _list(webhook_events), "metadata": metadata}),
        }
        return Job.of(await self._calls.json("POST", "/jobs", body=body, idempotency_key=_key(idempotency_key)))

    @operation
    async def upload(
        self,
        file: Source,
        *,
        filename: str | None = None,
        content_type: str | None = None,
        on_progress: OnProgress | None = None,
    ) -> str:
        """Upload a file; returns the `s3_key` to submit. `on_progress(sent, total)` counts bytes.

        From 16 MiB on it goes in parts of some 8 MiB, four at a time, each tried again by itself. Progress never
        goes back then, and a blocking client tells it from the threads that send, one at a time.
        """
        return await self._upload(file, filename, content_type, on_progress)

    @operation
    async def job(self, job_id: str) -> Job:
        """The whole job."""
        return await self._job(job_id)

    @operation
    async def status(self, job_id: str) -> JobStatus:
        """The small answer: status, stage, progress, and when it is expected to end."""
        return JobStatus.of(await self._calls.json("GET", f"/jobs/{quote(job_id, safe='')}/status"))

    @operation
    async def result(self, job: Job | str) -> Mapping[str, Any] | None:
        """What the job came to, however large: a result that is not in the job is fetched from its own link.

        None while the job goes on. Raises JobFailed or JobCanceled where it did not complete. A link that has
        expired is asked for anew, once; if that is refused as well, its ApiError is raised.
        """
        found = job if isinstance(job, Job) and job.is_final else await self._job(_id(job))
        raise_unless_completed(found)
        if not found.result_truncated:
            return found.result
        try:
            return await self._large_result(found)
        except ApiError as error:
            if error.status not in LINK_EXPIRED:
                raise
        return await self._large_result(await self._job(found.job_id))

    @iteration
    async def jobs(
        self, *, status: str | None = None, kind: str | None = None, limit: int | None = None
    ) -> AsyncGenerator[JobSummary, None]:
        """Your jobs, newest first: all of them, page by page as you go on, or the first `limit`."""
        query = {"status": status, "kind": kind}
        async with aclosing(_pages(self._calls, "/jobs", "jobs", JobSummary, query, limit)) as found:
            async for item in found:
                yield item

    @operation
    async def events(self, job_id: str, *, after: int = 0) -> tuple[JobEvent, ...]:
        """What has happened so far, in order, from the event after number `after` on."""
        return _items(parsed(await self._calls.call(self._calls.log(job_id, after))), "events", JobEvent)

    @operation
    async def cancel(self, job_id: str) -> Job:
        """Cancel it; one that has ended stays as it is."""
        return Job.of(await self._calls.json("POST", f"/jobs/{quote(job_id, safe='')}/cancel"))

    @operation
    async def retry(self, job_id: str, *, idempotency_key: str | None = None) -> Job:
        """Run a failed or canceled job again; returns the new job, whose `retry_of` is this one."""
        path = f"/jobs/{quote(job_id, safe='')}/retry"
        return Job.of(await self._calls.json("POST", path, idempotency_key=_key(idempotency_key)))

    @operation
    async def wait(
        self,
        job: Job | str,
        *,
        timeout: float | None = None,
        check: bool = True,
        transport: Transport = "auto",
    ) -> Job:
        """Wait until the job has ended; returns the whole of it.

        The way is found by itself: a WebSocket where there is one (and `recado[live]` is installed), else
        server-sent events, else long polls, else polls when Retry-After says so. `transport` picks one.

        Raises JobFailed or JobCanceled, unless `check` is False, and TimeUp after `timeout` seconds: the job
        goes on then.
        """
        timer = self._timer(job, timeout)
        found = await self._job(job) if isinstance(job, str) else job
        while not found.is_final:
            cursor = Cursor(found.job_id, found.sequence, found.status)
            following = Following(self._calls, found, cursor, timer, False, transport)
            async with aclosing(following.events()) as events:
                async for _ in events:
                    pass
            found = await self._job(found.job_id)
            if not found.is_final:  # who said that it has ended was wrong: do not ask again at once
                await self._calls.io.sleep(SECOND_LOOK_SECONDS)
        if check:
            raise_unless_completed(found)
        return found

    @iteration
    async def watch(
        self,
        job: Job | str,
        *,
        after: int = 0,
        timeout: float | None = None,
        transport: Transport = "auto",
        on_delta: Callable[[Delta], object] | None = None,
    ) -> AsyncGenerator[JobEvent, None]:
        """The job's events from the one after number `after` on, as they happen, until it has ended.

        Each comes once and in order, however often the connection breaks. `on_delta` is called with what is too
        fine for the log, such as pieces of a text that is being made; only a WebSocket carries those. A delta is
        added to what was there, one with `is_snapshot` replaces it. Raises TimeUp after `timeout` seconds.
        """
        timer = self._timer(job, timeout)
        found = await self._job(job) if isinstance(job, str) else job
        following = Following(self._calls, found, Cursor(found.job_id, after), timer, True, transport, on_delta)
        async with aclosing(following.events()) as events:
            async for event in events:
                yield event

    @iteration
    async def follow(
        self,
        kind: str = DEFAULT_KIND,
        *,
        on_connected: Callable[[], object] | None = None,
        timeout: float | None = None,
    ) -> AsyncGenerator[JobEvent, None]:
        """The events of all of your jobs of a kind, from now on, as they happen and without an end.

        Each comes once, and those of one job in order. `on_connected` is called when events begin to flow, and
        again after each break: a connection that ends is made anew, with growing pauses, for as long as it takes.
        What happened in between to jobs that were seen before is told then. What can be missed is a job that
        began in between, up to its next event: `jobs(kind=…)` lists all, and `events` has what is before the
        first that you see. The last 10,000 jobs are remembered. With asyncio, who leaves the loop early closes it:
        `async with contextlib.aclosing(client.follow()) as events`.

        Needs `pip install 'recado[live]'`, else raises MissingExtra, and a key with the scope `jobs:read`.
        Raises ConnectionFailed if the first connection does not come about in eight tries, ApiError where the
        service refuses, and TimeUp after `timeout` seconds.
        """
        timer = Timer.of(self._calls.io, timeout, "the time for following is up")
        async with aclosing(Feed(self._calls, kind, timer, on_connected).events()) as events:
            async for event in events:
                yield event

    @operation
    async def live_ticket(self) -> LiveTicket:
        """A ticket that opens one WebSocket for all of your jobs, once and within a minute.

        It is for handing on, to a browser for one: who has it needs no key. What can be said over the socket,
        `docs/waiting.md` has.
        """
        return LiveTicket.of(await self._calls.json("POST", "/live/tickets"))

    @operation
    async def documents(self) -> tuple[Document, ...]:
        """Your documents that can be found."""
        return _items(await self._calls.json("GET", "/documents"), "documents", Document)

    @operation
    async def document(self, document_id: str) -> Document:
        """One document."""
        return Document.of(await self._calls.json("GET", f"/documents/{quote(document_id, safe='')}"))

    @operation
    async def delete_document(self, document_id: str) -> None:
        """At once it is found no more. Again is the same as once."""
        await self._calls.json("DELETE", f"/documents/{quote(document_id, safe='')}")

    @operation
    async def search(
        self,
        query: str,
        *,
        top_k: int = 10,
        document_ids: Sequence[str] = (),
        metadata: Mapping[str, str] | None = None,
    ) -> tuple[Hit, ...]:
        """The chunks nearest to a question in any language, of these documents, with all of this metadata."""
        wanted = {"document_ids": list(document_ids) or None, "metadata": metadata or None}
        body: dict[str, Any] = {"query": query, "top_k": top_k, **_given({"filter": _given(wanted) or None})}
        return _items(await self._calls.json("POST", "/search", body=body), "hits", Hit)

    def _timer(self, job: Job | str, timeout: float | None) -> Timer:
        return Timer.of(self._calls.io, timeout, f"{_id(job)} {NOT_IN_TIME}")

    async def _job(self, job_id: str) -> Job:
        return Job.of(await self._calls.json("GET", f"/jobs/{quote(job_id, safe='')}"))

    async def _large_result(self, job: Job) -> Mapping[str, Any]:
        """From another host, whose link is a permission of its own: the key is not sent along."""
        link = job.links.get("result")
        if not link:
            raise BadAnswer(f"{job.job_id} has a large result, and no link to it")
        answer = await self._calls.call(Request("GET", link, timeout=self._calls.timeout))
        return mapping(parsed(answer))

    async def _upload(
        self, file: Source, filename: str | None, content_type: str | None, on_progress: OnProgress | None
    ) -> str:
        with _uploads.opened(file, filename, content_type) as content:
            wanted = {"filename": content.name, "content_type": content.media_type, "size": content.size}
            if content.size >= _uploads.PARTS_FROM_BYTES:
                answer = await self._calls.json("POST", "/uploads", body={**wanted, "parts": True})
                place = MultipartUpload.of(answer)
                await _uploads.put_parts(self._calls, place, content, on_progress)
                return place.s3_key
            slot = Upload.of(await self._calls.json("POST", "/uploads", body=wanted))
            await _uploads.put(self._calls, slot, content, on_progress)
            return slot.s3_key


class WebhookOperations:
    """Endpoints that are called with events, and what was sent to them."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    @operation
    async def add(self, /, url: str, events: Sequence[str] = ("*",), **options: Any) -> Webhook:
        """Have events sent to a URL. The answer has the `secret`, which is shown this once.

        `events` are names, `<kind>.*`, `*.<verb>` or `*`. Options: `filter`, `description`, `headers`,
        `rate_limit`, `format`, `ordered`, `signing`, `secret`.
        """
        body = {"url": url, "events": list(events), **options}
        return Webhook.of(await self._calls.json("POST", "/webhooks", body=body, repeatable=False))

    @operation
    async def list(self) -> tuple[Webhook, ...]:
        """All of your endpoints, oldest first."""
        return _items(await self._calls.json("GET", "/webhooks"), "webhooks", Webhook)

    @operation
    async def get(self, webhook_id: str) -> Webhook:
        """One endpoint; `default` is the one that jobs' own webhook_url stand on."""
        return Webhook.of(await self._calls.json("GET", _webhook(webhook_id)))

    @operation
    async def change(self, /, webhook_id: str, **changes: Any) -> Webhook:
        """Change what is named: `url`, `events`, `enabled`, … None clears `filter`, `headers`, `rate_limit`."""
        return Webhook.of(await self._calls.json("PATCH", _webhook(webhook_id), body=changes))

    @operation
    async def delete(self, webhook_id: str) -> None:
        """Delete it; what still waits for it is canceled."""
        await self._calls.json("DELETE", _webhook(webhook_id), gone=404)

    @operation
    async def rotate(
        self, webhook_id: str, *, grace_seconds: int | None = None, secret: str | None = None
    ) -> Webhook:
        """A new `secret`, shown this once. The old one signs beside it for the grace (a day if not given)."""
        body, path = _given({"grace_seconds": grace_seconds, "secret": secret}), _webhook(webhook_id)
        return Webhook.of(await self._calls.json("POST", f"{path}/rotate-secret", body=body, repeatable=False))

    @operation
    async def test(self, webhook_id: str) -> Delivery | Pending:
        """Send a ping and see what the endpoint answers. Pending if that takes longer than the service waits."""
        path = f"{_webhook(webhook_id)}/test"
        answer = await self._calls.json("POST", path, timeout=TEST_SECONDS, repeatable=False)
        return Delivery.of(answer) if "status" in answer else Pending.of(answer)

    @iteration
    async def deliveries(
        self,
        webhook_id: str,
        *,
        status: str | None = None,
        event: str | None = None,
        since: str | None = None,
        limit: int | None = None,
    ) -> AsyncGenerator[Delivery, None]:
        """What was sent, newest first: all of it, page by page as you go on, or the first `limit`."""
        query, path = {"status": status, "event": event, "since": since}, f"{_webhook(webhook_id)}/deliveries"
        async with aclosing(_pages(self._calls, path, "deliveries", Delivery, query, limit)) as found:
            async for item in found:
                yield item

    @operation
    async def delivery(self, delivery_id: str) -> Delivery:
        """One delivery with every attempt and the very text that was sent."""
        return Delivery.of(await self._calls.json("GET", f"/deliveries/{quote(delivery_id, safe='')}"))

    @operation
    async def redeliver(self, delivery_id: str) -> Delivery:
        """Send the same bytes once more, now."""
        path = f"/deliveries/{quote(delivery_id, safe='')}/redeliver"
        return Delivery.of(await self._calls.json("POST", path, repeatable=False))

    @operation
    async def recover(
        self,
        webhook_id: str,
        *,
        since: str,
        until: str | None = None,
        status: Sequence[str] | None = None,
        idempotency_key: str | None = None,
    ) -> Job:
        """Send again what failed or was discarded in that time (RFC 3339), as a job."""
        body, path = _given({"since": since, "until": until, "status": _list(status)}), _webhook(webhook_id)
        key = _key(idempotency_key)
        return Job.of(await self._calls.json("POST", f"{path}/recover", body=body, idempotency_key=key))

    @operation
    async def replay(
        self,
        webhook_id: str,
        *,
        since: str,
        until: str | None = None,
        events: Sequence[str] | None = None,
        idempotency_key: str | None = None,
    ) -> Job:
        """Send again what happened in that time (RFC 3339), sent before or not, as a job."""
        body, path = _given({"since": since, "until": until, "events": _list(events)}), _webhook(webhook_id)
        key = _key(idempotency_key)
        return Job.of(await self._calls.json("POST", f"{path}/replay", body=body, idempotency_key=key))


async def _pages(
    calls: Calls, path: str, name: str, kind: type[R], query: Mapping[str, Any], limit: int | None
) -> AsyncGenerator[R, None]:
    cursor, left = None, limit
    while left is None or left > 0:
        asked = {**query, "cursor": cursor, "limit": min(PAGE, left or PAGE)}
        page = await calls.json("GET", path, query=asked)
        for item in _items(page, name, kind):
            yield item
            left = None if left is None else left - 1
        cursor = page.get("cursor")
        if cursor is None:
            return


def _items(page: Any, name: str, kind: type[R]) -> tuple[R, ...]:
    items = page.get(name) if isinstance(page, Mapping) else None
    if not isinstance(items, Iterable):
        raise BadAnswer(f"an answer without {name}")
    return tuple(kind.of(item) for item in items)


def _webhook(webhook_id: str) -> str:
    return f"/webhooks/{quote(webhook_id, safe='')}"


def _id(job: Job | str) -> str:
    return job if isinstance(job, str) else job.job_id


def _together(*parts: Mapping[str, Any]) -> dict[str, Any]:
    """All these fields. Raises ValueError where two parts have the same one."""
    together: dict[str, Any] = {}
    for name, value in chain.from_iterable(part.items() for part in parts):
        if name in together:
            raise ValueError(f"{name} is given twice")
        together[name] = value
    return together


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _list(values: Sequence[str] | None) -> Any:
    return None if values is None else [*values]


def _key(given: str | None) -> str:
    return given or str(uuid.uuid4())
