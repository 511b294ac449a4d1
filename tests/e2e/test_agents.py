"""Agents with the deployed system: the steps of an answer over real connections, whole, cut, and for several."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
import requests
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from websockets.asyncio.client import connect

from local.toolchain import ROOT
from recado import Recado
from recado.models import Job, Step
from tests.e2e.conftest import SystemWithModel
from tests.e2e.cutting_proxy import CuttingProxy, through

QUESTION = "Where does the cellar key hang?"
TYPES = ["thinking", "tool_use", "tool_result", "thinking", "token"]
WORDS, SECONDS_PER_WORD = 20, 0.09
MAX_CUT_BYTES = 900  # fewer than what is told of one question
Messages = list[dict[str, Any]]


@pytest.fixture(scope="module")
def client(system: SystemWithModel) -> Iterator[Recado]:
    """Of an owner with two documents. The model takes some two seconds for its answer."""
    _set_model(system, SECONDS_PER_WORD)
    with Recado(system.url, system.caller("agents").key) as client:
        texts = {"house": "The cellar key hangs behind the door.", "garden": "The roses need water."}
        for job in [client.submit(text=text, document_id=name) for name, text in texts.items()]:
            client.wait(job, timeout=60)
        yield client
    _set_model(system, 0)


def _set_model(system: SystemWithModel, seconds_per_word: float) -> None:
    fake = {"words": WORDS, "seconds_per_word": seconds_per_word}
    requests.put(f"{system.model.endpoint}/fake", json=fake, timeout=10).raise_for_status()


@pytest.fixture(scope="module")
def listened(client: Recado) -> tuple[Job, list[list[Step]]]:
    """A job, and what three listeners were told while it ran."""
    job, ways = submit(client), ("websocket", "websocket", "sse")
    with ThreadPoolExecutor(len(ways)) as pool:
        watched = [pool.submit(_watch, client, job, way) for way in ways]
        return client.wait(job, timeout=60), [watching.result() for watching in watched]


@pytest.fixture(scope="module")
def answered(listened: tuple[Job, list[list[Step]]]) -> Job:
    return listened[0]


def _watch(client: Recado, job: Job, transport: Any) -> list[Step]:
    return list(client.steps(job, transport=transport, timeout=60))


def submit(client: Recado) -> Job:
    return client.submit(kind="agent", input={"question": QUESTION})


def told(steps: Any) -> Messages:
    """The steps with successive texts joined."""
    found: Messages = []
    for is_text, group in groupby((step.raw for step in steps), key=lambda raw: raw["type"] == "token"):
        some = list(group)
        found += [{"type": "token", "content": "".join(one["content"] for one in some)}] if is_text else some
    return found


async def listen(link: str) -> Messages:
    """What the plainest client receives up to `done`."""
    messages: Messages = []
    async with asyncio.timeout(60), connect(link, ping_interval=None, open_timeout=60) as websocket:
        while not messages or messages[-1]["type"] != "done":
            messages.append(json.loads(await websocket.recv()))
    return messages


def test_all_listeners_are_told_the_same(client: Recado, listened: tuple[Job, list[list[Step]]]) -> None:
    """Two WebSockets and a stream of server-sent events, at once for one job, get all types of steps in order.

    The text comes in pieces while it is written, and is that of the job's result.
    """
    job, steps = listened
    first, *others = map(told, steps)
    assert [step["type"] for step in first] == TYPES
    assert others == [first] * 2
    assert first[-1]["content"] == (client.result(job.job_id) or {})["answer"]
    pieces = [sum(step.type == "token" for step in some) for some in steps]
    assert all(count >= least for count, least in zip(pieces, (4, 4, 2), strict=True)), pieces


def test_messages_of_a_link(client: Recado, answered: Job) -> None:
    """Who comes late receives the steps and `done`, each with the job's id, and nothing else."""
    messages = asyncio.run(listen(answered.links["live"]))
    assert [kind for kind, _ in groupby(message["type"] for message in messages)] == [*TYPES, "done"]
    assert {message["job_id"] for message in messages} == {answered.job_id}
    assert messages[-1]["status"] == "completed"


@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
@given(cuts=st.lists(st.integers(1, MAX_CUT_BYTES), min_size=1, max_size=3))
def test_broken_connections_lose_and_repeat_nothing(
    client: Recado, system: SystemWithModel, answered: Job, cuts: list[int]
) -> None:
    """Wherever its connections break, a client yields each step, and each part of the text, once and in order."""
    whole = told(client.steps(answered))

    def watch(transport: Any) -> tuple[Messages, int]:
        with CuttingProxy(system.engine.port, cuts).running() as proxy:
            followed = replace(answered, links={"live": through(proxy, answered.links["live"])})
            with Recado(through(proxy, system.url), client._api.key) as behind_proxy:
                found = told(behind_proxy.steps(followed, transport=transport, timeout=60))
                return found, proxy.connections

    with ThreadPoolExecutor(2) as pool:
        watched = list(pool.map(watch, ("websocket", "sse")))
    for found, connections in watched:
        assert found == whole
        assert connections > 1


def test_a_stream_that_is_cut_while_the_text_is_written(client: Recado, system: SystemWithModel) -> None:
    """The connections of a running job break, too: after its first steps, and within its text."""
    job = submit(client)
    with CuttingProxy(system.engine.port, [900, 1500, 400]).running() as proxy:
        with Recado(through(proxy, system.url), client._api.key) as behind_proxy:
            found = told(behind_proxy.steps(replace(job, links={}), transport="sse", timeout=60))
        assert proxy.connections > 3
    assert found == told(client.steps(job.job_id))


def test_the_plainest_client(client: Recado) -> None:
    """The example sends questions, one after another on one socket, and prints what it receives."""
    environment = {"PATH": os.environ["PATH"], "RECADO_URL": client.url, "RECADO_API_KEY": client._api.key}
    command = [sys.executable, str(ROOT / "examples" / "ask.py"), QUESTION, "And the roses?"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == "I search the documents for the words of the question."
    assert [line for line in lines if line.startswith("search_documents")] == [
        f"search_documents {{'query': '{question}'}}" for question in (QUESTION, "And the roses?")
    ]
    assert lines.count("(completed)") == 2


def test_the_command(client: Recado) -> None:
    """`recado ask` prints the steps as they come, and the job whose answer they make."""
    environment = {"PATH": os.environ["PATH"], "RECADO_URL": client.url, "RECADO_API_KEY": client._api.key}
    command = [str(Path(sys.executable).with_name("recado")), "ask", QUESTION, "--document", "house", "--json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    *steps, job = map(json.loads, done.stdout.splitlines())
    assert [kind for kind, _ in groupby(step["type"] for step in steps)] == TYPES
    assert {passage["document_id"] for passage in steps[2]["passages"]} == {"house"}
    texts = [step["content"] for step in steps if step["type"] == "token"]
    assert "".join(texts) == job["result"]["answer"]
