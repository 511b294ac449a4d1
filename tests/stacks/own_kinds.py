"""Synthesises the app with the kinds of this project (`shipped`), or with two more kinds (`own`).

`python -m tests.stacks.own_kinds shipped` or `own`. The two kinds have a declaration, but no construct and no file
for a state machine.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel

from core.jobs import Kind
from kinds.registry import KINDS
from tests.stacks import processes


class Asked(BaseModel):
    """The job was submitted."""

    title: str = ""


class Made(BaseModel):
    """The job is completed."""

    pages: int = 0


PHOTO_ALBUM = Kind(
    name="photo_album",
    input=Asked,
    result=Made,
    stages=("print_out",),
    events={"requested": Asked, "printed": Made},
    runs_on="machine",
)
POEM = Kind(
    name="poem",
    input=Asked,
    result=Made,
    stages=("write",),
    events={"requested": Asked, "written": Made},
    runs_on="worker",
    work=lambda attempt: {},
)
OWN: Mapping[str, Kind] = {kind.name: kind for kind in (PHOTO_ALBUM, POEM)}


SHIPPED: Mapping[str, Kind] = {
    name: KINDS[name]
    for name in (
        "agent",
        "completion",
        "dataset",
        "document",
        "embedding",
        "fine_tune",
        "replay",
        "summary",
    )
}
"""The kinds of this project. The lists in these tests do not apply to kinds that somebody adds."""

SETS: Mapping[str, Mapping[str, Kind]] = {"shipped": SHIPPED, "own": {**SHIPPED, **OWN}}


def assembly(name: str, cache: Path, sources: list[Path]) -> Path:
    """The synthesised app, from `cache` if the sources have not changed."""
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in [*sources, Path(__file__)]))
    target = cache / digest.hexdigest()[:16]
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (target / "manifest.json").exists():
            for old in cache.glob("*/"):
                shutil.rmtree(old)
            done = processes.synthesise("own_kinds", target, name)
            assert done.returncode == 0, done.stderr
    return target


def main() -> None:
    import aws_cdk as cdk

    from app import build

    app = cdk.App()
    build(app, kinds=tuple(SETS[sys.argv[1]].values()))
    app.synth()


if __name__ == "__main__":
    main()
