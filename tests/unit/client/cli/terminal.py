"""Runs the command on a pseudo-terminal."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from recado import cli

CLIENT = Path(cli.__file__).parents[1]


def run_on_terminal(
    arguments: list[str], *, until: str | None = None, typed: Sequence[tuple[str, str | None]] = ()
) -> tuple[int, str]:
    """Send SIGINT after `until` was printed. Returns the exit code and all output.

    `typed`: texts that are waited for before that, and what is typed then; None is SIGINT.
    """
    with _on_terminal(arguments) as (process, ours):
        screen = ""
        for awaited, keys in (*typed, *([(until, None)] if until else [])):
            screen += _read_until(ours, awaited)
            if keys is None:
                process.send_signal(signal.SIGINT)
            else:
                os.write(ours, keys.encode())
        screen += _read_until(ours, None)
    return process.wait(30), screen


@contextmanager
def _on_terminal(arguments: list[str]) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """The process, and the other end of its terminal."""
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
    yield process, ours
    os.close(ours)


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
