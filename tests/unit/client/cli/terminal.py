"""Runs the command on a pseudo-terminal."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

from recado import cli

CLIENT = Path(cli.__file__).parents[1]


def run_on_terminal(arguments: list[str], *, until: str) -> tuple[int, str]:
    """Send SIGINT after `until` was printed. Returns the exit code and all output."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "recado", *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        # SIGINT is ignored if the tests run in the background.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        env={**os.environ, "PYTHONPATH": str(CLIENT), "TERM": "xterm"},
    )
    os.close(theirs)
    screen = _read_until(ours, until)
    process.send_signal(signal.SIGINT)
    screen += _read_until(ours, None)
    os.close(ours)
    return process.wait(30), screen


def _read_until(descriptor: int, text: str | None) -> str:
    """The output until it contains `text`, or until the other end is closed."""
    screen, end = b"", time.monotonic() + 60
    while time.monotonic() < end and (text is None or text.encode() not in screen):
        if select.select([descriptor], [], [], 0.2)[0]:
            try:
                screen += os.read(descriptor, 65536)
            except OSError:  # the other end is closed
                break
    return screen.decode(errors="replace")
