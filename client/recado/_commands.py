"""What each command does. A command returns its exit code, or raises what `cli` has one for."""

from __future__ import annotations

import argparse
import getpass
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import Any

from recado import _input, _listen, config, cost
from recado._api import DEFAULT_KIND
from recado._screen import Bars, Screen, Typed, clean, duration, facts, is_terminal, local_date, upload_bar
from recado.client import Recado
from recado.errors import InvalidRequest, NotConfigured, RecadoError
from recado.models import (
    Delivery,
    Hit,
    Job,
    JobEvent,
    JobStatus,
    JobSummary,
    Pending,
    Webhook,
    raise_unless_completed,
)

OK, REFUSED, USAGE, FAILED, CANCELED, TIME_UP, NO_ACCESS, INTERRUPTED = 0, 1, 2, 3, 4, 5, 6, 130
SECRET = "RECADO_WEBHOOK_SECRET"  # noqa: S105 the name of a variable
SHOWN_CHARACTERS = 400


@contextmanager
def _client(options: argparse.Namespace) -> Iterator[Recado]:
    with Recado(options.url) as client:
        yield client


# ── jobs ─────────────────────────────────────────────────────────────────────────────────────────────────


def submit(options: argparse.Namespace, screen: Screen) -> int:
    given = _input_of(options)
    with _client(options) as client:
        job = _submitted(client, given, options, screen)
        _show_accepted(job, options, screen)
        return _attend(client, job, options, screen) if options.wait else OK


def _input_of(options: argparse.Namespace) -> Mapping[str, Any] | None:
    """The fields that --input and --set give, None without these. Raises ValueError for a field given twice."""
    parts = [*([] if options.input is None else [options.input]), *(options.set or ())]
    if not parts and options.file is None and options.text is None and options.document_id is None:
        options.refuse("give a file, --text, --set or --input")
    return _input.joined(parts) if parts else None


def _submitted(
    client: Recado, given: Mapping[str, Any] | None, options: argparse.Namespace, screen: Screen
) -> Job:
    said: dict[str, Any] = {
        "kind": options.kind,
        "input": given,
        "document_id": options.document_id,
        "metadata": _pairs(options.metadata),
        "webhook_url": options.webhook_url,
        "webhook_events": options.webhook_event,
        "idempotency_key": options.idempotency_key,
    }
    if options.file is None:
        return client.submit(text=options.text, **said)
    if options.file == "-":
        return _submit_piped(client, said, options)
    if options.kind == DEFAULT_KIND and "document_id" not in (given or {}):
        said["document_id"] = options.document_id or os.path.basename(options.file)
    return _submit_file(client, said, options, screen)


def _submit_piped(client: Recado, said: Mapping[str, Any], options: argparse.Namespace) -> Job:
    """A document may be text; what is piped in for any other kind is a file."""
    data = sys.stdin.buffer.read()
    if options.kind == DEFAULT_KIND:
        with suppress(UnicodeDecodeError):
            return client.submit(text=data.decode(), **said)
    return client.submit(data, filename="stdin", content_type=options.type, **said)


def _submit_file(client: Recado, said: Mapping[str, Any], options: argparse.Namespace, screen: Screen) -> Job:
    with upload_bar(screen) as bar:
        task = bar.add_task("upload", visible=False)

        def show(sent: int, total: int) -> None:
            bar.update(task, completed=sent, total=total, visible=True)

        return client.submit(options.file, content_type=options.type, on_progress=show, **said)


def _show_accepted(job: Job, options: argparse.Namespace, screen: Screen) -> None:
    if screen.as_json:
        if not options.wait:
            screen.json(job.raw)
    elif not screen.for_people:
        screen.line(job.job_id)
    else:
        screen.say((job.job_id, "bold"), f"  {clean(_about(job) or job.kind)}")
        if not options.wait:
            screen.say(("follow it: ", "dim"), f"recado watch {job.job_id}")
    if job.webhook_secret and "…" not in job.webhook_secret:
        screen.note(
            "Your webhooks are signed with ", (job.webhook_secret, "bold"), ", which is shown this once: keep it."
        )


def _attend(client: Recado, job: Job, options: argparse.Namespace, screen: Screen) -> int:
    """Wait and show; Ctrl-C leaves the job alone."""
    began = time.monotonic()
    try:
        _follow(client, job, options, screen)
        ended = client.job(job.job_id)
    except KeyboardInterrupt:
        screen.note("\nDetached; the job goes on.")
        screen.note("  come back   ", (f"recado watch {job.job_id}", "bold"))
        screen.note("  end it      ", (f"recado cancel {job.job_id}", "bold"))
        return INTERRUPTED
    return _show_end(ended, screen, took=time.monotonic() - began)


