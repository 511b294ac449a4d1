"""What is ours in a call of a model, beside the bare client; and when the first words of an answer arrive.

    .venv/bin/python bench/models.py [--quick]

The model is the fake of local/model, in a process of its own on loopback. The first table has one attempt at a
completion, from the message of the queue to the completed job, with table and bucket in memory: what remains is
the worker's own. `adapter` is the provider alone. CPU is that of this process. The second table is of the local
engine; `--quick` leaves it out.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "lambdas"), str(ROOT / "client")]
os.environ |= {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_DEFAULT_REGION": "us-east-1"}

import boto3  # noqa: E402
import openai  # noqa: E402

from core.aws import clients  # noqa: E402
from core.dependencies import dependencies  # noqa: E402
from core.jobs import JobStore, Services  # noqa: E402
from core.jobs.queue_messages import JobMessage  # noqa: E402
from core.jobs.usage import UsageStore  # noqa: E402
from core.jobs.worker import Worker  # noqa: E402
from core.live.subscriptions import Subscriptions  # noqa: E402
from core.llm.bedrock import BedrockProvider  # noqa: E402
from core.llm.caller import ModelCaller  # noqa: E402
from core.llm.circuit import Circuits  # noqa: E402
from core.llm.gate import ModelGate  # noqa: E402
from core.llm.in_flight import ModelCalls  # noqa: E402
from core.llm.openai import OpenAIProvider  # noqa: E402
from core.llm.provider import Message, ModelRequest, Provider, TextPart  # noqa: E402
from core.llm.rate_limit import RateLimiter  # noqa: E402
from kinds.completion.kind import COMPLETION  # noqa: E402
from local import commands, deploy, engine, processes  # noqa: E402
from local.model import process as model  # noqa: E402
from local.model.process import ModelServer  # noqa: E402
from recado import Recado  # noqa: E402
from tests.unit.core.jobs.memory_table import MemoryTable  # noqa: E402
from tests.unit.core.memory_blobs import MemoryBlobs  # noqa: E402
from tests.unit.examples import job  # noqa: E402

QUICK = "--quick" in sys.argv
RUNS, WARM_UP, WARM_JOBS = (3, 1, 0) if QUICK else (100, 10, 10)
MODEL, PROMPT, MAX_TOKENS = "fake-model", "Say something about the cellar key.", 200
WORDS, SECONDS_PER_WORD = 50, 0.05
TURNS = [{"role": "user", "content": [{"text": PROMPT}]}]
Run = Callable[[], object]


# ── one attempt ──────────────────────────────────────────────────────────────────────────────────────────────


class Attempts:
    """A worker whose table and bucket are in memory. Nobody listens to its text."""

    def __init__(self, provider: Provider) -> None:
        table, self._blobs = MemoryTable(), MemoryBlobs()
        self._model = f"{provider.name}/{MODEL}"
        os.environ["MODELS"] = json.dumps({self._model: {"requests": "1000000/s"}})
        dependencies.cache_clear()
        gate = ModelGate(Circuits(table, "jobs"), RateLimiter(table, "jobs"))
        calls, usage = ModelCalls(table, "jobs", per_owner=1), UsageStore(table, "jobs")
        parts = vars(dependencies)
        parts["model_caller"] = ModelCaller(lambda name: provider, gate, calls, self._blobs, usage)
        parts["subscriptions"] = Subscriptions(table, "jobs")
        parts["sockets"] = None
        self._jobs = JobStore(table, "jobs")
        services = Services(self._blobs, table, "jobs")
        self._worker = Worker({"completion": COMPLETION}, self._jobs, services, None, "queue")

    def submit(self, *, stream: bool) -> str:
        content = {"messages": [{"role": "user", "content": PROMPT}], "stop": []}
        self._blobs.objects["inputs/ana/1"] = json.dumps(content).encode()
        stored = {
            "model": self._model,
            "max_tokens": MAX_TOKENS,
            "input_tokens": 50,
            "stream": stream,
            "source_key": "inputs/ana/1",
            "etag": "1",
            "allow_sample": False,
        }
        return self._jobs.submit(COMPLETION, job(kind="completion", input=stored, at=time.time())).job.job_id

    def make(self, job_id: str) -> None:
        self._worker.handle(JobMessage(job_id), self)
        found = self._jobs.get(job_id)
        if found.status != "completed":
            raise SystemExit(f"the job is {found.status}: {found.error}")

    def get_remaining_time_in_millis(self) -> int:
        """Of Lambda's context."""
        return 300_000


def ask(provider: Provider, *, stream: bool) -> None:
    request = ModelRequest(
        model=MODEL, messages=[Message(role="user", content=PROMPT)], max_tokens=MAX_TOKENS, stream=stream
    )
    list(provider.call(request, seconds=60))


def ask_boto3(client: Any, *, stream: bool) -> None:
    given = {"modelId": MODEL, "messages": TURNS, "inferenceConfig": {"maxTokens": MAX_TOKENS}}
    list(client.converse_stream(**given)["stream"]) if stream else client.converse(**given)


def ask_openai(client: openai.OpenAI, *, stream: bool) -> None:
    given: Any = {"model": MODEL, "max_tokens": MAX_TOKENS, "messages": [{"role": "user", "content": PROMPT}]}
    answer = client.chat.completions.create(**given, stream=stream)
    if stream:
        list(answer)


