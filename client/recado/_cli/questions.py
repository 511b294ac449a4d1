"""Commands that ask an agent about documents: ask, passage."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, get_args

from recado._cli.arguments import (
    add_command,
    open_client,
    parse_amount,
    parse_duration,
    parse_metadata,
    parse_positive,
)
from recado._cli.exit_codes import INTERRUPTED, OK
from recado._cli.format import one_line
from recado._cli.language_models import end_of, note_accepted, note_usage, read_prompt
from recado._cli.output import Output, TextPrinter
from recado._cli.progress import spinner
from recado._cli.waiting import wait_for_end
from recado._http import without_none
from recado._messages import TOKEN
from recado._step_watcher import StepTransport
from recado.client import Recado
from recado.errors import NotConfigured, RecadoError, Unauthorized
from recado.models import Job, Passage, Step

Citation = Mapping[str, Any]
Place = tuple[str, str, int]
PROMPT = "> "
CONVERSATION = "Ask about your documents. A number opens a passage. An empty line or Ctrl-D ends."


def add_commands(commands: Any) -> None:
    command = add_command(commands, "ask", ask, "have an agent answer questions from your documents")
    command.set_defaults(usage_error=command.error)
    command.add_argument(
        "question", nargs="?", help="the question, or - for standard input; without one, a conversation"
    )
    command.add_argument("--document", action="append", metavar="NAME", help="only this document; can be repeated")
    command.add_argument(
        "--metadata", action="append", metavar="NAME=VALUE", help="only documents with this metadata"
    )
    command.add_argument(
        "--session", metavar="NAME", help="conversation to go on with: your name of it, or that of a result"
    )
    command.add_argument("--steps", type=parse_positive, metavar="N", help="calls of tools at most")
    command.add_argument("--model", metavar="NAME", help="model to call (default: that of the service)")
    command.add_argument(
        "--max-cost", type=parse_amount, metavar="USD", help="answer before the next call could cost more"
    )
    command.add_argument(
        "--allow-sample", action="store_true", help="accept a recorded sample if no model answers"
    )
    command.add_argument(
        "--idempotency-key", metavar="KEY", help="the same key and input return the same job, not a second one"
    )
    command.add_argument("--timeout", type=parse_duration, metavar="TIME", help="maximum time to wait")
    command.add_argument(
        "--transport", choices=get_args(StepTransport), default="auto", help="how to receive steps (default: auto)"
    )
    command = add_command(commands, "passage", passage, "print the passage that an answer cites")
    command.add_argument("job")
    command.add_argument("number", type=parse_positive, help="number of the citation")


# ── ask ──────────────────────────────────────────────────────────────────────────────────────────────────


def ask(options: argparse.Namespace, output: Output) -> int:
    if options.question is None:
        return _converse(options, output)
    question = read_prompt(options.question, "The question")
    with open_client(options) as client:
        job = _submit(client, question, options)
        note_accepted(job, output)
        answer = _Answer(output)
        ended = wait_for_end(client, job, output, lambda: answer.show(client, job, options))
        if ended is None:
            return INTERRUPTED
        citations = answer.finish(client, ended)
        if citations and not output.as_json:
            output.note(("Open a passage: ", "dim"), f"recado passage {job.job_id} 1")
    return OK


def _submit(client: Recado, question: str, options: argparse.Namespace, session: str | None = None) -> Job:
    filters = {"document_ids": options.document, "metadata": parse_metadata(options.metadata)}
    fields = {
        "question": question,
        "filter": without_none(filters) or None,
        "session": session or options.session,
        "max_steps": options.steps,
        "model": options.model,
        "max_cost_usd": options.max_cost,
        "allow_sample": options.allow_sample or None,
    }
    return client.submit(kind="agent", input=without_none(fields), idempotency_key=options.idempotency_key)


class _Answer:
    """Prints the steps of an answer as they come, the answer, and its citations."""

    def __init__(self, output: Output) -> None:
        self._output, self._text = output, TextPrinter(output)
        self.result: Mapping[str, Any] = {}
        self.passages: dict[Place, Passage] = {}

    def show(self, client: Recado, job: Job, options: argparse.Namespace) -> None:
        """Until the job has ended."""
        with self._text, spinner(self._output) as spin:
            spin(True)
            for step in client.steps(job, timeout=options.timeout, transport=options.transport):
                spin(step.type != TOKEN)
                self._show_step(step)

    def finish(self, client: Recado, job: Job) -> Sequence[Citation]:
        """Returns the citations as they are numbered. Raises JobFailed or JobCanceled."""
        self.result = end_of(client, job, self._output)
        self._text.finish(str(self.result.get("answer", "")))
        citations = _citations(self.result)
        if not self._output.as_json:
            _show_citations(citations, self._output)
        note_usage(self.result, self._output)
        return citations

    def _show_step(self, step: Step) -> None:
        _keep(step.passages, self.passages)
        if self._output.as_json:
            self._output.json(step.raw)
        elif step.type == TOKEN:
            self._text.append(step.content)
        else:
            self._text.end_line()
            self._output.note((_line(step), "yellow" if step.error else "dim"))


def _line(step: Step) -> str:
    """The step in one line."""
    if step.type == "tool_use":
        return f"{one_line(step.tool)}: {_arguments(step.input)}"
    if step.type == "tool_result":
        found = ", ".join(f"{one_line(passage.document_id)} {passage.chunk}" for passage in step.passages)
        return f"  {one_line(step.error or found or 'nothing found')}"
    return one_line(step.content)


def _arguments(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{one_line(name)}={one_line(value)}" for name, value in values.items())


def _citations(result: Mapping[str, Any]) -> Sequence[Citation]:
    """One for each passage's sentence, which may be evidence for several sentences of the answer."""
    by_quote = {(*_place(cited), cited["start"], cited["end"]): cited for cited in result.get("citations", ())}
    return list(by_quote.values())


