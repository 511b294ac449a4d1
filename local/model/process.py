"""The model's server as a process beside the engine. It starts in the background: nobody waits for it."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from local import processes, toolchain
from local.processes import LocalServer

SETTINGS = ("RECADO_MODEL_URL", "RECADO_MODEL_NAME", "RECADO_MODEL_KEY")


@dataclass(frozen=True, kw_only=True)
class ModelServer(LocalServer):
    """Stopped during a call, it takes what is left of two seconds at most, and then is killed."""

    NAME: ClassVar[str] = "model"
    HEALTH: ClassVar[str] = "/health"
    STOP_SECONDS: ClassVar[float] = 2

    def environment(self) -> dict[str, str]:
        """With these variables, an AWS SDK calls Amazon Bedrock's models and customization jobs here."""
        return dict.fromkeys(("AWS_ENDPOINT_URL_BEDROCK_RUNTIME", "AWS_ENDPOINT_URL_BEDROCK"), self.endpoint)

    def problem(self) -> str:
        """Why it does not answer calls; empty if it does."""
        health = self._health()
        status = health["status"] if health else f"its server does not answer (log: {self.log})"
        return "" if status == "ok" else str(status)

    def model(self) -> str | None:
        """The only model that it has; None if it has others."""
        model: str | None = self._health().get("model")
        return model

    def _health(self) -> dict[str, Any]:
        return dict(json.loads(processes.request(self.port, "GET", self.HEALTH) or "{}"))


@contextlib.contextmanager
def running(workspace: Path, *, settings: Mapping[str, str] = os.environ) -> Iterator[ModelServer]:
    """The server for the length of a `with` block."""
    server = start(workspace, settings=settings)
    try:
        yield server
    finally:
        server.stop()


def start(workspace: Path, *, settings: Mapping[str, str] = os.environ, outlive_us: bool = False) -> ModelServer:
    """Start the server, in place of one that runs in `workspace`, whose port it takes: an engine may know it.

    `settings` may hold SETTINGS. It ends with this process, however this process ends, unless `outlive_us`.
    """
    workspace = workspace.resolve()
    workspace.mkdir(parents=True, exist_ok=True)
    before = ModelServer.recorded(workspace)
    if attached := ModelServer.attach(workspace):
        attached.stop()
    port = processes.free_port(before.port if before else None)
    process = _launch(workspace, port, settings, outlive_us)
    server = ModelServer(port=port, pid=process.pid, workspace=workspace, process=process)
    server.record()
    return server


attach = ModelServer.attach


def _launch(workspace: Path, port: int, settings: Mapping[str, str], outlive_us: bool) -> subprocess.Popen[bytes]:
    command = [str(toolchain.project_python()), "-m", "local.model.server", "--port", str(port)]
    environment = {name: settings[name] for name in SETTINGS if name in settings}
    with (workspace / "model.log").open("wb") as log:
        return subprocess.Popen(
            command if outlive_us else [*command, "--end-with-parent"],
            stdin=subprocess.DEVNULL if outlive_us else subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8"} | environment,
            cwd=toolchain.ROOT,
            start_new_session=True,  # a group of its own, so that `stop` reaches llama.cpp and Ctrl-C only us
        )
