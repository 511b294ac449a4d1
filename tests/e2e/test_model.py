"""The local model as processes: a real model answers through boto3, and ends when it is told to."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config

from local import toolchain
from local.model import process
from local.model.upstreams import SMALL_MODEL
from local.processes import until

pytestmark = pytest.mark.skipif(
    not toolchain.MODEL_FILE.exists(), reason="there is no local model on this machine"
)


def ask(server: process.ModelServer, prompt: str, max_tokens: int) -> Any:
    client = boto3.client(
        "bedrock-runtime",
        endpoint_url=server.environment()["AWS_ENDPOINT_URL_BEDROCK_RUNTIME"],
        config=Config(retries={"total_max_attempts": 1}),
    )
    messages: Any = [{"role": "user", "content": [{"text": prompt}]}]
    answer = client.converse_stream(
        modelId=SMALL_MODEL, messages=messages, inferenceConfig={"maxTokens": max_tokens}
    )
    return answer["stream"]


def test_the_small_model_answers_and_is_stopped_during_a_call(tmp_path: Path) -> None:
    """Its words arrive one after the other. Stopped while it computes, it is gone in less than 4 seconds."""
    with process.running(tmp_path, settings={}) as server:
        assert until(lambda: not server.problem(), 30), server.problem()
        arrived = [(time.monotonic(), event) for event in ask(server, "Say hello in one sentence.", 40)]
        words = [at for at, event in arrived if "contentBlockDelta" in event]
        usage = arrived[-1][1]["metadata"]["usage"]
        assert len(words) > 2
        assert words[-1] - words[0] > 0.02  # 60 to 80 tokens a second
        assert 0 < usage["outputTokens"] <= 40 < usage["inputTokens"] + 40

        stream = iter(ask(server, "Tell a long story.", 3000))
        assert [next(iter(next(stream))) for _ in range(2)] == ["messageStart", "contentBlockDelta"]
        reading = threading.Thread(target=exhaust, args=(stream,), daemon=True)
        reading.start()
        started = time.monotonic()
        server.stop()
        assert until(lambda: group(server.pid) == [], 4)
        assert time.monotonic() - started < 4
    reading.join(5)
    assert not reading.is_alive()  # the caller is not left hanging


def exhaust(stream: Any) -> None:
    with contextlib.suppress(Exception):  # that it ends is what counts
        for _ in stream:
            pass


def group(leader: int) -> list[str]:
    """The process ids of a process group."""
    done = subprocess.run(["ps", "-e", "-o", "pgid=,pid="], capture_output=True, text=True, check=True)
    pairs = [line.split() for line in done.stdout.splitlines()]
    return [pid for group_id, pid in pairs if int(group_id) == leader]


SCRIPT = """
import sys, time
from pathlib import Path
from local.model import process
server = process.start(Path(sys.argv[1]), settings={}, outlive_us=sys.argv[2] == "outlive")
print(server.pid, flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("mode", ["outlive", "end"])
def test_the_model_ends_with_its_parent_unless_told_otherwise(tmp_path: Path, mode: str) -> None:
    """Even if the parent is killed, llama.cpp ends, too. One that outlives its parent is found and stopped."""
    command = [sys.executable, "-c", SCRIPT, str(tmp_path), mode]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=toolchain.ROOT, env=dict(os.environ)) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert until(lambda: len(group(pid)) == 2, 10)
        assert until(lambda: (found := process.attach(tmp_path)) is not None and not found.problem(), 30)
        parent.kill()
    if mode == "outlive":
        time.sleep(0.5)
        found = process.attach(tmp_path)
        assert found is not None
        assert found.problem() == ""
        found.stop()
    assert until(lambda: group(pid) == [], 10)
    assert process.attach(tmp_path) is None


def test_a_restart_keeps_the_port(tmp_path: Path) -> None:
    """The engine and its functions know it. RECADO_MODEL_URL says where the answers come from now."""
    with process.running(tmp_path, settings={}) as first:
        assert until(first.is_healthy, 30)
        with process.running(tmp_path, settings={"RECADO_MODEL_URL": "fake"}) as second:
            assert until(lambda: not second.problem(), 30)
            assert second.port == first.port
            deltas = [
                event["contentBlockDelta"] for event in ask(second, "one", 2) if "contentBlockDelta" in event
            ]
            assert [delta["delta"]["text"] for delta in deltas] == ["one", " one"]
        assert not first.is_healthy()
