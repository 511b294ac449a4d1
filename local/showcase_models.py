"""The part of `make run` that calls a language model: a completion, shown while it is written, and a summary."""

from __future__ import annotations

import time
from datetime import datetime

from rich.console import Console
from rich.text import Text

from local.api import Api
from local.model.process import ModelServer
from local.model.upstreams import LOADING, SMALL_MODEL
from local.showcase import CheckFailed, claim
from recado import Recado
from recado.errors import RecadoError
from recado.models import Delta

PROMPT = "Why is the sky blue? Explain it in one paragraph."
MAX_TOKENS = 150
DOCUMENT, MAX_WORDS = "dynamic-features", 30  # short: each 100 words of a text take the small model two seconds
MIN_PIECES = 3
"""Of the small model's text. Another model may write all of it before the first piece is sent."""
TIMEOUT_SECONDS = 120
WHO_WRITES = "A model of 135 million parameters writes what follows. It is often wrong."
WHO_ELSE_WRITES = "The model at RECADO_MODEL_URL writes what follows."


def show(api: Api, server: ModelServer, console: Console) -> None:
    """Call the model, if there is one. Raises CheckFailed where something that is claimed did not hold."""
    problem = server.problem()
    if problem and problem != LOADING:  # calls wait for that
        line = f"\n[yellow]No model answers, so there is no completion and no summary:[/] {problem}"
        console.print(line, soft_wrap=True)
        return
    is_small = server.model() == SMALL_MODEL
    console.print(f"\n[dim]{WHO_WRITES if is_small else WHO_ELSE_WRITES}[/]")
    try:
        with Recado(api.url, api.key) as client:
            _complete(client, console, min_pieces=MIN_PIECES if is_small else 0)
            _summarize(client, console)
    except RecadoError as error:  # the job failed, or took too long
        raise CheckFailed(str(error)) from error


def _complete(client: Recado, console: Console, *, min_pieces: int) -> None:
    """Print each piece of the text when it arrives."""
    console.print(f"\n[bold]>     {PROMPT}[/]")
    text, arrivals = "", list[float]()

    def take(delta: Delta) -> None:
        nonlocal text
        text = delta.text if delta.is_snapshot else text + delta.text
        arrivals.append(time.time())
        console.print(Text(delta.text, style="cyan"), end="", soft_wrap=True)

    options = {"max_tokens": MAX_TOKENS, "temperature": 0}
    job = client.submit(kind="completion", input={"prompt": PROMPT, **options})
    *_, last = client.watch(job, transport="websocket", timeout=TIMEOUT_SECONDS, on_delta=take)
    console.print()
    result = client.result(job.job_id) or {}
    completed = datetime.fromisoformat(last.timestamp).timestamp()
    early = sum(arrival < completed for arrival in arrivals)
    claim(console, early >= min_pieces, f"{early} pieces arrived by WebSocket before the job had completed")
    claim(console, text == result["text"], "joined, they are the text of the job's result")


def _summarize(client: Recado, console: Console) -> None:
    """Of a document that the run has indexed."""
    console.print(f"\n[bold]>     Summarize the document {DOCUMENT}[/]")
    job = client.submit(kind="summary", document_id=DOCUMENT, input={"max_words": MAX_WORDS})
    result = client.result(client.wait(job, timeout=TIMEOUT_SECONDS)) or {}
    console.print(Text(result["summary"], style="cyan"))
    words, calls = len(result["summary"].split()), f"parts: {result['parts']}, calls: {result['calls']}"
    claim(console, 0 < words <= MAX_WORDS, f"{words} words of at most {MAX_WORDS} ({calls})")
