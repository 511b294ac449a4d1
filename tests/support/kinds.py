"""What the tests of all kinds submit."""

from __future__ import annotations

from typing import Any

from kinds.registry import KINDS
from tests.support.service import Service

DEFAULT_DEADLINE = 4 * 3600.0
DATASET = b"".join(b'{"prompt": "What is %d?", "completion": "A number."}\n' % n for n in range(40))

ORDERS = b"order,price,region,returned\n" + b"".join(
    b"o-%d,%d.5,%s,%s\n" % (n, n % 17, [b"north", b"south", b"east"][n % 3], b"yes" if n % 17 > 11 else b"no")
    for n in range(160)
)


def deadline(kind: str) -> float:
    """How many seconds a job of this kind may take: its own, or the default of `job_deadline_minutes`."""
    own = KINDS[kind].deadline
    return own.total_seconds() if own else DEFAULT_DEADLINE


def example_input(service: Service, kind: str) -> dict[str, Any]:
    """The example of the kind's declaration. If it names a file, one is uploaded."""
    given = dict(KINDS[kind].example)
    if kind == "dataset":
        return given | {"s3_key": service.upload(ORDERS, content_type="text/csv")}
    if "s3_key" in given:
        given["s3_key"] = service.upload(b"One two three.", content_type="text/plain")
    if "dataset" in given:
        given["dataset"] = service.upload(DATASET, content_type="application/jsonl")
    return given
