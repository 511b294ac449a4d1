"""Servers on this machine as processes: each has a port, a directory, and a process group of its own."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Self

HOST = "127.0.0.1"  # an address, not a name: S3 clients then put the bucket into the path


@dataclass(frozen=True, kw_only=True)
class LocalServer:
    """A running server. Its files are below `workspace`."""

    NAME: ClassVar[str]
    HEALTH: ClassVar[str]
    STOP_SECONDS: ClassVar[float]

    port: int
    pid: int
    workspace: Path
    process: subprocess.Popen[bytes] | None = field(default=None, compare=False, repr=False)

    @classmethod
    def attach(cls, workspace: Path) -> Self | None:
        """The server that was started in `workspace` and still runs, if any."""
        found = cls.recorded(workspace)
        return found if found and exists(found.pid) and found.is_healthy() else None

    @classmethod
    def recorded(cls, workspace: Path) -> Self | None:
        """The server that was started in `workspace`, if it was not stopped. It may have ended."""
        try:
            record = json.loads(cls._record(workspace).read_text())
        except (OSError, ValueError):
            return None
        return cls(port=record["port"], pid=record["pid"], workspace=workspace.resolve())

    @classmethod
    def _record(cls, workspace: Path) -> Path:
        return workspace / f"{cls.NAME}.json"

    def record(self) -> None:
        """Let `attach` find it."""
        self._record(self.workspace).write_text(json.dumps({"port": self.port, "pid": self.pid}))

    @property
    def endpoint(self) -> str:
        return f"http://{HOST}:{self.port}"

    @property
    def log(self) -> Path:
        """What it and its child processes print."""
        return self.workspace / f"{self.NAME}.log"

    def is_healthy(self) -> bool:
        """Whether it answers at all."""
        return request(self.port, "GET", self.HEALTH) is not None

    def stop(self) -> None:
        """End it and its child processes. Doing it twice is fine."""
        signal_group(self.pid, signal.SIGTERM)
        if not self._gone_within(self.STOP_SECONDS):
            signal_group(self.pid, signal.SIGKILL)
            self._gone_within(self.STOP_SECONDS)
        signal_group(self.pid, signal.SIGKILL)  # children that outlived it
        if self.process is not None and self.process.stdin is not None:
            self.process.stdin.close()
        self._record(self.workspace).unlink(missing_ok=True)

    def _gone_within(self, seconds: float) -> bool:
        if self.process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(seconds)
            return self.process.poll() is not None
        return until(lambda: not exists(self.pid) or not self.is_healthy(), seconds)


def request(port: int, method: str, path: str) -> bytes | None:
    """The body of the response, or None if there is none with the status 200."""
    connection = http.client.HTTPConnection(HOST, port, timeout=10)  # unlike urllib, knows no proxies
    try:
        connection.request(method, path)
        response = connection.getresponse()
        return response.read() if response.status == 200 else None
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def free_port(preferred: int | None = None) -> int:
    """`preferred` if it is free, else any free one."""
    for port in (preferred or 0, 0):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((HOST, port))
            return int(probe.getsockname()[1])
    raise OSError("no port is free")


def signal_group(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def until(condition: Callable[[], bool], seconds: float) -> bool:
    """Whether it becomes true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
