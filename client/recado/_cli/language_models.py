"""Commands that call a language model: complete, summarize."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from recado._api import MAX_INLINE_BYTES
from recado._cli import job_input
from recado._cli.arguments import (
    add_command,
    add_submission_options,
    add_wait_options,
    open_client,
    parse_amount,
    parse_metadata,
    parse_positive,
)
from recado._cli.exit_codes import INTERRUPTED, OK
from recado._cli.format import format_usage, local_time
from recado._cli.output import Output, TextPrinter
from recado._cli.progress import upload_bar
from recado._cli.waiting import show_stages, wait_for_end
from recado._http import without_none
from recado.client import Recado
from recado.models import Job, JobEvent

STDIN = "-"


def add_commands(commands: Any) -> None:
    command = add_command(commands, "complete", complete, "send a prompt to a language model and print its answer")
    command.add_argument("prompt", help="the prompt, or - for standard input")
    command.add_argument("--system", metavar="TEXT", help="instructions that come before the prompt")
    command.add_argument("--max-tokens", type=parse_positive, metavar="N", help="the answer is cut off there")
    command.add_argument("--temperature", type=parse_amount, metavar="X", help="0 for the most likely answer")
    command.add_argument(
        "--stop", action="append", metavar="TEXT", help="the answer ends before this text; can be repeated"
    )
    command.add_argument(
        "--schema",
        type=job_input.parse_schema,
        metavar="SCHEMA",
        help="JSON schema that the answer must have, or a file with it",
    )
    _add_common_options(command)

    command = add_command(commands, "summarize", summarize, "print a summary of a text of any length")
    source = command.add_mutually_exclusive_group(required=True)
    source.add_argument("file", nargs="?", help="file to summarize, or - for standard input")
    source.add_argument("--text", help="text to summarize")
    source.add_argument("--document", metavar="NAME", help="searchable document to summarize")
    command.add_argument("--style", choices=["paragraph", "bullets", "headline"], help="default: paragraph")
    command.add_argument("--max-words", type=parse_positive, metavar="N", help="maximum length of the summary")
    _add_common_options(command)


def _add_common_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--model", metavar="NAME", help="model to call (default: that of the service)")
    command.add_argument(
        "--max-cost", type=parse_amount, metavar="USD", help="call no model if the job could cost more"
    )
    command.add_argument(
        "--allow-sample", action="store_true", help="accept a recorded sample if no model answers"
    )
    add_submission_options(command)
    add_wait_options(command)


# ── complete ─────────────────────────────────────────────────────────────────────────────────────────────


def complete(options: argparse.Namespace, output: Output) -> int:
    fields = _prompt_fields(options) | _completion_options(options) | _model_options(options)
    with open_client(options) as client, TextPrinter(output) as text:
        job = client.submit(kind="completion", input=fields, **_submission_options(options))
        note_accepted(job, output)
        ended = wait_for_end(client, job, output, lambda: _show_text(client, job, options, output, text))
        if ended is None:
            return INTERRUPTED
        result = end_of(client, ended, output)
        text.finish(str(result.get("text", "")))
    note_usage(result, output)
    return OK


def _prompt_fields(options: argparse.Namespace) -> dict[str, Any]:
    """`prompt`, or `messages` with --system. Raises ValueError if one of them is blank."""
    prompt = read_prompt(options.prompt)
    if options.system is None:
        return {"prompt": prompt}
    system = _required(options.system, "--system")
    return {"messages": [{"role": "system", "content": system}, {"role": "user", "content": prompt}]}


def read_prompt(prompt: str, name: str = "The prompt") -> str:
    """The prompt, or standard input for `-`. Raises ValueError, which names it, if it is blank."""
    if prompt != STDIN:
        return _required(prompt, name)
    text = _decode(job_input.read_stdin())
    if text is None:
        raise ValueError("Standard input is not UTF-8 text. Convert it to UTF-8.")
    return _required(text, "Standard input")


def _completion_options(options: argparse.Namespace) -> dict[str, Any]:
    schema = options.schema
    return without_none(
        {
            "max_tokens": options.max_tokens,
            "temperature": options.temperature,
            "stop": options.stop,
            "response_format": None if schema is None else {"type": "json_schema", "json_schema": schema},
        }
    )


def _show_text(client: Recado, job: Job, options: argparse.Namespace, output: Output, text: TextPrinter) -> None:
    """Print the text while it is made. With --json also the events, as `watch` does."""
    events = client.watch(job, timeout=options.timeout, transport=options.transport, on_delta=text.print)
    for event in events:
        if output.as_json:
            output.json(event.raw)
        elif event.verb == "retried":
            text.restart()
            _note_retry(event, output)


def _note_retry(event: JobEvent, output: Output) -> None:
    """Why the attempt ended, and when the job goes on."""
    error, moment = event.get("error"), event.get("not_before")
    code = error.get("code", "unknown error") if isinstance(error, Mapping) else "interrupted"
    output.note((f"{code}: the job goes on{f' at {local_time(str(moment))}' if moment else ''}", "yellow"))


# ── summarize ────────────────────────────────────────────────────────────────────────────────────────────


def summarize(options: argparse.Namespace, output: Output) -> int:
    source = _source(options)
    fields = without_none({"style": options.style, "max_words": options.max_words}) | _model_options(options)
    with open_client(options) as client:
        with upload_bar(output) as show:
            job = client.submit(
                kind="summary", input=fields, on_progress=show, **source, **_submission_options(options)
            )
        note_accepted(job, output)
        ended = wait_for_end(client, job, output, lambda: show_stages(client, job, options, output))
        if ended is None:
            return INTERRUPTED
        result = end_of(client, ended, output)
    if not output.as_json:
        output.text(str(result.get("summary", "")))
    note_usage(result, output)
    return OK


def _source(options: argparse.Namespace) -> dict[str, Any]:
    """The arguments of `client.submit` for what is to be summarized. Raises ValueError if it is blank."""
    if options.document is not None:
        return {"document_id": _required(options.document, "--document")}
    if options.text is not None:
        return {"text": _required(options.text, "--text")}
    return _file_source(options.file)


def _file_source(file: str) -> dict[str, Any]:
    """UTF-8 text is sent as text. Large files, and all others such as PDF, are uploaded."""
    data = _read(file)
    if data is None:
        return {"file": file}
    text = _decode(data)
    if text is not None:
        return {"text": _required(text, "Standard input" if file == STDIN else file)}
    return {"file": data, "filename": "stdin" if file == STDIN else Path(file).name}


def _read(file: str) -> bytes | None:
    """The content of a small file, or of standard input or a pipe, which can be read only once; else None."""
    if file == STDIN:
        return job_input.read_stdin()
    path = Path(file)
    return None if path.stat().st_size > MAX_INLINE_BYTES else path.read_bytes()


# ── all ─────────────────────────────────────────────────────────────────────────────────────────────────


def _required(text: str, name: str) -> str:
    """The text. Raises ValueError, which names it, if it is blank."""
    if not text.strip():
        raise ValueError(f"{name} is empty.")
    return text


def _decode(data: bytes) -> str | None:
    """UTF-8 text without its byte order mark. None for what is no text."""
    try:
        return None if b"\0" in data else data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None


def _model_options(options: argparse.Namespace) -> dict[str, Any]:
    return without_none(
        {"model": options.model, "max_cost_usd": options.max_cost, "allow_sample": options.allow_sample or None}
    )


def _submission_options(options: argparse.Namespace) -> dict[str, Any]:
    return {"metadata": parse_metadata(options.metadata), "idempotency_key": options.idempotency_key}


def note_accepted(job: Job, output: Output) -> None:
    if not output.as_json:
        output.note((job.job_id, "dim"))


def end_of(client: Recado, job: Job, output: Output) -> Mapping[str, Any]:
    """The result. Raises JobFailed or JobCanceled if there is none."""
    if output.as_json:
        output.json(job.raw)
    return client.result(job) or {}


def note_usage(result: Mapping[str, Any], output: Output) -> None:
    """The model, and what its calls have used, on standard error."""
    usage = {**result, **(result.get("usage") or {})}
    output.note((f"{result.get('model', 'unknown model')}, {format_usage(usage)}", "dim"))
    if result.get("stop_reason") == "max_tokens":
        # The tokens of a summary and of an agent are those of all their calls.
        where = "" if {"calls", "tool_calls"} & usage.keys() else f" at {usage.get('output_tokens')} tokens"
        output.note((f"The text is cut off{where}.", "yellow"))
    if result.get("sample"):
        output.note(("No model answered. The text is a recorded sample.", "yellow"))
