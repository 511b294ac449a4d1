"""The language reference from first POST to last webhook on the local engine, and whose CPU time that is.

    .venv/bin/python bench/end_to_end.py

Runs what `make run` runs. Reads /proc, so Linux only.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "lambdas")]

from rich.console import Console  # noqa: E402

from local import commands, deploy, engine, showcase  # noqa: E402
from local.api import Api  # noqa: E402
from local.engine import Engine  # noqa: E402

TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(running: Engine) -> Counter[str]:
    """CPU seconds of each function's processes so far (their ended children included), and of the engine."""
    used: Counter[str] = Counter()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if os.getpgid(int(process.name)) != os.getpgid(running.pid):
                continue
            command = (process / "cmdline").read_bytes().decode().split("\0")
            times = (process / "stat").read_text().rpartition(") ")[2].split()[11:15]
        except (OSError, ProcessLookupError):
            continue
        handler = next((part for part in command if part.endswith(".handler.handler")), "engine")
        used[handler.removesuffix(".handler.handler").replace(".", "/")] += sum(map(int, times)) / TICKS
    return used


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, engine.running(Path(folder)) as running:
        begin = time.monotonic()
        outputs = deploy.synthesise_and_deploy(running)
        deployed = time.monotonic()
        api = Api(commands.api_url(running, outputs), commands.make_key(running, outputs))
        print(f"synth, bootstrap and deploy  {deployed - begin:6.1f} s")
        report(running, "82 jobs, checks, searches", lambda: index_the_reference(api))


def index_the_reference(api: Api) -> None:
    with Path(os.devnull).open("w") as nowhere:
        showcase.show(api, Console(file=nowhere))


def report(running: Engine, what: str, work: Callable[[], None]) -> None:
    """Do the work, and say how long it took and which processes used the CPU meanwhile."""
    before, begin = cpu_seconds(running), time.monotonic()
    work()
    seconds = time.monotonic() - begin
    used = cpu_seconds(running) - before
    print(f"{what:<28} {seconds:6.1f} s\n")
    total = used.total()
    print("CPU seconds while the jobs ran")
    for name, own in used.most_common():
        print(f"  {name:<20} {own:6.1f}  {own / total:4.0%}")
    print(f"  {'all':<20} {total:6.1f}, of {seconds * (os.cpu_count() or 1):.1f} there were")


if __name__ == "__main__":
    main()