def _follow(client: Recado, job: Job, options: argparse.Namespace, screen: Screen) -> None:
    events = client.watch(job, timeout=options.timeout, transport=options.transport)
    if not screen.can_move or screen.as_json:
        for event in events:
            screen.event(event)
        return
    with Bars(screen.err) as bars:
        for event in events:
            if bars.take(event):
                bars.expect(client.status(job.job_id))


def _about(job: Job | JobSummary) -> str:
    return job.subject[1] if job.subject else ""


def _show_end(job: Job, screen: Screen, *, took: float) -> int:
    if screen.as_json:
        screen.json(job.raw)
    raise_unless_completed(job)
    result = "" if job.result_truncated else facts(job.result or {})
    screen.note(("✓ completed", "green"), f" in {duration(took)}  {result}")
    _note_large_result(job, screen)
    return OK


def _note_large_result(job: Job, screen: Screen) -> None:
    if job.result_truncated:
        screen.note(f"The result is large: {_result_link(job)}")


def _result_link(job: Job) -> str:
    """Where a large result is; it needs no key."""
    return clean(job.links.get("result", "the service has no link to it"))


def watch(options: argparse.Namespace, screen: Screen) -> int:
    """Every event, and what came of it."""
    with _client(options) as client:
        job = client.job(options.job)
        try:
            return _watch(client, job, options, screen)
        except KeyboardInterrupt:
            screen.note("\nThe job goes on; come back with ", (f"recado watch {job.job_id}", "bold"))
            return INTERRUPTED


def _watch(client: Recado, job: Job, options: argparse.Namespace, screen: Screen) -> int:
    text = Typed(screen)
    watching = client.watch(
        job,
        after=options.after,
        timeout=options.timeout,
        transport=options.transport,
        on_delta=text.take,
    )
    with text:
        for event in watching:
            text.end_line()
            _show_event(event, screen)
    ended = client.job(job.job_id)
    raise_unless_completed(ended)
    _note_large_result(ended, screen)
    return OK


def follow(options: argparse.Namespace, screen: Screen) -> int:
    """Every event of every job, until Ctrl-C."""
    with _stoppable(), suppress(KeyboardInterrupt), _client(options) as client:
        for event in client.follow(options.kind, on_connected=_Greeting(options.kind, screen)):
            _show_event(event, screen, with_job=True)
    return OK


def _show_event(event: JobEvent, screen: Screen, *, with_job: bool = False) -> None:
    if screen.for_people:
        screen.event(event, is_answer=True, with_job=with_job)
    else:
        job = (event.job_id,) if with_job else ()
        screen.record(event, event.timestamp, *job, event.sequence, event.event, facts(event.raw))


class _Greeting:
    """What is noted when events begin to flow, and when they flow again."""

    def __init__(self, kind: str, screen: Screen) -> None:
        self._text, self._screen = f"Following all jobs of the kind {clean(kind)}. Ctrl-C ends it.", screen

    def __call__(self) -> None:
        self._screen.note((self._text, "dim"))
        self._text = "Connected again."


def status(options: argparse.Namespace, screen: Screen) -> int:
    with _client(options) as client:
        job = client.job(options.job)
        now = client.status(options.job) if not job.is_final else None
    if screen.as_json:
        screen.json({**job.raw, **(now.raw if now else {})})
    elif screen.for_people:
        _describe(job, now, screen)
    else:
        progress = f"{job.progress.done}/{job.progress.total}" if job.progress else ""
        screen.line(job.job_id, job.status, job.stage, progress, job.error.code if job.error else "")
        _note_large_result(job, screen)
    return OK


