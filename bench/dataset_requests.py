"""How many requests a client makes to learn of the four stages of a job of 47 minutes, by how it waits.

`python bench/dataset_requests.py` prints the table of docs/datasets.md. Server-guided: the intervals of
`core.jobs.polling_interval`, which the service answers as `Retry-After`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "lambdas"))

from core.jobs import History
from core.jobs.polling_interval import next_poll

STAGES = {"clean": 5 * 60, "train": 30 * 60, "predict": 10 * 60, "export": 2 * 60}
TOTAL = sum(STAGES.values())
Times = Iterator[float]


def every(seconds: float) -> Times:
    return (n * seconds for n in count(1))


def backoff(base: float, cap: float) -> Times:
    """Waits of 1, 2, 4, … seconds, at most `cap`."""
    now = 0.0
    for n in count():
        now += min(cap, base**n)
        yield now


def guided(history: History) -> Times:
    """`Retry-After` of the service, without knowing how far the job is."""
    now = 0.0
    while True:
        now += next_poll(now, history=history)
        yield now


def asked(times: Times) -> tuple[int, float]:
    """(requests until the end is seen, seconds from the end until then)."""
    for number, now in enumerate(times, 1):
        if now >= TOTAL:
            return number, now - TOTAL
    raise AssertionError("the times end")


WAYS = {
    "poll every 30 s": every(30),
    "backoff, base 2, cap 120 s": backoff(2, 120),
    "`Retry-After`, the first job of its kind": guided(History()),
    "`Retry-After`, after five such jobs": guided(History((float(TOTAL),) * 5)),
}


def table() -> str:
    lines = ["| How it waits | Requests | Wasted | Learns of the end after |", "|---|---|---|---|"]
    for name, times in WAYS.items():
        requests, late = asked(times)
        lines.append(f"| {name} | {requests} | {requests - 1} | {late:.0f} s |")
    lines.append(f"| webhooks, one a stage | 0 | 0, and {len(STAGES)} webhooks | at once |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
