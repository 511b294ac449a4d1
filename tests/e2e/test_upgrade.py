"""The commit before is deployed and has jobs of every kind under way; this version is deployed over it."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests

from kinds.fine_tune.customization import name_of
from kinds.registry import KINDS
from local import deploy, engine, toolchain
from local.api import Api
from local.model import process as model
from tests.e2e.conftest import CONTEXT, FAKE_MODEL, System, ended, wait_for
from tests.support.kinds import DATASET

DEPLOYED = ("app.py", "cdk.json", "lambdas", "local", "stacks", "statemachines")
TOOLS = (".venv", ".venv-local", ".venv-model", ".local", "local/node_modules")
SYNTHESISE = (
    "import json, sys; from pathlib import Path; from local import deploy;"
    "print(deploy.synthesise(Path(sys.argv[1]), context=json.loads(sys.argv[2])))"
)


def git(*arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=toolchain.ROOT, capture_output=True, check=True).stdout


def commit_before() -> str:
    """The last commit if what is deployed has changed since, else the one before."""
    return "HEAD" if git("status", "--porcelain", "--", *DEPLOYED) else "HEAD^"


def project_before(directory: Path) -> Path:
    """The project as the commit before has it, with the tools of this one."""
    with tarfile.open(fileobj=io.BytesIO(git("archive", commit_before()))) as archive:
        archive.extractall(directory, filter="data")
    for name in TOOLS:
        (directory / name).symlink_to(toolchain.ROOT / name)
    return directory


def kinds_of(project: Path) -> list[str]:
    """The kinds whose jobs wait for the worker, if the project has them, too."""
    waiting = [name for name, kind in KINDS.items() if kind.submittable and (kind.work or kind.on_batch)]
    return [name for name in waiting if (project / "lambdas" / "kinds" / name / "kind.py").exists()]


def synthesise(project: Path, workspace: Path, context: Mapping[str, str]) -> Path:
    """The assembly that the project's own code makes of it."""
    command = [sys.executable, "-c", SYNTHESISE, str(workspace), json.dumps(context)]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


@dataclass(frozen=True)
class Upgrade:
    """A system with the version before, and the assembly of this one. `kinds`: of jobs that both versions have."""

    system: System
    assembly: Path
    kinds: list[str]


@pytest.fixture(scope="module")
def upgrade(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Upgrade]:
    folder = tmp_path_factory.mktemp("upgrade")
    try:
        project = project_before(folder / "before")
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("the commit before is not here: this is no clone with a history")
    with (
        model.running(folder / "model", settings=FAKE_MODEL) as fake,
        engine.running(folder / "engine", environment=fake.environment()) as running,
        ThreadPoolExecutor(2) as pool,
    ):
        context = deploy.own_hosts(running) | CONTEXT
        old, new = (
            pool.submit(synthesise, root, folder / name, context)
            for root, name in ((project, "old"), (toolchain.ROOT, "new"))
        )
        deploy.bootstrap(running)
        outputs = deploy.deploy(running, old.result())
        requests.put(f"{fake.endpoint}/customization", json={"seconds": 0}, timeout=10).raise_for_status()
        yield Upgrade(System(running, outputs, old.result()), new.result(), kinds_of(project))


@contextmanager
def no_model_calls(system: System) -> Iterator[None]:
    """The worker gets no message: what calls a model waits, and an update cuts off no function."""
    functions = system.client("lambda")
    mappings = functions.list_event_source_mappings()["EventSourceMappings"]
    (mapping,) = [one["UUID"] for one in mappings if "EmbeddingQueue" in one["EventSourceArn"]]
    functions.update_event_source_mapping(UUID=mapping, Enabled=False)
    yield
    functions.update_event_source_mapping(UUID=mapping, Enabled=True)


def submit(api: Api, kind: str) -> str:
    """Submit the kind's example; returns the job's id."""
    files = {"s3_key": (b"One two three.", "text/plain"), "dataset": (DATASET, "application/jsonl")}
    given: dict[str, Any] = dict(KINDS[kind].example)
    for field in files.keys() & given.keys():
        given[field] = api.upload("file.txt", *files[field])
    return str(api.post("/jobs", {"kind": kind, "input": given})["job_id"])


def waiting(system: System) -> int:
    """How many messages wait for the worker."""
    queues = system.client("sqs")
    (url,) = [one for one in queues.list_queues()["QueueUrls"] if "EmbeddingQueue" in one]
    names = ["ApproximateNumberOfMessages"]
    return int(queues.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"][names[0]])


def finished(system: System, api: Api, kind: str, job_id: str) -> dict[str, Any]:
    """The job, once it is final. The end of a training is told: the worker looks once a minute."""
    functions = system.client("lambda")
    (told,) = [
        f["FunctionName"] for f in functions.list_functions()["Functions"] if "TrainingEnded" in f["FunctionName"]
    ]
    event = json.dumps({"detail": {"jobStatus": "Completed", "jobName": name_of(job_id)}})
    while kind == "fine_tune" and api.get(f"/jobs/{job_id}/status")["status"] == "running":
        functions.invoke(FunctionName=told, Payload=event)
        time.sleep(1)
    return ended(api, job_id)


def test_jobs_that_run_during_an_upgrade_complete(upgrade: Upgrade) -> None:
    """Jobs began with the version before, whose messages, tokens and definitions this one ends."""
    system, kinds = upgrade.system, upgrade.kinds
    api = system.caller("acme")
    with no_model_calls(system):
        jobs = {kind: submit(api, kind) for kind in kinds}
        wait_for(lambda: waiting(system) >= len(jobs))  # each has a batch or itself in the queue
        deploy.deploy(system.engine, upgrade.assembly)
    found = {kind: finished(system, api, kind, job_id) for kind, job_id in jobs.items()}
    assert {kind: (job["status"], job["error"]) for kind, job in found.items()} == dict.fromkeys(
        kinds, ("completed", None)
    )
    for kind, job in found.items():
        log = api.get(f"/jobs/{job['job_id']}/events")["events"]
        assert [event["sequence"] for event in log] == list(range(1, len(log) + 1)), kind
        assert log[-1]["status"] == "completed", kind