def _describe(job: Job, now: JobStatus | None, screen: Screen) -> None:
    error, progress = job.error, job.progress
    field, about = job.subject or ("", "")
    rows = [
        ("job", job.job_id),
        ("status", job.status),
        ("kind", job.kind),
        (field.removesuffix("_id").replace("_", " "), about),
        ("stage", f"{job.stage} {progress.done}/{progress.total}" if progress else job.stage),
        ("waits for", _waits_for(now or job)),
        ("attempts", job.attempts if job.attempts > 1 else None),
        ("created", local_date(job.created_at)),
        ("finished", local_date(job.finished_at)),
        ("expected", local_date(now.expected_completion) if now else None),
        ("retry of", job.retry_of),
        ("error", f"{error.code} in {error.stage}: {error.message}" if error else None),
        ("metadata", facts(job.metadata)),
        ("result", "large, see the link" if job.result_truncated else facts(job.result or {})),
    ]
    screen.table(("", ""), [(name, value) for name, value in rows if value])
    if job.result_truncated:  # not in the table, which would break it into lines
        screen.say(_result_link(job))


def _waits_for(job: JobStatus) -> str:
    since = local_date(job.waiting_since)
    return f"{job.waiting_for}{' since ' if since else ''}{since}" if job.waiting_for else ""


def ls(options: argparse.Namespace, screen: Screen) -> int:
    with _client(options) as client:
        jobs = list(client.jobs(status=options.status, kind=options.kind, limit=options.limit))
    rows = [(job.job_id, job.status, job.stage, job.kind, _about(job), _when(job, screen)) for job in jobs]
    screen.records(jobs, ("job", "status", "stage", "kind", "about", "created"), rows)
    return OK


def _when(item: Any, screen: Screen) -> str:
    return local_date(item.created_at) if screen.for_people else str(item.created_at)


def cancel(options: argparse.Namespace, screen: Screen) -> int:
    with _client(options) as client:
        job = client.cancel(options.job)
    screen.record(job, job.job_id, job.status)
    return OK


def retry(options: argparse.Namespace, screen: Screen) -> int:
    with _client(options) as client:
        job = client.retry(options.job)
        _show_accepted(job, options, screen)
        return _attend(client, job, options, screen) if options.wait else OK


# ── documents ────────────────────────────────────────────────────────────────────────────────────────────


def search(options: argparse.Namespace, screen: Screen) -> int:
    with _client(options) as client:
        hits = client.search(
            options.query,
            top_k=options.top_k,
            document_ids=options.document or (),
            metadata=_pairs(options.metadata),
        )
    for number, hit in enumerate(hits, 1):
        if screen.as_json:
            screen.json(hit.raw)
        elif not screen.for_people:
            screen.line(f"{hit.score:.4f}", hit.document_id, hit.start, hit.end, hit.heading, hit.text)
        else:
            _show_hit(number, hit, screen)
    if not hits:
        screen.note("Nothing was found. `recado documents` lists what can be.")
    return OK


def _show_hit(number: int, hit: Hit, screen: Screen) -> None:
    text = clean(" ".join(hit.text.split()))
    shown = text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS].rstrip() + " …"
    name, score = f"{number}. {clean(hit.document_id)}", f"  {hit.score:.3f}"
    screen.say((name, "bold"), (score, "cyan"), (f"  {clean(hit.heading)}" if hit.heading else "", "dim"))
    screen.say(f"{shown}\n")


def documents(options: argparse.Namespace, screen: Screen) -> int:
    with _client(options) as client:
        if options.delete:
            client.delete_document(options.delete)
            screen.note(f"{clean(options.delete)} is found no more.")
            return OK
        found = client.documents()
    moment = local_date if screen.for_people else str
    rows = [(d.document_id, d.chunks, d.characters, d.media_type, moment(d.indexed_at)) for d in found]
    headings = ("document", "chunks", "characters", "type", "indexed")
    screen.records(found, headings, rows, right=("chunks", "characters"))
    return OK


# ── webhooks ─────────────────────────────────────────────────────────────────────────────────────────────


def webhooks_add(options: argparse.Namespace, screen: Screen) -> int:
    chosen = {
        name: value
        for name in ("description", "format", "ordered", "signing", "rate_limit")
        if (value := getattr(options, name)) is not None
    }
    with _client(options) as client:
        hook = client.webhooks.add(options.endpoint, options.event or ["*"], **chosen)
    return _show_secret(hook, screen)


def _show_secret(hook: Webhook, screen: Screen) -> int:
    if screen.as_json:
        screen.json(hook.raw)
    elif screen.for_people:
        screen.say((hook.webhook_id, "bold"), f"  {clean(hook.url)}  {' '.join(hook.events)}")
        screen.say(f"{'secret' if hook.secret else 'public key'}: ", (str(hook.secret or hook.public_key), "bold"))
        if hook.secret:
            screen.note("It is shown this once: keep it.")
    else:
        screen.line(hook.webhook_id, hook.secret or hook.public_key)
    return OK


