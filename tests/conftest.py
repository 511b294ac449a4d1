"""No credentials, no network, reproducible examples for every test; the cloud for those who ask."""

from __future__ import annotations

import fcntl
import gc
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import pytest_socket
from hypothesis import settings

if TYPE_CHECKING:
    from xdist.scheduler import LoadFileScheduling

    from tests.simulated_cloud.cloud import Cloud

ROOT = Path(__file__).parent.parent
REGION = "eu-west-1"
LOOPBACK = ["127.0.0.1", "::1", "localhost"]
FINE_TUNING: dict[str, object] = {"fine_tune_models": ["amazon.nova-micro-v1:0:128k"]}
APP_SOURCES = ("app.py", "cdk.json", "requirements.txt", "stacks", "statemachines")
DECLARATIONS = ("lambdas/kinds", "lambdas/core/jobs", "lambdas/core/errors.py")

collect_ignore = ["browser"]  # they need Chromium, so they run when they are asked for by name

for variable in [name for name in os.environ if name.startswith("AWS_")]:
    del os.environ[variable]
os.environ |= {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_SESSION_TOKEN": "testing",
    "AWS_DEFAULT_REGION": REGION,
    "AWS_REGION": REGION,
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    # moto does not know the hosts that have the account in their names
    "AWS_ACCOUNT_ID_ENDPOINT_MODE": "disabled",
    "POWERTOOLS_LOG_LEVEL": "INFO",
}

# The cloud runs whole deployments under a clock of its own: deadlines on examples would measure the machine.
# The same examples every time: what is green here is green for everybody. `make explore` looks for others.
settings.register_profile("same", deadline=None, database=None, derandomize=True)
settings.register_profile("explore", deadline=None, database=None, max_examples=500)
settings.load_profile("same")


END_TO_END = "tests/e2e/"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """End-to-end tests first: they wait most, so they would be left at the end."""
    items.sort(key=lambda item: not item.nodeid.startswith(END_TO_END))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Without garbage collection, which took a quarter of the time. Later it leaves out what has been loaded."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """A worker more than there are cores, because the one with the end-to-end tests mostly waits."""
    return (os.cpu_count() or 1) + 1


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling | None:
    """A file runs on one worker, and all end-to-end tests on one, for one engine and one deployment."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return END_TO_END if nodeid.startswith(END_TO_END) else super()._split_scope(nodeid)

    return Scheduling(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.fixture(autouse=True)
def closed_network(request: pytest.FixtureRequest) -> None:
    """No sockets; with the marker `enable_socket`, loopback only. End-to-end tests are left alone."""
    if ROOT / "tests" / "e2e" in request.path.parents:
        return
    if request.node.get_closest_marker("enable_socket"):
        pytest_socket.socket_allow_hosts(LOOPBACK, allow_unix_socket=True)
    else:
        pytest_socket.disable_socket(allow_unix_socket=True)


@pytest.fixture(scope="session")
def assembly(pytestconfig: pytest.Config) -> Path:
    """The synthesised app with the defaults of `cdk.json` and a model to fine-tune.

    It is made anew only when its sources have changed.
    """
    folder = Path(pytestconfig.cache.mkdir("assembly"))
    return synthesised(folder, context=FINE_TUNING)


@pytest.fixture(scope="session")
def deployed_cloud(assembly: Path) -> Cloud:
    from tests.support.recado_cloud import recado_cloud

    return recado_cloud(assembly)


@pytest.fixture
def cloud(deployed_cloud: Cloud) -> Iterator[Cloud]:
    """The app in the simulated cloud, empty, with the virtual clock at its start."""
    with deployed_cloud.running():
        yield deployed_cloud


def synthesised(folder: Path, context: dict[str, object], *, root: Path = ROOT) -> Path:
    """Synthesise with `context` on top of `cdk.json`'s, unless `folder` has it from the same sources."""
    digest = hashlib.sha256(json.dumps(context, sort_keys=True).encode())
    for file in app_files(root):
        digest.update(str(file.relative_to(root)).encode() + file.read_bytes())
    target = folder / digest.hexdigest()[:16]
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (target / "manifest.json").exists():
            for old in folder.glob("*/"):
                shutil.rmtree(old)
            synthesise(target, context, root=root)
    return target


def app_files(root: Path = ROOT) -> list[Path]:
    paths = [root / name for name in (*APP_SOURCES, *DECLARATIONS)]
    files = [file for path in paths for file in (path.rglob("*") if path.is_dir() else [path])]
    return sorted(file for file in files if file.is_file() and "__pycache__" not in file.parts)


def synthesise(target: Path, context: dict[str, object], *, root: Path = ROOT) -> None:
    given = json.loads((root / "cdk.json").read_text())["context"]
    # Layers are not bundled: no test runs them, and it takes a download.
    given |= {"aws:cdk:bundling-stacks": [], **context}
    environment = os.environ | {
        "CDK_OUTDIR": str(target),
        "CDK_CONTEXT_JSON": json.dumps(given),
        "CDK_VALIDATION": "false",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    done = subprocess.run(
        [sys.executable, "app.py"], cwd=root, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.fail(f"synthesis failed:\n{done.stdout}{done.stderr}", pytrace=False)
