"""One engine with the deployed app for all end-to-end tests: the real CLI, real HTTP, real processes."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pytest

from core.jobs import JobStore
from core.jobs.polling_interval import MIN_SAMPLES
from local import deploy, engine, toolchain
from local.api import Api
from local.commands import api_url
from local.engine import Engine
from local.model import process as model
from local.model.process import ModelServer
from recado import Recado

SCHEDULE = (0, 2, 2, 3, 5)
CONTEXT = {
    "webhook_schedule_seconds": json.dumps(SCHEDULE),
    "webhook_circuit_failures": "30",  # more than an endpoint collects that is to use up the schedule
    "summary_part_tokens": "4000",  # a quarter of the calls
}
"""Retries in seconds instead of days, and larger parts: what is deployed differs in these alone."""
FAKE_MODEL = {"RECADO_MODEL_URL": "fake"}


@dataclass(frozen=True)
class System:
    """A deployed system: what a user and an operator can reach of it."""

    engine: Engine
    outputs: dict[str, str]
    assembly: Path

    @property
    def url(self) -> str:
        return api_url(self.engine, self.outputs)

    def client(self, service: str, *, endpoint: str | None = None, resource: bool = False) -> Any:
        credentials, make = self.engine.credentials(), boto3.resource if resource else boto3.client
        return make(
            service,
            endpoint_url=endpoint or self.engine.endpoint,
            region_name=credentials["AWS_REGION"],
            aws_access_key_id=credentials["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=credentials["AWS_SECRET_ACCESS_KEY"],
        )

    def ops(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """`python -m ops …` as an operator types it."""
        environment = {"PATH": os.environ["PATH"], **self.engine.credentials()}
        command = [sys.executable, "-m", "ops", *arguments]
        return subprocess.run(
            command, cwd=toolchain.ROOT, env=environment, capture_output=True, text=True, check=False
        )

    def caller(self, owner: str, *scopes: str) -> Api:
        options = [part for scope in scopes for part in ("--scope", scope)]
        made = self.ops("keys", "create", "--owner", owner, *options)
        assert made.returncode == 0, made.stderr
        return Api(self.url, made.stdout.strip())


@dataclass(frozen=True)
class SystemWithModel(System):
    """`model` answers with the words of the prompt. `servers`: what is stopped in the end."""

    model: ModelServer
    servers: contextlib.ExitStack


@pytest.fixture(scope="session")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SystemWithModel]:
    with contextlib.ExitStack() as servers:
        fake = servers.enter_context(model.running(tmp_path_factory.mktemp("model"), settings=FAKE_MODEL))
        workspace, environment = tmp_path_factory.mktemp("engine"), fake.environment()
        running = servers.enter_context(engine.running(workspace, environment=environment))
        assembly = deploy.synthesise(running.workspace, context=deploy.own_hosts(running) | CONTEXT)
        deploy.bootstrap(running)
        yield SystemWithModel(running, deploy.deploy(running, assembly), assembly, fake, servers)


@pytest.fixture(scope="session")
def table(system: System) -> Any:
    """The jobs table past the API, for what no call can bring about."""
    return system.client("dynamodb", resource=True).Table(system.outputs["JobsTable"])


@pytest.fixture(scope="session")
def store(table: Any) -> JobStore:
    return JobStore(table.meta.client, table.name)


def know_jobs_as_short(client: Recado, store: JobStore) -> None:
    """From now on Retry-After is a few seconds for this owner's jobs, not thirty: it has had some."""
    job = client.wait(client.submit(text="Warming up."), timeout=60)
    for _ in range(MIN_SAMPLES):
        store.durations.record(store.get(job.job_id))


def wait_for(what: Callable[[], Any], *, seconds: float = 90) -> Any:
    """The first true answer, or a failure that shows the last one."""
    deadline = time.monotonic() + seconds
    while not (answer := what()):
        assert time.monotonic() < deadline, f"still {answer!r} after {seconds} s"
        time.sleep(0.1)
    return answer


def ended(api: Api, job_id: str, *, seconds: float = 90) -> dict[str, Any]:
    """The job, once it is final, by long polling as a user does it."""

    def final() -> dict[str, Any] | None:
        status = api.get(f"/jobs/{job_id}/status", wait=10)
        return api.get(f"/jobs/{job_id}") if status["status"] in ("completed", "failed", "canceled") else None

    job: dict[str, Any] = wait_for(final, seconds=seconds)
    return job
