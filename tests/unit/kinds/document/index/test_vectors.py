"""Vectors in S3 (kinds.document.index.vectors)."""

from __future__ import annotations

import hashlib
import json
import math
import random
import struct
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.aws.blobs import Blobs
from core.errors import SourceNotFound
from kinds.document.index.vectors import Hit, ObjectVectors, Version, pack, unpack
from tests.unit.core.memory_blobs import MemoryBlobs

float32s = st.floats(width=32, allow_nan=False, allow_infinity=False)
owners = st.from_regex(r"[a-z0-9-]{1,8}", fullmatch=True)
names = st.text(min_size=1, max_size=8) | st.text("ab/_.-", min_size=1, max_size=6)


def chunk(number: int, text: str = "") -> dict[str, Any]:
    return {"chunk": number, "text": text or f"text {number}", "start": number, "end": number + 1, "heading": ""}


def store(dimensions: int = 2, blobs: Blobs | None = None, **options: Any) -> ObjectVectors:
    return ObjectVectors(blobs or MemoryBlobs(), index="model", dimensions=dimensions, **options)


def filled(vectors: ObjectVectors, version: Version, rows: list[list[float]], per_batch: int = 2) -> Version:
    """Writes the rows in batches; returns the version with the number of batches."""
    starts = range(0, len(rows), per_batch)
    for batch, start in enumerate(starts):
        part = rows[start : start + per_batch]
        vectors.put(version, batch, part, [chunk(start + i) for i in range(len(part))])
    return Version(version.owner, version.document_id, version.version, len(starts))


# ── numbers ──────────────────────────────────────────────────────────────────────────────────────────────────


@given(
    st.integers(1, 5).flatmap(
        lambda n: st.tuples(st.just(n), st.lists(st.lists(float32s, min_size=n, max_size=n)))
    )
)
def test_pack_and_unpack(case: tuple[int, list[list[float]]]) -> None:
    """Rows of float32 are unpacked exactly, four bytes a number."""
    dimensions, rows = case
    data = pack(rows)
    assert len(data) == 4 * dimensions * len(rows)
    assert [list(row) for row in unpack(data, dimensions)] == rows


def test_byte_order() -> None:
    """The bytes are little-endian float32, which numpy and struct read."""
    data = pack([[1.0, -0.5], [0.1, 3.0]])
    assert data == struct.pack("<4f", 1.0, -0.5, 0.1, 3.0)
    assert np.frombuffer(data, dtype="<f4").reshape(-1, 2).tolist() == [list(row) for row in unpack(data, 2)]