def _show_citations(citations: Sequence[Citation], output: Output) -> None:
    for number, cited in enumerate(citations, 1):
        where = f"{one_line(cited['document_id'])}, chunk {cited['chunk']}"
        before = "\n" if number == 1 else ""
        output.print(before, (f"[{number}] ", "bold"), f"{where}: “{one_line(cited['quote'])}”")


# ── a conversation ───────────────────────────────────────────────────────────────────────────────────────


def _converse(options: argparse.Namespace, output: Output) -> int:
    """One question after another in one session, on a terminal."""
    if not (output.is_for_people and sys.stdin and sys.stdin.isatty()):
        options.usage_error("pass a question, or - for standard input")
    if options.idempotency_key is not None:
        options.usage_error("--idempotency-key is for one question: pass it")
    output.note((CONVERSATION, "dim"))
    with open_client(options) as client:
        conversation = _Conversation(client, options, output)
        try:
            while line := _read_line():
                conversation.take(line)
        except (EOFError, KeyboardInterrupt):
            output.write("\n")
    return OK


def _read_line() -> str:
    """Empty for an empty line. Raises EOFError and KeyboardInterrupt."""
    with suppress(ImportError):
        import readline  # noqa: F401 `input` has a history then, and lines can be edited
    return input(PROMPT).strip()


class _Conversation:
    def __init__(self, client: Recado, options: argparse.Namespace, output: Output) -> None:
        self._client, self._options, self._output = client, options, output
        self._session: str | None = options.session
        self._last = _Answer(output)

    def take(self, line: str) -> None:
        """A question, or the number of a citation. Raises only errors that the next question would have, too."""
        try:
            if line.isascii() and line.isdecimal():
                _show_passage(self._last.result, int(line), self._last.passages, self._output)
            else:
                self._ask(line)
        except (NotConfigured, Unauthorized):
            raise
        except (RecadoError, ValueError) as error:
            self._output.note(("recado: ", "red"), str(error))

    def _ask(self, question: str) -> None:
        """Ctrl-C cancels the job."""
        job = _submit(self._client, question, self._options, self._session)
        answer = _Answer(self._output)
        try:
            answer.show(self._client, job, self._options)
        except KeyboardInterrupt:
            self._client.cancel(job.job_id)
            self._output.note(("Canceled.", "yellow"))
            return
        answer.finish(self._client, self._client.job(job.job_id))
        self._last, self._session = answer, answer.result.get("session", self._session)


# ── passage ──────────────────────────────────────────────────────────────────────────────────────────────


def passage(options: argparse.Namespace, output: Output) -> int:
    with open_client(options) as client:
        job = client.job(options.job)
        if not job.is_final:
            raise RecadoError(f"{job.job_id} has not ended. Run `recado watch {job.job_id}` first.")
        passages: dict[Place, Passage] = {}
        for step in client.steps(job):
            _keep(step.passages, passages)
        _show_passage(client.result(job) or {}, options.number, passages, output)
    return OK


def _keep(found: Iterable[Passage], passages: dict[Place, Passage]) -> None:
    passages.update({(one.document_id, one.version, one.chunk): one for one in found})


def _place(citation: Citation) -> Place:
    return str(citation["document_id"]), str(citation["version"]), int(citation["chunk"])


def _show_passage(
    result: Mapping[str, Any], number: int, passages: Mapping[Place, Passage], output: Output
) -> None:
    """The passage of the citation of this number. Raises ValueError if there is none."""
    citations = _citations(result)
    if not 1 <= number <= len(citations):
        known = f"Its citations are numbered from 1 to {len(citations)}" if citations else "It has none"
        raise ValueError(f"The answer has no citation {number}. {known}.")
    cited = citations[number - 1]
    found = passages.get(_place(cited))
    if found is None:
        raise RecadoError(f"The passage of citation {number} is not stored any more.")
    if output.as_json:
        output.json(found.raw)
    elif not output.is_for_people:
        output.text(found.text)
    else:
        _print_passage(found, cited, output)


def _print_passage(found: Passage, cited: Citation, output: Output) -> None:
    """The quoted sentence is bold."""
    where = f", chunk {found.chunk}, characters {found.start} to {found.end}"
    output.print((found.document_id, "bold"), where, (f"  {one_line(found.heading)}", "dim"))
    start, end = cited["start"] - found.start, cited["end"] - found.start
    output.print(found.text[:start], (found.text[start:end], "bold"), found.text[end:])
