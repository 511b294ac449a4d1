"""The service with two more kinds, for these tests only."""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from unittest import mock

import pytest

import kinds
from core.webhooks.transport import client
from tests.conftest import FINE_TUNING, ROOT, synthesised
from tests.simulated_cloud.cloud import Cloud
from tests.support import client_cache, tree
from tests.support.recado_cloud import recado_cloud
from tests.support.receiver import Receiver
from tests.support.service import Service

SAMPLES = Path(__file__).parent / "samples"
CONSTRUCTS = Path(__file__).parent / "constructs"
NAMES = ("tally", "echo")


@pytest.fixture(scope="session")
def assembly_with_samples(pytestconfig: pytest.Config) -> Path:
    """The app of a copy of this project in which the samples are registered."""
    folder = Path(pytestconfig.cache.mkdir("assembly-with-samples"))
    with (folder / "copying").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        shutil.rmtree(folder / "tree", ignore_errors=True)
        copied = tree.copy(ROOT, folder / "tree")
        for name in NAMES:
            shutil.copytree(SAMPLES / name, copied / "lambdas" / "kinds" / name)
            tree.register(copied, name, name.upper())
        shutil.copy(CONSTRUCTS / "tally.py", copied / "stacks" / "kinds")
        (folder / "out").mkdir(exist_ok=True)
        return synthesised(folder / "out", FINE_TUNING, root=copied)


@pytest.fixture(scope="session")
def cloud_with_samples(assembly_with_samples: Path) -> Cloud:
    return recado_cloud(assembly_with_samples)


@pytest.fixture(scope="module", autouse=True)
def registered() -> Iterator[None]:
    """Registers the samples during this module's tests."""
    with mock.patch.object(kinds, "__path__", [*kinds.__path__, str(SAMPLES)]):
        found = {name: getattr(import_module(f"kinds.{name}.kind"), name.upper()) for name in NAMES}
        with mock.patch.dict(kinds.registry.KINDS, found):
            yield


@pytest.fixture
def cloud(cloud_with_samples: Cloud, registered: None) -> Iterator[Cloud]:
    with cloud_with_samples.running():
        yield cloud_with_samples


@pytest.fixture
def service(cloud: Cloud) -> Iterator[Service]:
    """The service as the owner `ana` and an operator see it. Calls of functions are checked against their
    roles.
    """
    with client_cache.installed():
        yield Service(cloud)
        assert cloud.denied() == []


@pytest.fixture
def receiver(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> Receiver:
    """The server that receives all webhooks."""
    receiver = Receiver(cloud.clock)
    monkeypatch.setattr(client, "post", receiver.post)
    return receiver
