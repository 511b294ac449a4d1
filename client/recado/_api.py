"""The methods of `Recado` and `AsyncRecado`, written once for both."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any
from urllib.parse import quote

from recado import _uploads
from recado._deadline import Deadline
from recado._event_cursor import EventCursor
from recado._event_stream import EventStream
from recado._http import HttpApi, as_list, new_idempotency_key, response_json, without_none
from recado._io import Request
from recado._messages import as_object
from recado._operations import iteration, operation
from recado._pagination import items, pages
from recado._watcher import JobWatcher, Transport
from recado.errors import ApiError, BadAnswer
from recado.models import (
    Delta,
    Document,
    Hit,
    Job,
    JobEvent,
    JobStatus,
    JobSummary,
    LiveTicket,
    raise_unless_completed,
)

Source = _uploads.Source
OnProgress = _uploads.OnProgress

DEFAULT_KIND = "document"
MAX_INLINE_BYTES = 256 * 1024
"""The service accepts at most so much text in POST /jobs. Longer texts are uploaded."""

ACCEPTED = 202
RECHECK_SECONDS = 1.0
EXPIRED_LINK_STATUSES = frozenset({400, 403})
"""S3 answers 403 to an expired link, and 400 if the credentials that signed it have expired."""


class Operations:
    """Jobs, documents and searches."""

    _api: HttpApi

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
        """Submit a job. Returns as soon as the service has stored it.

        `input` has the fields of this `kind` of job. `text`, `s3_key` (the result of `upload`) and `document_id`
        (your name for a document; a later job with the same name replaces it) are fields of the input, too. A
        `file` (a path, bytes, or a binary file) is uploaded, and its key becomes the field `s3_key`. It can be
        combined with all other fields. A `text` that is too long for the request is uploaded as a file.

        If `idempotency_key` is None, the client creates one, so that a retry does not create a second job. Do not
        combine your own key with a `file`: every upload has another key, so the input is different every time.
        `on_progress(sent, total)` is called with numbers of bytes while the file is uploaded.

        Raises ValueError, before any request, if there is no input or a field is given twice.
        """
        fields = without_none({"text": text, "s3_key": s3_key, "document_id": document_id})
        if file is None and input is None and not fields:
            raise ValueError("Nothing to submit. Pass file, text, s3_key, document_id or input.")
        job_input = _merge(input or {}, fields, {} if file is None else {"s3_key": None})
        if text is not None and len(text.encode(errors="replace")) > MAX_INLINE_BYTES:
            del job_input["text"]
            job_input = _merge(job_input, {"s3_key": None})
            file, filename = text.encode(), filename or "text.txt"
            content_type = content_type or "text/plain; charset=utf-8"
        if file is not None:
            job_input["s3_key"] = await self._upload(file, filename, content_type, kind, on_progress)
        options = {"webhook_url": webhook_url, "webhook_events": as_list(webhook_events), "metadata": metadata}
        body = {"kind": kind, "input": job_input, **without_none(options)}
        return await self._create_job("/jobs", body, idempotency_key)

    @operation
    async def upload(
        self,
        file: Source,
        *,
        filename: str | None = None,
        content_type: str | None = None,
        kind: str = _uploads.DEFAULT_KIND,
        on_progress: OnProgress | None = None,
    ) -> str:
        """Upload a file. Returns the `s3_key` for `submit`. `on_progress(sent, total)` gets numbers of bytes.

        `kind`: of the job that it is for, since each kind has its own limit.

        Files from 16 MiB on are uploaded in parts of about 8 MiB, four at a time, each with its own retries. Then
        `on_progress` never goes back, and a blocking client calls it from several threads, one at a time.
        """
        return await self._upload(file, filename, content_type, kind, on_progress)

    @operation
    async def job(self, job_id: str) -> Job:
        """The job with all fields."""
        return await self._job(job_id)

    @operation
    async def status(self, job_id: str) -> JobStatus:
        """The job's status, stage, progress and expected completion."""
        return JobStatus.of(await self._api.json("GET", f"{_path(job_id)}/status"), job_id=job_id)

    @operation
    async def result(self, job: Job | str) -> Mapping[str, Any] | None:
        """The job's result. A large result is downloaded from its own link. None if the job has not ended.

        Raises JobFailed or JobCanceled if the job did not complete. If the link has expired, the job is fetched
        again for a new link, once; if that fails as well, its ApiError is raised.
        """
        found = job if isinstance(job, Job) and job.is_final else await self._job(_id(job))
        raise_unless_completed(found)
        if not found.result_truncated:
            return found.result
        try:
            return await self._large_result(found)
        except ApiError as error:
            if error.status not in EXPIRED_LINK_STATUSES:
                raise
        return await self._large_result(await self._job(found.job_id))

    @iteration
    async def jobs(
        self, *, status: str | None = None, kind: str | None = None, limit: int | None = None
    ) -> AsyncGenerator[JobSummary, None]:
        """Your jobs, the newest first: all or the first `limit`. Pages are requested when they are needed."""
        query = {"status": status, "kind": kind}
        async with aclosing(pages(self._api, "/jobs", "jobs", JobSummary, query, limit)) as found:
            async for job in found:
                yield job

    @operation
    async def events(self, job_id: str, *, after: int = 0) -> tuple[JobEvent, ...]:
        """The events so far after number `after`, in order."""
        response = await self._api.send(self._api.events_request(job_id, after))
        return items(response_json(response), "events", JobEvent, job_id=job_id)

    @operation
    async def cancel(self, job_id: str) -> Job:
        """Cancel the job. A job that has ended does not change."""
        return Job.of(await self._api.json("POST", f"{_path(job_id)}/cancel"), job_id=job_id)

    @operation
    async def retry(self, job_id: str, *, idempotency_key: str | None = None) -> Job:
        """Run a failed or canceled job again. Returns the new job; its `retry_of` is this one."""
        return await self._create_job(f"{_path(job_id)}/retry", None, idempotency_key, retry_of=job_id)

    @operation
    async def delete_job(self, job_id: str) -> bool:
        """Delete a job that has ended, with its log, input, result and payloads. Cancels its pending webhooks.

        The job is gone at once. Returns True if its data is removed, too. False if that takes some more seconds:
        call it again to ask. Uploads and the live version of a document stay. Raises Conflict for an open job.
        """
        response = await self._api.send(self._api.build_request("DELETE", _path(job_id)))
        return response.status != ACCEPTED

    @operation
    async def end_links(self, job_id: str) -> None:
        """End all links to the job; `job` returns new ones. WebSockets that a link opened end in five minutes."""
        await self._api.json("DELETE", f"{_path(job_id)}/links")

    @operation
    async def wait(
        self,
        job: Job | str,
        *,
        timeout: float | None = None,
        check: bool = True,
        transport: Transport = "auto",
    ) -> Job:
        """Wait until the job has ended. Returns the job with all fields.

        With the transport `auto`, the client uses a WebSocket if the job has a `live` link and `recado[live]` is
        installed, else server-sent events, else long polls, else polls at the times that Retry-After says.

        Raises JobFailed or JobCanceled, unless `check` is False, and WaitTimeout after `timeout` seconds. The job
        continues after a WaitTimeout.
        """
        deadline = self._deadline(job, timeout)
        found = await self._job(job) if isinstance(job, str) else job
        while not found.is_final:
            cursor = EventCursor(found.job_id, found.sequence, found.status)
            watcher = JobWatcher(self._api, found, cursor, deadline, wants_events=False, transport=transport)
            async with aclosing(watcher.events()) as events:
                async for _ in events:
                    pass
            found = await self._job(found.job_id)
            if not found.is_final:  # the end was reported too early: do not repeat the request at once
                await self._api.io.sleep(RECHECK_SECONDS)
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
        """The job's events after number `after`, as they happen, until the job has ended.

        Each event is yielded once and in order, however often the connection breaks. `on_delta` is called with
        pieces of a text while the job writes it; only WebSockets transmit those. Append a delta to the text;
        replace the text by a delta with `is_snapshot`. Raises WaitTimeout after `timeout` seconds.
        """
        deadline = self._deadline(job, timeout)
        found = await self._job(job) if isinstance(job, str) else job
        cursor = EventCursor(found.job_id, after)
        watcher = JobWatcher(self._api, found, cursor, deadline, transport=transport, on_delta=on_delta)
        async with aclosing(watcher.events()) as events:
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
        """The events of all your jobs of a kind, from now on, as they happen and without an end.

        Each event is yielded once, and the events of one job in order. The connection is reopened whenever it
        breaks, with increasing delays. `on_connected` is called after each successful connection. Events that
        happened in between are yielded afterwards for all jobs that were seen before. A job that began in
        between is missed until its next event: `jobs(kind=…)` lists all jobs, and `events` returns the earlier
        events of one. The last 10,000 jobs are remembered. With asyncio, close the generator if you leave the
        loop early: `async with contextlib.aclosing(client.follow()) as events`.

        Needs `pip install 'recado[live]'`, else raises MissingExtra, and a key with the scope `jobs:read`.
        Raises ConnectionFailed if the first connection fails eight times, ApiError if the service refuses the
        request, and WaitTimeout after `timeout` seconds.
        """
        deadline = Deadline.after(self._api.io, timeout, "The timeout passed.")
        async with aclosing(EventStream(self._api, kind, deadline, on_connected).events()) as events:
            async for event in events:
                yield event

    @operation
    async def live_ticket(self, *, ask: bool = False) -> LiveTicket:
        """A ticket that opens one WebSocket for all your jobs, once and within a minute.

        Give it to a browser, for example: the ticket needs no key. `docs/waiting.md` describes the messages. With
        `ask`, the WebSocket may submit questions to agents; the key needs the scope `jobs:write`.
        """
        body = {"ask": True} if ask else None
        return LiveTicket.of(await self._api.json("POST", "/live/tickets", body=body))

    @operation
    async def documents(self) -> tuple[Document, ...]:
        """Your searchable documents."""
        return items(await self._api.json("GET", "/documents"), "documents", Document)

    @operation
    async def document(self, document_id: str) -> Document:
        """One document."""
        return Document.of(
            await self._api.json("GET", f"/documents/{quote(document_id, safe='')}"), document_id=document_id
        )

    @operation
    async def delete_document(self, document_id: str) -> None:
        """Delete a document. Searches do not find it any more at once. Deleting it again is not an error."""
        await self._api.json("DELETE", f"/documents/{quote(document_id, safe='')}")

    @operation
    async def search(
        self,
        query: str,
        *,
        top_k: int = 10,
        document_ids: Sequence[str] = (),
        metadata: Mapping[str, str] | None = None,
    ) -> tuple[Hit, ...]:
        """The chunks that are most similar to a question in any language.

        Only chunks of these documents, whose metadata contains all of `metadata`, are searched.
        """
        filters = document_filter(document_ids, metadata)
        body = {"query": query, "top_k": top_k, **without_none({"filter": filters})}
        return items(await self._api.json("POST", "/search", body=body), "hits", Hit)

    def _deadline(self, job: Job | str, timeout: float | None) -> Deadline:
        message = f"{_id(job)} did not end within the timeout. The job continues."
        return Deadline.after(self._api.io, timeout, message)

    async def _job(self, job_id: str) -> Job:
        return Job.of(await self._api.json("GET", _path(job_id)), job_id=job_id)

    async def _create_job(
        self, path: str, body: Mapping[str, Any] | None, idempotency_key: str | None, **expected: str
    ) -> Job:
        key = new_idempotency_key(idempotency_key)
        return Job.of(await self._api.json("POST", path, body=body, idempotency_key=key), **expected)

    async def _large_result(self, job: Job) -> Mapping[str, Any]:
        """From the presigned link on another host. The key is not sent there."""
        link = job.links.get("result")
        if not link:
            raise BadAnswer(f"{job.job_id} has a large result but no link to it.")
        response = await self._api.send(Request("GET", link, timeout=self._api.timeout))
        return as_object(response_json(response))

    async def _upload(
        self,
        file: Source,
        filename: str | None,
        content_type: str | None,
        kind: str,
        on_progress: OnProgress | None,
    ) -> str:
        with _uploads.open_content(file, filename, content_type) as content:
            return await _uploads.upload(self._api, content, kind, on_progress)


def _path(job_id: str) -> str:
    return f"/jobs/{quote(job_id, safe='')}"


def _id(job: Job | str) -> str:
    return job if isinstance(job, str) else job.job_id


def document_filter(document_ids: Sequence[str], metadata: Mapping[str, str] | None) -> dict[str, Any] | None:
    """Of documents. None for all of them."""
    return without_none({"document_ids": list(document_ids) or None, "metadata": metadata or None}) or None


def _merge(*parts: Mapping[str, Any]) -> dict[str, Any]:
    """All fields of these mappings. Raises ValueError if two of them have the same field."""
    merged: dict[str, Any] = {}
    for part in parts:
        for name, value in part.items():
            if name in merged:
                raise ValueError(f"{name} is given twice.")
            merged[name] = value
    return merged
