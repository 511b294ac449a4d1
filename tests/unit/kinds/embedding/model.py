"""A model for tests of bulk embeddings, and jobs of the kind."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from core.aws.blobs import Blobs
from core.jobs import Job, JobStore
from kinds.document.index.embedding import Embedded, SecondsLeft, Vector
from kinds.embedding.kind import EMBEDDING
from tests.unit.examples import job

EXECUTION = "arn:execution"
MODEL = "bedrock/amazon.titan-embed-text-v2:0"


class FakeEmbedder:
    """Embeds a text as its length. `errors`: what its next calls raise. `paid`: how often each was embedded."""

    model, dimensions = "amazon.titan-embed-text-v2:0", 2

    def __init__(self) -> None:
        self.errors: dict[str, list[BaseException]] = {}
        self.paid: Counter[str] = Counter()

    def embed(self, texts: Sequence[str], *, seconds_left: SecondsLeft) -> Iterator[Vector]:
        raise NotImplementedError

    def embed_text(self, text: str, *, seconds_left: SecondsLeft, max_faults: int) -> Embedded:
        if self.errors.get(text):
            raise self.errors[text].pop(0)
        self.paid[text] += 1
        return Embedded([float(len(text)), 0.0], input_tokens=len(text))


def submitted(store: JobStore, blobs: Blobs, data: bytes, **given: Any) -> Job:
    """A job about an upload with this content."""
    etag = blobs.put("uploads/ana/upl_1/a", data)
    source = {"source_key": "uploads/ana/upl_1/a", "etag": etag, "bytes": len(data)}
    return store.submit(
        EMBEDDING, job(kind="embedding", at=time.time(), input={"model": MODEL, **source, **given})
    ).job
