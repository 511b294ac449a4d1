"""Embeddings a second at batch sizes: what a batch costs beside the calls, the local model, and the export.

    .venv/bin/python bench/embeddings.py [--quick]

Seconds of CPU, with objects in memory. The model in the first table answers at once, so its figures are the
project's own work: read the texts, read 1,024 numbers of JSON a text, check and store them. A call of Amazon Titan
takes some 0.1 s, and each batch some 0.3 s for the queue and the state machine: "with Titan" adds both.
"""

from __future__ import annotations

import io
import json
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "lambdas")]

from core.aws.blobs import Blobs  # noqa: E402
from kinds.document.index.embedding import BedrockEmbedder, LocalEmbedder  # noqa: E402
from kinds.embedding.batches import embed  # noqa: E402
from kinds.embedding.export import Vectors, write_files  # noqa: E402
from kinds.embedding.files import Outcome, read_texts, write_outcome, write_plan  # noqa: E402
from kinds.embedding.lines import read  # noqa: E402
from kinds.embedding.planning import batches_of, tokens_of  # noqa: E402
from tests.unit.core.memory_blobs import MemoryBlobs  # noqa: E402

QUICK = "--quick" in sys.argv
TEXTS = 100 if QUICK else 2000
LOCAL_TEXTS = 4 if QUICK else 400
DIMENSIONS, LOCAL_DIMENSIONS = 1024, 512
SIZES = (1, 10, 100, 1000)
CALL_SECONDS, BATCH_SECONDS = 0.1, 0.3


class Titan:
    """Answers at once, always the same."""

    def __init__(self) -> None:
        vector = [random.Random(7).uniform(-0.1, 0.1) for _ in range(DIMENSIONS)]
        self._answer = json.dumps({"embedding": vector, "inputTextTokenCount": 9}).encode()

    def invoke_model(self, **request: Any) -> dict[str, Any]:
        return {"body": io.BytesIO(self._answer)}


def endless() -> float:
    return 1e9


def cpu(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def batches(data: bytes) -> None:
    print(f"{TEXTS:,} texts, {DIMENSIONS} dimensions; there are at most 400 batches")
    print(f"{'batch':>8}{'batches':>10}{'own work/s':>12}{'with Titan/s':>14}")
    embedder = BedrockEmbedder(cast(Any, Titan()), model="titan", dimensions=DIMENSIONS)
    for size in SIZES:
        blobs, found = cast(Blobs, MemoryBlobs()), read(data)
        sizes = batches_of([tokens_of(text) for text in found.texts], texts=size, most_tokens=10**9)
        write_plan(blobs, "job", found, sizes)

        def work(blobs: Blobs = blobs, count: int = len(sizes)) -> None:
            for batch in range(count):
                outcome = Outcome()
                embed(read_texts(blobs, "job", batch), outcome, embedder, seconds_left=endless)
                write_outcome(blobs, "job", batch, outcome)

        own = cpu(work)
        waiting = CALL_SECONDS * TEXTS + BATCH_SECONDS * len(sizes)
        print(f"{size:>8,}{len(sizes):>10,}{TEXTS / own:>12,.0f}{TEXTS / (own + waiting):>14.1f}")


def local() -> None:
    embedder = LocalEmbedder(model="use", dimensions=LOCAL_DIMENSIONS)
    texts = [f"Invoice {number} was paid in the month after it was sent." for number in range(LOCAL_TEXTS)]
    print(f"\nThe local model, {LOCAL_TEXTS} texts of 11 words\n{'a call':>8}{'texts/s':>12}")
    for size in (1, 10, 100):
        groups = [texts[at : at + size] for at in range(0, len(texts), size)]
        taken = cpu(lambda groups=groups: [list(embedder.embed(group, seconds_left=endless)) for group in groups])  # type: ignore[misc]
        print(f"{size:>8}{LOCAL_TEXTS / taken:>12,.0f}")


def export(data: bytes) -> None:
    found = read(data)
    row = [random.Random(7).uniform(-0.1, 0.1) for _ in range(DIMENSIONS)]
    with TemporaryDirectory() as folder, Vectors(Path(folder) / "vectors", DIMENSIONS) as vectors:
        vectors.add(Outcome([row] * len(found.texts)))
        taken = cpu(lambda: write_files(found.lines, vectors, Path(folder)))
        sizes = {
            path.suffix[1:]: path.stat().st_size / len(found.lines) for path in Path(folder).glob("embeddings.*")
        }
    print(
        f"\nExport: {len(found.lines) / taken:,.0f} lines/s; bytes a line: "
        + str({k: round(v) for k, v in sizes.items()})
    )


def main() -> None:
    data = "".join(
        json.dumps(f"Text number {number}, and some more words.") + "\n" for number in range(TEXTS)
    ).encode()
    batches(data)
    local()
    export(data)


if __name__ == "__main__":
    main()
