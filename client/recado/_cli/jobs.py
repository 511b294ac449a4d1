"""Commands for jobs: submit, watch, follow, status, ls, cancel, delete, end-links, retry."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from recado._api import DEFAULT_KIND
from recado._cli import job_input
from recado._cli.arguments import (
    add_command,
    add_limit_option,
    add_submission_options,
    add_wait_options,
    open_client,
    parse_metadata,
)
from recado._cli.exit_codes import INTERRUPTED, OK
from recado._cli.format import format_duration, format_fields, format_usage, local_date, one_line
from recado._cli.output import Output, TextPrinter
from recado._cli.progress import upload_bar
from recado._cli.signals import sigterm_as_interrupt
from recado._cli.waiting import show_stages, wait_for_end
from recado.client import Recado
from recado.models import Job, JobEvent, JobStatus, JobSummary, raise_unless_completed


def add_commands(commands: Any) -> None:
    _add_submit(commands)
    command = add_command(commands, "watch", watch, "print the events of a job as they happen")
    command.add_argument("job")
    command.add_argument("--after", type=int, default=0, metavar="N", help="skip the first N events")
    add_wait_options(command)
    command = add_command(commands, "follow", follow, "print the events of all your jobs until Ctrl-C")
    command.add_argument(
        "--kind", metavar="NAME", default=DEFAULT_KIND, help=f"kind of the jobs (default: {DEFAULT_KIND})"
    )
    add_command(commands, "status", status, "print the status of a job").add_argument("job")
    command = add_command(commands, "ls", ls, "list jobs, the newest first")
    command.add_argument("--status", choices=["queued", "running", "completed", "failed", "canceled"])
    command.add_argument("--kind", metavar="NAME", help="only jobs of this kind")
    add_limit_option(command)
    add_command(commands, "cancel", cancel, "cancel a job").add_argument("job")
    command = add_command(commands, "delete", delete, "delete jobs that have ended, with all their data")
    command.add_argument("job", nargs="+")
    command = add_command(commands, "end-links", end_links, "end all links to a job; `status` shows new ones")
    command.add_argument("job")
    command = add_command(commands, "retry", retry, "run a failed or canceled job again, as a new job")
    command.add_argument("job")
    add_wait_options(command, optional=True)


def _add_submit(commands: Any) -> None:
    command = add_command(commands, "submit", submit, "submit a job and print its id")
    command.set_defaults(usage_error=command.error)
    source = command.add_mutually_exclusive_group()
    source.add_argument("file", nargs="?", help="file to upload, or - for standard input")
    source.add_argument("--text", help="text to submit")
    command.add_argument(
        "--kind", metavar="NAME", default=DEFAULT_KIND, help=f"kind of the job (default: {DEFAULT_KIND})"
    )
    command.add_argument(
        "--set",
        action="append",
        type=job_input.parse_field,
        metavar="FIELD=VALUE",
        help="field of the input, can be repeated; the value is JSON or else text; a.b=1 sets b in a",
    )
    command.add_argument(
        "--input",
        type=job_input.parse_input,
        metavar="JSON",
        help="input as a JSON object, or @FILE to read it from",
    )
    command.add_argument(
        "--document-id", metavar="NAME", help="your name for the document (default: the name of the file)"
    )
    command.add_argument("--type", metavar="TYPE", help="media type of the file (default: by its extension)")
    command.add_argument(
        "--webhook-url", metavar="URL", help="URL that gets a signed request when the job has ended"
    )
    command.add_argument(
        "--webhook-event", action="append", metavar="EVENT", help="send this event instead; can be repeated"
    )
    add_submission_options(command)
    add_wait_options(command, optional=True)


# ── submit and retry ─────────────────────────────────────────────────────────────────────────────────────


def submit(options: argparse.Namespace, output: Output) -> int:
    fields = _input_fields(options)
    with open_client(options) as client:
        job = _submit(client, fields, options, output)
        _show_accepted(job, options, output)
        return _wait(client, job, options, output) if options.wait else OK


def retry(options: argparse.Namespace, output: Output) -> int:
    with open_client(options) as client:
        job = client.retry(options.job)
        _show_accepted(job, options, output)
        return _wait(client, job, options, output) if options.wait else OK


def _input_fields(options: argparse.Namespace) -> Mapping[str, Any] | None:
    """The fields of --input and --set, None without these. Raises ValueError for a field that is given twice."""
    parts = [*([] if options.input is None else [options.input]), *(options.set or ())]
    if not parts and options.file is None and options.text is None and options.document_id is None:
        options.usage_error("pass a file, --text, --set or --input")
    return job_input.merge(parts) if parts else None


def _submit(client: Recado, fields: Mapping[str, Any] | None, options: argparse.Namespace, output: Output) -> Job:
    arguments: dict[str, Any] = {
        "kind": options.kind,
        "input": fields,
        "document_id": options.document_id,
        "metadata": parse_metadata(options.metadata),
        "webhook_url": options.webhook_url,
        "webhook_events": options.webhook_event,
        "idempotency_key": options.idempotency_key,
    }
    if options.file is None:
        return client.submit(text=options.text, **arguments)
    if options.file == "-":
        return _submit_stdin(client, arguments, options)
    if options.kind == DEFAULT_KIND and "document_id" not in (fields or {}):
        arguments["document_id"] = options.document_id or os.path.basename(options.file)
    return _submit_file(client, arguments, options, output)


def _submit_stdin(client: Recado, arguments: Mapping[str, Any], options: argparse.Namespace) -> Job:
    """A document is submitted as text if it is UTF-8. Everything else is uploaded as a file."""
    data = job_input.read_stdin()
    if options.kind == DEFAULT_KIND:
        with suppress(UnicodeDecodeError):
            return client.submit(text=data.decode(), **arguments)
    return client.submit(data, filename="stdin", content_type=options.type, **arguments)


def _submit_file(client: Recado, arguments: Mapping[str, Any], options: argparse.Namespace, output: Output) -> Job:
    with upload_bar(output) as show:
        return client.submit(options.file, content_type=options.type, on_progress=show, **arguments)


def _show_accepted(job: Job, options: argparse.Namespace, output: Output) -> None:
    if output.as_json:
        if not options.wait:
            output.json(job.raw)
    elif not output.is_for_people:
        output.fields(job.job_id)
    else:
        output.print((job.job_id, "bold"), f"  {_subject(job) or job.kind}")
        if not options.wait:
            output.print(("Watch the job: ", "dim"), f"recado watch {job.job_id}")
    if job.webhook_secret and "…" not in job.webhook_secret:
        secret = (job.webhook_secret, "bold")
        output.note("Your webhooks are signed with ", secret, ". Store this secret now. It is not shown again.")


def _wait(client: Recado, job: Job, options: argparse.Namespace, output: Output) -> int:
    """Wait and show the progress. Ctrl-C does not end the job."""
    began = time.monotonic()
    ended = wait_for_end(client, job, output, lambda: show_stages(client, job, options, output))
    return _show_end(ended, output, took=time.monotonic() - began) if ended else INTERRUPTED


def _show_end(job: Job, output: Output, *, took: float) -> int:
    if output.as_json:
        output.json(job.raw)
    raise_unless_completed(job)
    result = "" if job.result_truncated else format_fields(job.result or {})
    output.note(("✓ completed", "green"), f" in {format_duration(took)}  {result}")
    _note_files(job, output)
    return OK


def _subject(job: Job | JobSummary) -> str:
    return job.subject[1] if job.subject else ""


def _note_files(job: Job, output: Output) -> None:
    """Say where a large result and the files of a result are."""
    if job.result_truncated:
        output.note(f"The result is large. Download it: {_result_link(job)}")
    for label, link in job.files.items():
        output.note(f"Download {label}: {link}")


def _result_link(job: Job) -> str:
    """The link to a large result. It needs no key."""
    return job.links.get("result", "the service has no link to the result")


# ── watch and follow ─────────────────────────────────────────────────────────────────────────────────────


def watch(options: argparse.Namespace, output: Output) -> int:
    with open_client(options) as client:
        job = client.job(options.job)
        try:
            return _watch(client, job, options, output)
        except KeyboardInterrupt:
            output.note("\nThe job continues. Watch it again: ", (f"recado watch {job.job_id}", "bold"))
            return INTERRUPTED


def _watch(client: Recado, job: Job, options: argparse.Namespace, output: Output) -> int:
    text = TextPrinter(output)
    events = client.watch(
        job, after=options.after, timeout=options.timeout, transport=options.transport, on_delta=text.print
    )
    with text:
        for event in events:
            text.end_line()
            _show_event(event, output)
    ended = client.job(job.job_id)
    raise_unless_completed(ended)
    _note_files(ended, output)
    return OK


def follow(options: argparse.Namespace, output: Output) -> int:
    with sigterm_as_interrupt(), suppress(KeyboardInterrupt), open_client(options) as client:
        for event in client.follow(options.kind, on_connected=_ConnectionNote(options.kind, output)):
            _show_event(event, output, with_job=True)
    return OK


def _show_event(event: JobEvent, output: Output, *, with_job: bool = False) -> None:
    if output.is_for_people:
        output.event(event, is_result=True, with_job=with_job)
    else:
        job = (event.job_id,) if with_job else ()
        output.record(event, event.timestamp, *job, event.sequence, event.event, format_fields(event.raw))


class _ConnectionNote:
    """Prints one note after the first connection, and another after each reconnection."""

    def __init__(self, kind: str, output: Output) -> None:
        self._text = f"Following all jobs of the kind {kind}. Press Ctrl-C to stop."
        self._output = output

    def __call__(self) -> None:
        self._output.note((self._text, "dim"))
        self._text = "Reconnected."


# ── status, ls, cancel, delete ───────────────────────────────────────────────────────────────────────────────────


def status(options: argparse.Namespace, output: Output) -> int:
    with open_client(options) as client:
        job = client.job(options.job)
        current = client.status(options.job) if not job.is_final else None
    if output.as_json:
        output.json({**job.raw, **(current.raw if current else {})})
    elif output.is_for_people:
        _describe(job, current, output)
    else:
        progress = f"{job.progress.done}/{job.progress.total}" if job.progress else ""
        output.fields(job.job_id, job.status, job.stage, progress, job.error.code if job.error else "")
        _note_files(job, output)
    return OK


def _describe(job: Job, current: JobStatus | None, output: Output) -> None:
    error, progress = job.error, job.progress
    field, subject = job.subject or ("", "")
    rows = [
        ("job", job.job_id),
        ("status", job.status),
        ("kind", job.kind),
        (field.removesuffix("_id").replace("_", " "), subject),
        ("stage", f"{job.stage} {progress.done}/{progress.total}" if progress else job.stage),
        ("waiting for", _waiting_for(current or job)),
        ("attempts", job.attempts if job.attempts > 1 else None),
        ("created", local_date(job.created_at)),
        ("finished", local_date(job.finished_at)),
        ("expected end", local_date(current.expected_completion) if current else None),
        ("retry of", job.retry_of),
        ("error", f"{error.code} in {error.stage}: {error.message}" if error else None),
        ("used", format_usage(job.usage.raw) if job.usage else None),
        ("partial text", one_line(job.usage.partial_text) if job.usage else None),
        ("metadata", format_fields(job.metadata)),
        ("result", "large, see the link below" if job.result_truncated else format_fields(job.result or {})),
    ]
    output.table(("", ""), [(name, value) for name, value in rows if value])
    if job.result_truncated:  # not in the table, which would wrap the link
        output.print(_result_link(job))
    for label, link in job.files.items():
        output.print(f"{label}: {link}")


def _waiting_for(job: JobStatus) -> str:
    since = local_date(job.waiting_since)
    return f"{job.waiting_for}{' since ' if since else ''}{since}" if job.waiting_for else ""


def ls(options: argparse.Namespace, output: Output) -> int:
    with open_client(options) as client:
        jobs = list(client.jobs(status=options.status, kind=options.kind, limit=options.limit))
    rows = [
        (job.job_id, job.status, job.stage, job.kind, _subject(job), output.moment(job.created_at)) for job in jobs
    ]
    output.records(jobs, ("job", "status", "stage", "kind", "subject", "created"), rows)
    return OK


def cancel(options: argparse.Namespace, output: Output) -> int:
    with open_client(options) as client:
        job = client.cancel(options.job)
    output.record(job, job.job_id, job.status)
    return OK


def delete(options: argparse.Namespace, output: Output) -> int:
    with open_client(options) as client:
        for job_id in options.job:
            client.delete_job(job_id)
            output.note(f"{job_id} is deleted.")
    return OK


def end_links(options: argparse.Namespace, output: Output) -> int:
    with open_client(options) as client:
        client.end_links(options.job)
    output.note(f"All links to {options.job} have ended. Their WebSockets end within five minutes.")
    return OK