def webhooks_ls(options: argparse.Namespace, screen: Screen) -> int:
    with _client(options) as client:
        hooks = client.webhooks.list()
    rows = [(hook.webhook_id, _state(hook), hook.url, " ".join(hook.events), hook.description) for hook in hooks]
    screen.records(hooks, ("webhook", "state", "url", "events", "description"), rows)
    return OK


def _state(hook: Webhook) -> str:
    if not hook.enabled:
        return f"disabled {hook.disabled_reason or ''}".strip()
    return "held" if hook.circuit and hook.circuit.state != "closed" else "enabled"


def webhooks_rm(options: argparse.Namespace, screen: Screen) -> int:
    with _client(options) as client:
        client.webhooks.delete(options.webhook)
    screen.note(f"{options.webhook} is deleted.")
    return OK


def webhooks_test(options: argparse.Namespace, screen: Screen) -> int:
    with _client(options) as client:
        result = client.webhooks.test(options.webhook)
    if screen.as_json:
        screen.json(result.raw)
    if isinstance(result, Pending):
        screen.note(f"No answer yet; see `recado webhooks deliveries {options.webhook}`")
        return TIME_UP
    if not screen.as_json:
        _show_attempt(result, screen)
    return OK if result.status == "delivered" else REFUSED


def _show_attempt(delivery: Delivery, screen: Screen) -> None:
    last = delivery.attempts[-1] if delivery.attempts else delivery.last_attempt
    answered = f"{last.status or clean(last.error)} after {last.duration_ms} ms" if last else "not tried"
    if screen.for_people:
        mark = ("✓ ", "green") if delivery.status == "delivered" else ("✗ ", "red")
        screen.say(mark, delivery.status, f"  {answered}  {clean(last.message) if last and last.message else ''}")
    else:
        screen.line(delivery.delivery_id, delivery.status, answered)


def webhooks_rotate(options: argparse.Namespace, screen: Screen) -> int:
    with _client(options) as client:
        hook = client.webhooks.rotate(options.webhook, grace_seconds=options.grace)
    return _show_secret(hook, screen)


def webhooks_deliveries(options: argparse.Namespace, screen: Screen) -> int:
    with _client(options) as client:
        found = list(
            client.webhooks.deliveries(
                options.webhook,
                status=options.status,
                event=options.event,
                since=options.since,
                limit=options.limit,
            )
        )
    rows = [(d.delivery_id, d.status, d.event, d.attempt_count, _last_answer(d), _when(d, screen)) for d in found]
    headings = ("delivery", "status", "event", "tries", "answer", "created")
    screen.records(found, headings, rows, right=("tries",))
    return OK


def _last_answer(delivery: Delivery) -> object:
    return (delivery.last_attempt.status or delivery.last_attempt.error) if delivery.last_attempt else ""


def webhooks_redeliver(options: argparse.Namespace, screen: Screen) -> int:
    with _client(options) as client:
        delivery = client.webhooks.redeliver(options.delivery)
    screen.record(delivery, delivery.delivery_id, delivery.status)
    return OK


def webhooks_listen(options: argparse.Namespace, screen: Screen) -> int:
    """Receive until Ctrl-C, with a given secret, or at an endpoint that is made now and deleted then."""
    judge, shown = _listen.Judge([]), threading.Lock()

    def take(headers: Mapping[str, str], body: bytes) -> int:
        received = judge(headers, body)
        with shown:
            _show_received(received, screen)
        return 204 if received.problem is None else 403

    with _listen.listening(take, port=options.port) as url, _stoppable():
        secret = options.secret or os.environ.get(SECRET)
        if secret:
            judge.secrets = [secret]
            screen.note("Listening at ", (url, "bold"), ". Ctrl-C ends it.")
            return _until_interrupted()
        with _client(options) as client, _endpoint(client, options.public_url or url, options) as hook:
            judge.secrets = [str(hook.secret)]
            screen.note("Listening at ", (url, "bold"), f" as {hook.webhook_id}. Ctrl-C ends it and removes that.")
            return _until_interrupted()


