"""`make run`: the main job on real input, watched live. It succeeds only if all that it claims held."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from local import corpus
from local.api import Api
from local.receiver import Received, is_genuine, listening, tampered

SUBMITTERS = 4
POLL_SECONDS = 0.7
TIMEOUT_SECONDS = 600
FINAL = ("completed", "failed", "canceled")
SCAN = "scan.pdf"
MASKED = "whsec_…"
TIMELINE_LINES = 8
SHOWN_CHARACTERS = 240

Source = Callable[[], dict[str, str]]


@dataclass(frozen=True, slots=True)
class Question:
    """A search, what is remarkable about it, and the documents one of which must be its best hit."""

    text: str
    remark: str
    answers: tuple[str, ...]


QUESTIONS = (
    Question("Step through my program to hunt for a bug", "plain English", ("debugger",)),
    Question(
        "ending a repetition ahead of time",
        "shares no content word with its passage",
        ("break", "continue", "compound", "while", "for"),
    ),
    Question(
        "¿Cómo escribo un número complejo?",
        "in Spanish: how do I write a complex number?",
        ("imaginary", "numbers", "typesnumeric"),
    ),
)


class CheckFailed(RuntimeError):
    """Something that the run claims did not hold."""


@dataclass
class Run:
    """What has happened so far."""

    api: Api
    echo: Console | None = None  # where there is no terminal to draw on
    documents: dict[str, str] = field(default_factory=dict)  # job id -> document id
    statuses: dict[str, str] = field(default_factory=dict)  # job id -> "stage" or a final status
    received: list[Received] = field(default_factory=list)
    secret: str | None = None
    timeline: list[str] = field(default_factory=list)

    def note(self, line: str) -> None:
        self.timeline.append(f"{time.strftime('%H:%M:%S')}  {line}")
        if self.echo:
            self.echo.print(self.timeline[-1], highlight=False, markup=False)

    def take(self, received: Received) -> int:
        """A webhook arrived."""
        self.received.append(received)
        event = received.event
        self.note(f"webhook   {event['event']:<18} {event['document_id']}")
        return 204

    @property
    def ended(self) -> int:
        return sum(status in FINAL for status in self.statuses.values())


def show(api: Api, console: Console) -> None:
    """Run it all. Raises CheckFailed where something that is claimed did not hold."""
    run = Run(api, echo=None if console.is_terminal else console)
    topics = corpus.reference()
    started = time.monotonic()
    with (
        listening(run.take) as webhook_url,
        _watched(run, console, expected=len(topics) + 3),
        ThreadPoolExecutor(SUBMITTERS) as pool,
    ):
        submissions = [
            pool.submit(_submit, run, document_id, source, webhook_url)
            for document_id, source in _documents(api, topics)
        ]
        _observe_until_done(run, submissions)
    seconds = time.monotonic() - started
    console.print(f"\n{len(run.documents)} jobs from first POST to last webhook in [bold]{seconds:.1f} s[/]")
    check(run, topics, console)
    search(run, console)


def _documents(api: Api, topics: dict[str, str]) -> Iterator[tuple[str, Source]]:
    """Each document's id and what makes its input: text goes inline, PDFs by an upload."""
    html, pdf = f"{corpus.HTML_TOPIC}.html", f"{corpus.PDF_TOPIC}.pdf"
    for name, text in topics.items():
        yield name, partial(dict, text=text)
    yield html, partial(dict, text=corpus.page(topics[corpus.HTML_TOPIC], title=corpus.HTML_TOPIC))
    yield pdf, partial(_uploaded, api, pdf, corpus.pdf(topics[corpus.PDF_TOPIC], title=corpus.PDF_TOPIC))
    yield SCAN, partial(_uploaded, api, SCAN, corpus.scan())


def _uploaded(api: Api, filename: str, data: bytes) -> dict[str, str]:
    return {"s3_key": api.upload(filename, data, "application/pdf")}


def _submit(run: Run, document_id: str, source: Source, webhook_url: str) -> None:
    """Post one job. The first answer of all shows the webhook secret, once; later ones mask it."""
    body = {
        "kind": "document",
        "input": {"document_id": document_id, **source()},
        "webhook_url": webhook_url,
        "metadata": {"source": "python-reference"},
    }
    accepted = run.api.post("/jobs", body, {"Idempotency-Key": f"showcase-{document_id}"})
    if accepted["webhook_secret"] != MASKED:
        run.secret = accepted["webhook_secret"]
    run.documents[accepted["job_id"]] = document_id