def measured(runs: dict[str, Callable[[], Run]]) -> dict[str, tuple[float, float]]:
    """(CPU, wall) in ms, the medians of all runs, which take turns. Each is prepared outside of the time."""
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in runs}
    for _ in range(RUNS + WARM_UP):
        for name, prepare in runs.items():
            run = prepare()
            cpu, wall = time.process_time(), time.perf_counter()
            run()
            taken[name].append((1000 * (time.process_time() - cpu), 1000 * (time.perf_counter() - wall)))
    return {name: medians(found[WARM_UP:]) for name, found in taken.items()}


def medians(found: list[tuple[float, float]]) -> tuple[float, float]:
    return statistics.median(cpu for cpu, _ in found), statistics.median(wall for _, wall in found)


def attempts(server: ModelServer) -> None:
    os.environ["AWS_ENDPOINT_URL_BEDROCK_RUNTIME"] = server.endpoint
    base_url = f"{server.endpoint}/v1"
    bedrock, gpt = BedrockProvider(clients.model("bedrock-runtime")), OpenAIProvider(base_url, "")
    bare_bedrock, bare_gpt = boto3.client("bedrock-runtime"), openai.OpenAI(base_url=base_url, api_key="none")
    print(f"one call, {WORDS} words, median of {RUNS}     CPU ms  of bare    wall ms  of bare")
    for provider, bare, ask_bare in ((bedrock, bare_bedrock, ask_boto3), (gpt, bare_gpt, ask_openai)):
        for stream in (True, False):
            ours = Attempts(provider)
            rows = measured(
                {
                    "bare client": lambda: lambda: ask_bare(bare, stream=stream),  # type: ignore[operator]  # noqa: B023
                    "adapter": lambda: lambda: ask(provider, stream=stream),  # noqa: B023
                    "whole attempt": lambda: attempt(ours, stream=stream),  # noqa: B023
                }
            )
            least = rows["bare client"]
            for name, (cpu, wall) in rows.items():
                title = f"{provider.name}, {'streamed' if stream else 'whole'}, {name}"
                print(f"{title:<37} {cpu:9.2f} {cpu / least[0]:8.2f} {wall:10.2f} {wall / least[1]:8.2f}")


def attempt(ours: Attempts, *, stream: bool) -> Run:
    job_id = ours.submit(stream=stream)
    return lambda: ours.make(job_id)


# ── the first words ──────────────────────────────────────────────────────────────────────────────────────────


def first_words(server: ModelServer) -> None:
    """Of a bare call, and of jobs on the engine, the first of which finds no function running."""
    say(server, seconds_per_word=SECONDS_PER_WORD)
    bare = statistics.median(first_of(BedrockProvider(clients.model("bedrock-runtime"))) for _ in range(5))
    with (
        tempfile.TemporaryDirectory() as folder,
        engine.running(Path(folder), environment=server.environment()) as running,
    ):
        outputs = deploy.synthesise_and_deploy(running)
        url, key = commands.api_url(running, outputs), commands.make_key(running, outputs)
        with Recado(url, key) as client:
            cold, *warm = [parts_of_first_word(client, bare) for _ in range(1 + WARM_JOBS)]
    columns = {
        "cold": cold,
        f"warm, median of {WARM_JOBS}": {part: statistics.median(found[part] for found in warm) for part in cold},
    }
    print(f"\ntime to the first word, ms; a bare call takes {1000 * bare:.0f}")
    print(f"{'':<30}" + "".join(f"{name:>22} {'of all':>7}" for name in columns))
    for part in cold:
        cells = "".join(f"{1000 * c[part]:>22.0f} {c[part] / c['all']:>7.0%}" for c in columns.values())
        print(f"{part:<30}{cells}")


def first_of(provider: Provider) -> float:
    """Seconds until the first word of a bare call."""
    begin = time.perf_counter()
    request = ModelRequest(model=MODEL, messages=[Message(role="user", content=PROMPT)], max_tokens=MAX_TOKENS)
    answer = provider.call(request, seconds=60)
    next(part for part in answer if isinstance(part, TextPart))
    return time.perf_counter() - begin


def parts_of_first_word(client: Recado, bare: float) -> dict[str, float]:
    """Seconds. The log of the job says when it was submitted and claimed."""
    begin, first = time.time(), list[float]()
    submitted = client.submit(kind="completion", input={"prompt": PROMPT, "max_tokens": MAX_TOKENS})
    accepted = time.time()
    log = client.watch(submitted, transport="websocket", on_delta=lambda _: first.append(time.time()), timeout=60)
    at = {event.event.rpartition(".")[2]: logged_at(event.timestamp) for event in log}
    if not first:
        raise SystemExit("no text came over the WebSocket")
    return {
        "request, until it is answered": accepted - begin,
        "stream, topic, queue, claim": at["started"] - accepted,
        "the model": bare,
        "call, channel, WebSocket": first[0] - at["started"] - bare,
        "all": first[0] - begin,
    }


def logged_at(timestamp: Any) -> float:
    return datetime.fromisoformat(str(timestamp)).timestamp()


@contextmanager
def fake() -> Iterator[ModelServer]:
    settings = {"RECADO_MODEL_URL": "fake"}
    with tempfile.TemporaryDirectory() as folder, model.running(Path(folder), settings=settings) as server:
        processes.until(server.is_healthy, 30)
        say(server, seconds_per_word=0)
        yield server


def say(server: ModelServer, *, seconds_per_word: float) -> None:
    options = json.dumps({"words": WORDS, "seconds_per_word": seconds_per_word}).encode()
    urllib.request.urlopen(urllib.request.Request(f"{server.endpoint}/fake", options, method="PUT")).close()


def main() -> None:
    with fake() as server:
        attempts(server)
        if QUICK:
            print("\ntime to the first word: left out, because it needs an engine")
        else:
            first_words(server)


if __name__ == "__main__":
    main()
