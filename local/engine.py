"""The local engine: one MiniStack process, which speaks AWS's protocols and runs every function as a process.

Several may run at once: each has its own port, directory and process group, and shares nothing with the others.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from local import processes, toolchain
from local.processes import HOST, LocalServer

REGION = "us-east-1"
ACCOUNT = "000000000000"
START_SECONDS = 60
_LAUNCHER = Path(__file__).with_name("launcher.py")


class EngineFailed(RuntimeError):
    """The engine did not start, or is gone; the message ends with the last lines of its log."""


@dataclass(frozen=True, kw_only=True)
class Engine(LocalServer):
    """A running engine, whose `endpoint` is what `AWS_ENDPOINT_URL` must be.

    Its log is what it and all functions print. Its temporary files and extracted code are below `workspace`, too.
    """

    NAME: ClassVar[str] = "engine"
    HEALTH: ClassVar[str] = "/_ministack/health"
    STOP_SECONDS: ClassVar[float] = 5

    def credentials(self) -> dict[str, str]:
        """The environment variables with which any AWS SDK or CLI talks to this engine and nothing else."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": ACCOUNT,
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": REGION,
            "AWS_REGION": REGION,
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        }

    def api_url(self, api_id: str, stage: str) -> str:
        """Where REST API `api_id` answers, without a slash at the end."""
        return f"{self.endpoint}/_aws/execute-api/{api_id}/{stage}"

    def reset(self) -> None:
        """Empty it: no stack, table, queue, bucket or function process is left."""
        if processes.request(self.port, "POST", "/_ministack/reset") is None:
            raise EngineFailed(f"the engine at {self.endpoint} does not answer")


@contextlib.contextmanager
def running(
    workspace: Path, *, port: int | None = None, environment: Mapping[str, str] | None = None
) -> Iterator[Engine]:
    """An engine for the length of a `with` block."""
    engine = start(workspace, port=port, environment=environment)
    try:
        yield engine
    finally:
        engine.stop()


def start(
    workspace: Path,
    *,
    port: int | None = None,
    environment: Mapping[str, str] | None = None,
    outlive_us: bool = False,
) -> Engine:
    """Start an engine on `port` (default: any free one) and wait until it answers, about half a second.

    `environment`: further variables of it and of all functions. It ends with this process, however this process
    ends, unless `outlive_us`; `attach` finds such a one again.
    """
    workspace = workspace.resolve()
    for name in ("home", "tmp"):
        (workspace / name).mkdir(parents=True, exist_ok=True)
    port = port or processes.free_port()
    mark = workspace / "tmp" / f"ministack-{port}.pid"  # written once it has seen that the port is free
    mark.unlink(missing_ok=True)
    process = _launch(workspace, _environment(workspace, port) | dict(environment or {}), outlive_us)
    engine = Engine(port=port, pid=process.pid, workspace=workspace, process=process)
    processes.until(lambda: process.poll() is not None or (mark.exists() and engine.is_healthy()), START_SECONDS)
    if process.poll() is not None or not engine.is_healthy():
        engine.stop()
        raise EngineFailed(f"the engine did not start on port {port}:\n{_tail(engine.log)}")
    engine.record()
    return engine


attach = Engine.attach


def _launch(workspace: Path, environment: dict[str, str], outlive_us: bool) -> subprocess.Popen[bytes]:
    # -P: the engine must not find our modules beside the launcher.
    command = [str(toolchain.engine_python()), "-P", str(_LAUNCHER)]
    with (workspace / "engine.log").open("wb") as log:
        return subprocess.Popen(
            command if outlive_us else [*command, "--end-with-parent"],
            stdin=subprocess.DEVNULL if outlive_us else subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=workspace,
            start_new_session=True,  # a group of its own, so that `stop` reaches the functions and Ctrl-C only us
        )


def _environment(workspace: Path, port: int) -> dict[str, str]:
    """All that the engine sees, and, since functions inherit it, all that they see besides their own variables."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "LANG": "C.UTF-8",
        "HOME": str(workspace / "home"),
        "TMPDIR": str(workspace / "tmp"),
        "GATEWAY_PORT": str(port),
        "BIND_HOST": HOST,
        "MINISTACK_HOST": HOST,
        "MINISTACK_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_ENDPOINT_URL": f"http://{HOST}:{port}",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "SFTP_ENABLED": "0",
        "IOT_MTLS_ENABLED": "0",  # these two would listen on fixed ports
    }


def _tail(log: Path, lines: int = 15) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