@contextmanager
def _endpoint(client: Recado, url: str, options: argparse.Namespace) -> Iterator[Webhook]:
    try:
        hook = client.webhooks.add(url, options.event or ["*"], description="recado webhooks listen")
    except InvalidRequest as error:
        if error.field != "url":
            raise
        raise RecadoError(
            f"{error.detail} This service cannot call {url}: give --public-url of a tunnel that leads here, "
            f"or the secret of an endpoint that you have ({SECRET})."
        ) from None
    try:
        yield hook
    finally:
        client.webhooks.delete(hook.webhook_id)


def _until_interrupted() -> int:
    with suppress(KeyboardInterrupt):
        threading.Event().wait()
    return OK


@contextmanager
def _stoppable() -> Iterator[None]:
    """SIGTERM ends it as Ctrl-C does, so that nothing is left behind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _show_received(received: _listen.Received, screen: Screen) -> None:
    if screen.as_json:
        screen.json({"verified": received.problem is None, **asdict(received)})
        return
    mark = ("✓ verified", "green") if received.problem is None else ("✗ not verified", "red")
    again = ("  (again)", "yellow") if received.again else ""
    problem = f"  {clean(received.problem)}" if received.problem else ""
    screen.say(mark, "  ", (clean(received.name), "bold"), f"  {clean(received.event_id)}", again, problem)
    if isinstance(received.payload, Mapping):
        about = [received.payload.get("job_id"), facts(received.payload)]
        screen.say("  ", (clean("  ".join(str(part) for part in about if part)), "dim"))


# ── waiting ──────────────────────────────────────────────────────────────────────────────────────────────


def advise(options: argparse.Namespace, screen: Screen) -> int:
    advice = cost.advise(options.can_receive_http, options.needs_updates, options.bidirectional, options.duration)
    if screen.as_json:
        told = {"method": advice.method, "reason": advice.reason, "how": advice.how}
        screen.json({**told, "cost": _cost(advice.cost), "naive": _cost(advice.naive)})
        return OK
    if not screen.for_people:
        screen.line(advice.method, advice.cost.requests, advice.reason)
        return OK
    screen.say((advice.method, "bold green"), f": {advice.reason}.")
    screen.say(("how: ", "dim"), advice.how)
    screen.say(
        ("cost: ", "dim"), f"{_price(advice.cost)}; a loop that asks once a minute: {_price(advice.naive)}."
    )
    return OK


def _price(each: cost.Cost) -> str:
    requests = "1 request" if each.requests == 1 else f"{each.requests} requests"
    return f"{requests}, the end known within {duration(each.delay_max)}"


def show_cost(options: argparse.Namespace, screen: Screen) -> int:
    costs = cost.compare(
        options.duration, interval=options.interval, base=options.base, cap=options.cap, usual=options.usual
    )
    if screen.as_json:
        for each in costs:
            screen.json(_cost(each))
        return OK
    rows = [(c.strategy, c.requests, c.wasted, f"{c.percent} %", duration(c.delay_max)) for c in costs]
    headings = ("way of waiting", "requests", "wasted", "waste", "known within")
    screen.table(headings, rows, right=headings[1:])
    return OK


def _cost(each: cost.Cost) -> dict[str, Any]:
    counted = {name: getattr(each, name) for name in ("requests", "useful", "wasted", "percent")}
    return asdict(each) | counted


# ── login ────────────────────────────────────────────────────────────────────────────────────────────────


def login(options: argparse.Namespace, screen: Screen) -> int:
    """Ask for URL and key, try them, and write them down. Without a terminal, the key is read from stdin."""
    url = config.checked(options.url or os.environ.get(config.URL) or _ask("URL of the service: "))
    key = (getpass.getpass("API key (not shown): ") if is_terminal() else sys.stdin.readline()).strip()
    if not key:
        raise NotConfigured("no key was given")
    with Recado(url, key) as client:
        next(client.jobs(limit=1), None)
    file = config.save(config.Settings(url, key))
    if screen.as_json:
        screen.json({"url": url, "file": str(file)})
    else:
        screen.note(("✓ ", "green"), f"The key is accepted. It is in {file}, which only you can read.")
    return OK


def _ask(question: str) -> str:
    if not is_terminal():
        raise NotConfigured(f"give --url, or set {config.URL}")
    return input(question)


def _pairs(given: Sequence[str] | None) -> dict[str, str] | None:
    if not given:
        return None
    pairs = [each.partition("=") for each in given]
    wrong = [name for name, equals, _ in pairs if not equals or not name]
    if wrong:
        raise ValueError(f"metadata is NAME=VALUE, not {wrong[0]!r}")
    return {name: value for name, _, value in pairs}
