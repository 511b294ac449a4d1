"""How long the evidence for an answer takes to find, beside splitting the same texts into words, and how it grows.

    python bench/citations.py

Milliseconds of CPU, the best of five runs, for an answer of 16,000 characters and 40 passages of 2,000, and for
four times as much. The reference is the language reference that Python carries; the shapes are the worst that
somebody could send.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "lambdas"))

from kinds.agent import words
from kinds.agent.citations import find
from kinds.agent.passages import Passage
from local.corpus import reference

ANSWER, PASSAGE, PASSAGES = 16_000, 2_000, 40  # characters, characters, number
SHAPES = {
    "one-word sentences": "A. ",
    "one-word lines": "a\n",
    "numbers": "A1 ",
    "no space (zh, ja)": "図書館は火曜日に開きます。入場は無料です。",
    "no sentence": "word ",
    "full stops": ".",
    "white space": " \n",
    "marks of items": "- ",
}


def passages(text: str, size: int) -> list[Passage]:
    return [
        Passage(document_id="d", version="", chunk=n, start=0, end=size, text=part, heading="")
        for n in range(PASSAGES)
        if (part := text[n * size : (n + 1) * size])
    ]


def milliseconds(run: Callable[[], object]) -> float:
    def once() -> float:
        started = time.process_time()
        run()
        return 1000 * (time.process_time() - started)

    return min(once() for _ in range(5))


def report(name: str, text: str) -> None:
    once, fourfold = (
        milliseconds(lambda times=times: find(text[: ANSWER * times], passages(text, PASSAGE * times)))
        for times in (1, 4)
    )
    split = milliseconds(lambda: [words.of(text[:ANSWER]), *(words.of(p.text) for p in passages(text, PASSAGE))])
    print(
        f"{name:20} {once:7.1f} ms  {once / max(split, 0.001):6.1f} x words  four times: {fourfold / once:5.1f} x"
    )


if __name__ == "__main__":
    report("reference", "".join(reference().values()))
    for name, shape in SHAPES.items():
        report(name, shape * (4 * PASSAGE * PASSAGES // len(shape)))
