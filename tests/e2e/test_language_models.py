"""Language models with the deployed system: text that arrives while it is written, and summaries of long texts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path

import pytest
import requests

from local import corpus, toolchain
from local.model import process
from local.model.service import prompt_key
from local.model.upstreams import SMALL_MODEL
from local.processes import until
from recado import Recado
from tests.e2e.conftest import FAKE_MODEL, SystemWithModel, wait_for

WORDS, SECONDS_PER_WORD = 12, 0.15
FORTY_PAGES = 20_000  # words


class FakeModel:
    """The switches and the counts of the model's server."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.set("fake", words=20, seconds_per_word=0)
        self.set("faults")
        requests.delete(f"{url}/calls", timeout=10).raise_for_status()

    def set(self, what: str, **options: object) -> None:
        requests.put(f"{self._url}/{what}", json=options, timeout=10).raise_for_status()

    def calls(self) -> Mapping[str, Mapping[str, int]]:
        """The counts of each prompt."""
        calls: dict[str, dict[str, int]] = requests.get(f"{self._url}/calls", timeout=10).json()["by_key"]
        return calls


@pytest.fixture
def fake(system: SystemWithModel) -> FakeModel:
    return FakeModel(system.model.endpoint)


@pytest.fixture(scope="module")
def client(system: SystemWithModel) -> Iterator[Recado]:
    with Recado(system.url, system.caller("models").key) as client:
        yield client


def epoch(timestamp: str) -> float:
    return datetime.fromisoformat(timestamp).timestamp()


def test_the_command_prints_text_while_it_is_written(client: Recado, fake: FakeModel, tmp_path: Path) -> None:
    """`recado complete` prints pieces before the job has completed. Joined, they are the text of its result."""
    fake.set("fake", words=WORDS, seconds_per_word=SECONDS_PER_WORD)
    command = [str(Path(sys.executable).with_name("recado")), "complete", "one two three", "--json"]
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    login = {"RECADO_URL": client.url, "RECADO_API_KEY": client._api.key}
    with subprocess.Popen(command, env=environment | login, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        printed = [(time.time(), json.loads(line)) for line in running.stdout]
    *_, (_, job) = printed
    pieces = [(at, line) for at, line in printed if line.get("type") in ("delta", "snapshot")]
    assert (
        "".join(line["text"] for _, line in pieces)
        == job["result"]["text"]
        == " ".join(WORDS // 3 * ["one two three"])
    )
    early = [at for at, _ in pieces if at < epoch(job["finished_at"])]
    assert len(early) >= 3


def test_cancel_ends_a_running_call(client: Recado, fake: FakeModel) -> None:
    """The model's server sees the connection closed within 5 seconds, and the job keeps the text that came."""
    fake.set("fake", words=1000, seconds_per_word=SECONDS_PER_WORD)
    prompt = "four five six"
    job = client.submit(kind="completion", input={"prompt": prompt})
    wait_for(lambda: fake.calls().get(prompt_key(prompt)))
    time.sleep(5 * SECONDS_PER_WORD)
    client.cancel(job.job_id)
    call = wait_for(lambda: (call := fake.calls()[prompt_key(prompt)])["output_tokens"] and call, seconds=5)
    assert (call["requests"], call["completed"]) == (1, 0)
    usage = wait_for(lambda: client.job(job.job_id).usage)
    assert usage.partial_text.startswith(prompt)
    assert usage.partial_text.count(" ") < 100


def long_text() -> str:
    topics, texts, words = iter(corpus.reference().values()), list[str](), 0
    while words < FORTY_PAGES:
        texts.append(next(topics))
        words += len(texts[-1].split())
    return "\n\n".join(texts)


def test_a_long_text_is_summarized_behind_a_provider_that_throttles(client: Recado, fake: FakeModel) -> None:
    """The summary of forty pages shows its progress in parts. Each call is answered once, however often it was
    throttled.
    """
    fake.set("faults", throttle=1000, probability=0.25, seed=1, retry_after=1)
    job = client.submit(kind="summary", text=long_text())
    seen: list[tuple[int, int]] = []

    def has_ended() -> bool:
        status = client.status(job.job_id)
        if status.progress:
            seen.append((status.progress.done, status.progress.total))
        return status.is_final

    wait_for(has_ended)
    result = client.result(job.job_id) or {}
    assert seen == sorted(seen)
    assert {total for _, total in seen} == {result["parts"]}
    assert len(set(seen)) > 3
    answered = [call["completed"] for call in fake.calls().values()]
    assert answered == [1] * result["calls"]
    assert sum(call["requests"] for call in fake.calls().values()) > result["calls"] > result["parts"] > 10


@pytest.mark.skipif(not toolchain.MODEL_FILE.exists(), reason="there is no local model on this machine")
def test_the_small_model_answers(client: Recado, system: SystemWithModel) -> None:
    """The deployed functions call a real model in place of Amazon Bedrock."""
    workspace = system.model.workspace
    try:
        with process.running(workspace, settings={}) as small:
            assert until(lambda: not small.problem(), 30), small.problem()
            job = client.submit(kind="completion", input={"prompt": "Say hello.", "max_tokens": 20})
            result = client.result(client.wait(job, timeout=60)) or {}
    finally:
        system.servers.enter_context(process.running(workspace, settings=FAKE_MODEL))  # at the same port
    assert result["text"].strip()
    assert 0 < result["usage"]["output_tokens"] <= 20
    assert result["model"] == f"bedrock/{SMALL_MODEL}"