def _observe_until_done(run: Run, submissions: Sequence[Future[None]]) -> None:
    """Until every job is submitted and has ended, and every webhook is here."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not all(s.done() for s in submissions) or run.ended + len(run.received) < 2 * len(submissions):
        for submission in submissions:
            if submission.done():
                submission.result()
        if time.monotonic() > deadline:
            raise CheckFailed(f"after {TIMEOUT_SECONDS} s: {run.ended} ended, {len(run.received)} webhooks")
        time.sleep(POLL_SECONDS)
        for job in jobs(run.api):
            _observe(run, job)


def _observe(run: Run, job: dict[str, Any]) -> None:
    state = job["status"] if job["status"] in FINAL else job["stage"]
    if run.statuses.get(job["job_id"]) != state:
        run.statuses[job["job_id"]] = state
        detail = f"  ({job['error']['code']})" if job["error"] else ""
        run.note(f"{state:<9} {job['document_id']}{detail}")


def jobs(api: Api) -> Iterator[dict[str, Any]]:
    """Every job of this owner."""
    cursor: dict[str, str] = {}
    while True:
        page = api.get("/jobs", limit=100, **cursor)
        yield from page["jobs"]
        if page["cursor"] is None:
            return
        cursor = {"cursor": page["cursor"]}


def _watched(run: Run, console: Console, *, expected: int) -> AbstractContextManager[object]:
    """Bars and a timeline, drawn anew four times a second; without a terminal, the timeline's lines alone."""
    progress = Progress(
        TextColumn("{task.description:<18}"),
        BarColumn(40),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
    )
    bars = {name: progress.add_task(name, total=expected) for name in ("accepted", "ended", "webhooks received")}

    def view() -> Group:
        for bar, count in zip(bars.values(), (len(run.documents), run.ended, len(run.received)), strict=True):
            progress.update(bar, completed=count)
        stages = Counter(state for state in run.statuses.values() if state not in FINAL)
        now = "   ".join(f"{stage} {count}" for stage, count in sorted(stages.items())) or "-"
        lines = Text("\n".join(run.timeline[-TIMELINE_LINES:]), no_wrap=True, overflow="ellipsis")
        panel = Panel(lines, title="timeline", height=TIMELINE_LINES + 2)
        return Group(progress, Text(f"in flight: {now}", style="dim"), panel)

    return Live(get_renderable=view, console=console) if console.is_terminal else nullcontext()


def check(run: Run, topics: dict[str, str], console: Console) -> None:
    """Every claim, one line each."""
    final = Counter(run.statuses[job_id] for job_id in run.documents)
    claim(
        console,
        final == {"completed": len(topics) + 2, "failed": 1},
        f"{final['completed']} documents indexed, {final['failed']} refused",
    )
    logged = {_final_event(run.api, job_id)["event_id"]: job_id for job_id in run.documents}
    got = Counter(received.event["event_id"] for received in run.received)
    claim(console, set(got) == set(logged), f"{len(got)} webhooks = {len(logged)} final events in the log")
    secret = run.secret or ""
    genuine = sum(is_genuine(received, secret) for received in run.received)
    claim(
        console,
        bool(secret) and genuine == len(run.received),
        f"{genuine} of {len(run.received)} signatures verified by `standardwebhooks`",
    )
    fooled = sum(is_genuine(tampered(received), secret) for received in run.received)
    claim(console, fooled == 0, "with one byte changed, none verifies")
    refused = next(r.event for r in run.received if r.event["document_id"] == SCAN)
    claim(
        console,
        refused["event"] == "document.failed" and refused["error"]["code"] == "no_text",
        f"{SCAN} failed with `{refused.get('error', {}).get('code')}`, and its webhook said so",
    )


def _final_event(api: Api, job_id: str) -> dict[str, Any]:
    """The last of a log that must be numbered from 1 without a gap."""
    log = api.get(f"/jobs/{job_id}/events")["events"]
    if [event["sequence"] for event in log] != list(range(1, len(log) + 1)):
        raise CheckFailed(f"the log of {job_id} has a gap")
    last: dict[str, Any] = log[-1]
    return last


def claim(console: Console, held: bool, words: str) -> None:
    console.print(f"  [green]✓[/] {words}" if held else f"  [red]✗ {words}[/]")
    if not held:
        raise CheckFailed(words)


def search(run: Run, console: Console) -> None:
    for question in QUESTIONS:
        hits = run.api.post("/search", {"query": question.text, "top_k": 3})["hits"]
        best = hits[0]
        table = Table.grid(padding=(0, 2))
        table.add_row("[bold]?[/]", f"[bold]{question.text}[/]  [dim]({question.remark})[/]")
        table.add_row(f"[cyan]{best['score']:.2f}[/]", f"[cyan]{best['document_id']}[/]  {best['heading']}")
        table.add_row("", Text(" ".join(best["text"].split())[:SHOWN_CHARACTERS] + " …", style="dim"))
        console.print()
        console.print(table)
        if best["document_id"] not in question.answers:
            raise CheckFailed(f"the best hit for {question.text!r} is {best['document_id']}")