def test_byte_order_of_other_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a big-endian machine the bytes are swapped when packing and unpacking."""
    ordinary = pack([[1.0, 2.0]])
    monkeypatch.setattr(sys, "byteorder", "big" if sys.byteorder == "little" else "little")
    turned = pack([[1.0, 2.0]])
    assert turned == struct.pack(">2f", 1.0, 2.0) if ordinary == struct.pack("<2f", 1.0, 2.0) else ordinary
    assert [list(row) for row in unpack(turned, 2)] == [[1.0, 2.0]]


@given(st.binary(max_size=40), st.integers(1, 4))
def test_incomplete_row(data: bytes, dimensions: int) -> None:
    """An incomplete row at the end is omitted."""
    assert len(unpack(data, dimensions)) == len(data) // (4 * dimensions)


def test_pack_takes_an_iterator() -> None:
    """Rows can come from an iterator."""
    assert pack(iter([[1.0], [2.0]])) == pack([[1.0], [2.0]])


# ── keys ─────────────────────────────────────────────────────────────────────────────────────────────────────


def keys_of(version: Version, batch: int = 0) -> set[str]:
    blobs = MemoryBlobs()
    store(1, blobs).put(version, batch, [[1.0]], [chunk(0)])
    return set(blobs.objects)


@given(st.lists(st.tuples(owners, names), min_size=2, max_size=2, unique=True))
def test_documents_do_not_collide(places: list[tuple[str, str]]) -> None:
    """Two documents, of one owner or two, have different keys, and neither is a prefix of the other."""
    one, two = (keys_of(Version(owner, name, "1")) for owner, name in places)
    folders = [{key.rsplit("/", 1)[0] for key in keys} for keys in (one, two)]
    assert not one & two
    assert not any(a.startswith(b) for a in one for b in folders[1])


@pytest.mark.parametrize(
    ("a", "b"),
    [(("ana", "a/b.txt"), ("ana", "a_b.txt")), (("a", "b/c"), ("a-b", "c")), (("ana", "x"), ("ana", "x/"))],
)
def test_near_collisions(a: tuple[str, str], b: tuple[str, str]) -> None:
    """Names that simpler schemes would map to one key have different keys."""
    assert not keys_of(Version(*a, "1")) & keys_of(Version(*b, "1"))


def test_keys_are_stable() -> None:
    """The key of a batch depends on owner, document, version and number only."""
    prefix = {key.rpartition(".")[0] for key in keys_of(Version("ana", "año", "01V"), 7)}
    (place,) = prefix
    index, document, version, batch = place.removeprefix("vectors/").split("/")
    assert (index, version, batch) == ("model", "01V", "0007")
    assert document == hashlib.sha256("ana/año".encode()).hexdigest()


# ── a version ────────────────────────────────────────────────────────────────────────────────────────────────


def test_interrupted_put() -> None:
    """The numbers are written last, so an interrupted batch does not exist."""
    order: list[str] = []

    class Recording(MemoryBlobs):
        def put(self, key: str, data: bytes, *, content_type: str = "") -> str:
            order.append(key.rpartition(".")[2])
            return super().put(key, data)

    vectors, version = store(2, Recording()), Version("ana", "notes", "1")
    assert not vectors.has(version, 0)
    vectors.put(version, 0, [[1.0, 0.0]], [chunk(0)])
    assert order == ["jsonl", "f32"]
    assert vectors.has(version, 0)
    assert not vectors.has(version, 1)


def test_count() -> None:
    """The vectors of a version are counted by size, over all of its batches."""
    vectors = store(3)
    filled(vectors, Version("ana", "notes", "1"), [[1.0, 0.0, 0.0]] * 5)
    filled(vectors, Version("ana", "notes", "10"), [[1.0, 0.0, 0.0]])
    assert vectors.count(Version("ana", "notes", "1")) == 5
    assert vectors.count(Version("ana", "notes", "2")) == 0


def test_put_again() -> None:
    """A batch that is written twice exists once."""
    vectors, version = store(2), Version("ana", "notes", "1")
    for _ in range(2):
        vectors.put(version, 0, [[1.0, 0.0], [0.0, 1.0]], [chunk(0), chunk(1)])
    assert vectors.count(version) == 2


def test_versions_and_delete(blobs: Blobs) -> None:
    """All versions with objects are listed. Deleting one keeps the others, also in S3."""
    vectors = store(2, blobs)
    one, two, other = (Version("ana", name, v) for name, v in (("notes", "1"), ("notes", "2"), ("note", "1")))
    for version in (one, two, other):
        filled(vectors, version, [[1.0, 0.0]] * 3)
    assert vectors.versions("ana", "notes") == [one, two]
    vectors.delete(one)
    assert vectors.versions("ana", "notes") == [two]
    assert vectors.count(two) == 3
    assert vectors.count(other) == 3
    vectors.delete(one)


# ── search ───────────────────────────────────────────────────────────────────────────────────────────────────


def brute_force(query: list[float], rows: list[tuple[str, int, list[float]]], top_k: int) -> list[float]:
    """The best scores by the definition of the dot product."""
    scores = [math.fsum(a * b for a, b in zip(query, row, strict=True)) for _, _, row in rows]
    return sorted(scores, reverse=True)[:top_k]


@settings(max_examples=40)
@given(st.integers(0, 2**32), st.integers(1, 6), st.integers(1, 12), st.integers(1, 4))
def test_exact(seed: int, dimensions: int, top_k: int, per_batch: int) -> None:
    """Search finds the same as comparing with every vector, whatever the batches."""
    chance = random.Random(seed)
    vectors, rows, versions = store(dimensions), [], []
    for name in ("a", "b", "c"):
        mine = [[chance.uniform(-1, 1) for _ in range(dimensions)] for _ in range(chance.randint(1, 7))]
        rows += [(name, number, row) for number, row in enumerate(mine)]
        versions.append(filled(vectors, Version("ana", name, "1"), mine, per_batch))
    query = [chance.uniform(-1, 1) for _ in range(dimensions)]
    hits = vectors.search(query, versions, top_k)
    assert [hit.score for hit in hits] == pytest.approx(brute_force(query, rows, top_k), abs=1e-5)
    places = {(name, number): row for name, number, row in rows}
    for hit in hits:
        row = places.pop((hit.document_id, hit.chunk))
        assert hit.score == pytest.approx(math.fsum(a * b for a, b in zip(query, row, strict=True)), abs=1e-5)
        assert hit.text == f"text {hit.chunk}"


def test_hit() -> None:
    """A hit has document, version, offsets and text. Line separators and emoji in it are kept."""
    vectors, version = store(2), Version("ana", "a/b", "7", 1)
    text = "one\u2028two\u2029three\x85four\r\nfive 👩‍🚀"
    vectors.put(version, 0, [[1.0, 0.0], [0.0, 1.0]], [chunk(0), chunk(1, text) | {"heading": "H\n"}])
    (hit,) = vectors.search([0.0, 1.0], [version], 1)
    assert hit == Hit("a/b", "7", 1, 1.0, text, 1, 2, "H\n")


def test_only_the_given_versions() -> None:
    """Only the given versions and numbers of batches are searched."""
    vectors = store(2)
    live = Version("ana", "notes", "2", 1)
    for version in (live, Version("ana", "notes", "1"), Version("ben", "notes", "2"), Version("ana", "x", "2")):
        vectors.put(
            version, 0, [[1.0, 0.0]], [chunk(0, f"{version.owner} {version.document_id} {version.version}")]
        )
    vectors.put(live, 1, [[1.0, 0.0]], [chunk(1, "beyond")])
    assert [hit.text for hit in vectors.search([1.0, 0.0], [live], 10)] == ["ana notes 2"]
    assert vectors.search([1.0, 0.0], [], 10) == []


def test_equal_scores() -> None:
    """Chunks with equal scores are in the order of the versions and of their numbers."""
    vectors = store(2)
    rows = [[1.0, 0.0], [0.0, 1.0]] * 40
    versions = [filled(vectors, Version("ana", name, "1"), rows, 100) for name in ("a", "b")]
    hits = vectors.search([1.0, 0.0], versions, 50)
    expected = [("a", chunk) for chunk in range(0, 80, 2)] + [("b", chunk) for chunk in range(0, 20, 2)]
    assert [(hit.document_id, hit.chunk) for hit in hits] == expected


def test_cache() -> None:
    """The numbers of a version are read once; texts are read only for hits."""
    blobs = MemoryBlobs()
    vectors = store(2, blobs)
    version = filled(vectors, Version("ana", "notes", "1"), [[1.0, 0.0], [0.0, 1.0]] * 4)
    for _ in range(3):
        vectors.search([1.0, 0.0], [version], 1)
    read = [key.rpartition(".")[2] for key in blobs.reads]
    assert (read.count("f32"), read.count("jsonl")) == (4, 3)


def test_limit_of_cache() -> None:
    """The oldest numbers are removed. What is larger than the cache is found all the same."""
    blobs = MemoryBlobs()
    vectors = store(2, blobs, cache_bytes=2 * 2 * 4)
    versions = [filled(vectors, Version("ana", name, "1"), [[1.0, 0.0]]) for name in "abc"]
    for version in versions:
        assert vectors.search([1.0, 0.0], [version], 1)
    blobs.reads.clear()
    vectors.search([1.0, 0.0], versions[1:], 1)
    assert not [key for key in blobs.reads if key.endswith("f32")]
    vectors.search([1.0, 0.0], versions[:1], 1)
    assert len([key for key in blobs.reads if key.endswith("f32")]) == 1
    large = filled(vectors, Version("ana", "large", "1"), [[1.0, 0.0]] * 9, 9)
    assert len(vectors.search([1.0, 0.0], [large], 9)) == 9


def test_cache_is_thread_safe() -> None:
    """Threads that read and evict concurrently do not disturb each other."""
    vectors = store(2, cache_bytes=40 * 8)
    version = filled(vectors, Version("ana", "notes", "1"), [[1.0, 0.0]] * 600, 1)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(3):
            assert len(vectors.search([1.0, 0.0], [version], 1000)) == 600
    finally:
        sys.setswitchinterval(interval)
    assert sum(matrix.nbytes for matrix in vectors._cache.values()) == vectors._cached_bytes <= 40 * 8


def test_deleted_version() -> None:
    """A version that is deleted during the search raises SourceNotFound."""
    vectors = store(2)
    version = filled(vectors, Version("ana", "notes", "1"), [[1.0, 0.0]] * 3)
    vectors.delete(version)
    with pytest.raises(SourceNotFound):
        vectors.search([1.0, 0.0], [version], 1)


def test_lines_are_ascii() -> None:
    """Texts are stored in ASCII, one line per chunk."""
    blobs = MemoryBlobs()
    store(1, blobs).put(Version("ana", "n", "1"), 0, [[1.0]], [chunk(0, "a\u2028\x85b")])
    (lines,) = (data for key, data in blobs.objects.items() if key.endswith("jsonl"))
    assert lines.isascii()
    assert json.loads(lines)["text"] == "a\u2028\x85b"
