"""The text of an indexed document, from its chunks (kinds.document.index.whole_text)."""

from __future__ import annotations

import random
import re
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import SourceNotFound
from kinds.document.index.catalog import Catalog
from kinds.document.index.vectors import ObjectVectors, Version
from kinds.document.index.whole_text import join, live_text
from kinds.document.reading.chunk import chunk
from tests.unit.core.jobs.memory_table import MemoryTable
from tests.unit.core.memory_blobs import MemoryBlobs
from tests.unit.examples import document

words = st.sampled_from(
    ["One.", "two", "three", "ñandú", "日本語の文。", "👩‍👩‍👧", "\n# Title\n", "- item", "x" * 30]
)
white = st.sampled_from([" ", "\n", "\n\n", "  \n \n", "\t", ""])
texts = st.lists(st.tuples(words, white), max_size=60).map(lambda pairs: "".join(a + b for a, b in pairs))


@given(texts, st.integers(5, 60), st.integers(0, 50), st.randoms(use_true_random=False))
def test_join(text: str, size: int, overlap: int, chance: random.Random) -> None:
    """The chunks of any text, in any order and with any overlap, join to the text. Gaps become newlines."""
    chunks = list(chunk(text, size=size, overlap=min(overlap, size - 1)))
    covered = {i for c in chunks for i in range(c.start, c.end)}
    inner = range(chunks[0].start, chunks[-1].end) if chunks else range(0)
    kept = "".join(text[i] if i in covered else "\0" for i in inner)
    shuffled = [asdict(c) for c in chunks]
    chance.shuffle(shuffled)
    joined = join(shuffled)
    assert joined == re.sub("\0+", "\n", kept)
    assert joined.split() == text.split()


class Index:
    """An owner's indexed documents, in memory."""

    def __init__(self) -> None:
        self.table, self.blobs = MemoryTable(), MemoryBlobs()
        self.catalog = Catalog(self.table, "jobs")

    def publish(self, version: str, text: str, **facts: Any) -> None:
        chunks = [asdict(c) for c in chunk(text, size=20, overlap=5)]
        batches = [chunks[:2], chunks[2:]]
        vectors = ObjectVectors(self.blobs, index="model-2", dimensions=2)
        for number, batch in enumerate(batches):
            vectors.put(Version("ana", "notes", version), number, [[1.0, 0.0]] * len(batch), batch)
        made = document(version=version, batches=len(batches), **facts)
        self.table.put_item(**self.catalog.publish("ana", made)["Put"])

    def read(self, owner: str = "ana") -> str:
        return live_text(self.catalog, self.blobs, owner, "notes")


def test_live_version() -> None:
    """The text is that of the version that search finds, from all of its batches."""
    index, text = Index(), "The first sentence. The second one. A third, which is the last."
    index.publish("1", "Something older, and other.")
    index.publish("2", text)
    assert index.read().split() == text.split()


def test_no_document() -> None:
    """A document that is not indexed, or is another owner's, is not found."""
    index = Index()
    index.publish("1", "text")
    with pytest.raises(SourceNotFound, match="no longer indexed"):
        index.read("bob")


def test_version_replaced_while_it_is_read() -> None:
    """If the version is replaced and deleted while it is read, the newer one is read."""
    index = Index()
    index.publish("1", "old words")
    get = index.catalog.get

    def get_then_replace(owner: str, document_id: str) -> Any:
        found = get(owner, document_id)
        if found and found.version == "1":
            index.publish("2", "new words")
            ObjectVectors(index.blobs, index="model-2", dimensions=2).delete(Version("ana", "notes", "1"))
        return found

    index.catalog.get = get_then_replace  # type: ignore[method-assign]
    assert index.read() == "new words"
