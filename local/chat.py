"""`make chat`: a conversation with the small model about Python's language reference, here on this machine."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from local import commands, corpus
from recado import Recado, cli, config
from recado.errors import RecadoError

SOURCE = {"source": "python-reference"}
"""Metadata of the documents, so that no others are searched."""
SUBMITTERS = 4
POLL_SECONDS = 1.0
EXAMPLES = (
    "When is the finally clause executed?",
    "Are lists mutable?",
    "What does the global statement mean?",
)


def chat(options: argparse.Namespace, console: Console) -> int:
    """Start what is not running, index what is not indexed, and run `recado ask` with `options.arguments`."""
    settings = commands.running_settings() or commands.start(console)
    os.environ |= {config.URL: settings.url, config.KEY: settings.key}
    with Recado() as client:
        try:
            _index(client, console)
        except RecadoError as error:
            console.print(f"[red]The language reference was not indexed:[/] {error}")
            return 1
    if not options.arguments:
        console.print("Python's language reference is indexed. Try, for example:", *EXAMPLES, sep="\n  ")
    code = cli.main(["ask", *(f"--metadata={name}={value}" for name, value in SOURCE.items()), *options.arguments])
    console.print("[dim]It is still running. `make down` stops it.[/]")
    return code


def documents() -> dict[str, str]:
    """The id of each document and its text."""
    return {f"python/{topic}": text for topic, text in corpus.reference().items()}


def _index(client: Recado, console: Console) -> None:
    """Submit what is missing and wait for it. Raises RecadoError if one fails."""
    indexed = _indexed(client)
    missing = {name: text for name, text in documents().items() if name not in indexed}
    if not missing:
        return
    with Progress(
        TextColumn("indexing"), BarColumn(40), MofNCompleteColumn(), TimeElapsedColumn(), console=console
    ) as progress:
        task = progress.add_task("indexing", total=len(missing))
        jobs = _submit(client, missing)
        for left in _left(client, jobs):
            progress.update(task, completed=len(jobs) - left)


def _indexed(client: Recado) -> set[str]:
    return {one.document_id for one in client.documents() if one.metadata == SOURCE}


def _submit(client: Recado, missing: Mapping[str, str]) -> dict[str, str]:
    """The job of each document."""

    def submit(name: str) -> str:
        return client.submit(text=missing[name], document_id=name, metadata=SOURCE).job_id

    with ThreadPoolExecutor(SUBMITTERS) as pool:
        return dict(zip(missing, pool.map(submit, missing), strict=True))


def _left(client: Recado, jobs: Mapping[str, str]) -> Iterator[int]:
    """How many documents are not indexed yet, again and again until all are."""
    while left := jobs.keys() - _indexed(client):
        _raise_failure(client, set(jobs.values()))
        yield len(left)
        time.sleep(POLL_SECONDS)
    yield 0


def _raise_failure(client: Recado, job_ids: set[str]) -> None:
    for job in client.jobs(status="failed", kind="document", limit=len(job_ids)):
        if job.job_id in job_ids:
            client.wait(job.job_id)  # raises JobFailed
