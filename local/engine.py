"""The local engine: one MiniStack process, which speaks AWS's protocols and runs every function as a process.

Several may run at once: each has its own port, directory and process group, and shares nothing with the others.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from local import toolchain

REGION = "us-east-1"
ACCOUNT = "000000000000"
HOST = "127.0.0.1"  # an address, not a name: S3 clients then put the bucket into the path
START_SECONDS = 60
STOP_SECONDS = 5
_LAUNCHER = Path(__file__).with_name("launcher.py")


class EngineFailed(RuntimeError):
    """The engine did not start, or is gone; the message ends with the last lines of its log."""


@dataclass(frozen=True, kw_only=True)
class Engine:
    """A running engine. Its files (log, temporary files, extracted code) are below `workspace`."""

    port: int
    pid: int
    workspace: Path
    process: subprocess.Popen[bytes] | None = field(default=None, compare=False, repr=False)

    @property
    def endpoint(self) -> str:
        """What `AWS_ENDPOINT_URL` must be to talk to it."""
        return f"http://{HOST}:{self.port}"

    @property
    def log(self) -> Path:
        """What the engine and all functions print."""
        return self.workspace / "engine.log"

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

    def is_healthy(self) -> bool:
        """Whether it answers at all."""
        return _answers(self.port, "GET", "/_ministack/health")

    def reset(self) -> None:
        """Empty it: no stack, table, queue, bucket or function process is left."""
        if not _answers(self.port, "POST", "/_ministack/reset"):
            raise EngineFailed(f"the engine at {self.endpoint} does not answer")

    def stop(self) -> None:
        """End it and the processes of its functions. Doing it twice is fine."""
        _signal_group(self.pid, signal.SIGTERM)
        if not self._gone_within(STOP_SECONDS):
            _signal_group(self.pid, signal.SIGKILL)
            self._gone_within(STOP_SECONDS)
        _signal_group(self.pid, signal.SIGKILL)  # functions that outlived it
        if self.process is not None and self.process.stdin is not None:
            self.process.stdin.close()
        _record(self.workspace).unlink(missing_ok=True)

    def _gone_within(self, seconds: float) -> bool:
        if self.process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(seconds)
            return self.process.poll() is not None
        return _until(lambda: not _exists(self.pid) or not self.is_healthy(), seconds)


@contextlib.contextmanager
def running(workspace: Path, *, port: int | None = None) -> Iterator[Engine]:
    """An engine for the length of a `with` block."""
    engine = start(workspace, port=port)
    try:
        yield engine
    finally:
        engine.stop()


def start(workspace: Path, *, port: int | None = None, outlive_us: bool = False) -> Engine:
    """Start an engine on `port` (default: any free one) and wait until it answers, about half a second.

    It ends with this process, however this process ends, unless `outlive_us`; `attach` finds such a one again.
    """
    workspace = workspace.resolve()
    for name in ("home", "tmp"):
        (workspace / name).mkdir(parents=True, exist_ok=True)
    port = port or _free_port()
    mark = workspace / "tmp" / f"ministack-{port}.pid"  # written once it has seen that the port is free
    mark.unlink(missing_ok=True)
    process = _launch(workspace, port, outlive_us)
    engine = Engine(port=port, pid=process.pid, workspace=workspace, process=process)
    _until(lambda: process.poll() is not None or (mark.exists() and engine.is_healthy()), START_SECONDS)
    if process.poll() is not None or not engine.is_healthy():
        engine.stop()
        raise EngineFailed(f"the engine did not start on port {port}:\n{_tail(engine.log)}")
    _record(workspace).write_text(json.dumps({"port": port, "pid": process.pid}))
    return engine


def attach(workspace: Path) -> Engine | None:
    """The engine that was started in `workspace` and still runs, if any."""
    try:
        record = json.loads(_record(workspace).read_text())
    except (OSError, ValueError):
        return None
    engine = Engine(port=record["port"], pid=record["pid"], workspace=workspace.resolve())
    return engine if _exists(engine.pid) and engine.is_healthy() else None


def _launch(workspace: Path, port: int, outlive_us: bool) -> subprocess.Popen[bytes]:
    # -P: the engine must not find our modules beside the launcher.
    command = [str(toolchain.engine_python()), "-P", str(_LAUNCHER)]
    with (workspace / "engine.log").open("wb") as log:
        return subprocess.Popen(
            command if outlive_us else [*command, "--end-with-parent"],
            stdin=subprocess.DEVNULL if outlive_us else subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=_environment(workspace, port),
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


def _answers(port: int, method: str, path: str) -> bool:
    connection = http.client.HTTPConnection(HOST, port, timeout=10)  # unlike urllib, knows no proxies
    try:
        connection.request(method, path)
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _signal_group(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _until(condition: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def _record(workspace: Path) -> Path:
    return workspace / "engine.json"


def _tail(log: Path, lines: int = 15) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
