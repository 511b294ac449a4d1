"""Exact cosine search over vectors in S3: one object with numbers and one with texts per batch.

    vectors/{index}/{sha256 of owner and document}/{version}/{batch}.f32     rows of little-endian float32
    vectors/{index}/{sha256 of owner and document}/{version}/{batch}.jsonl   the chunk of each row

Objects of a live version never change, so a warm function caches them.
"""

from __future__ import annotations

import hashlib
import json
import sys
import threading
from array import array
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from core import ids
from core.aws.blobs import Blobs
from core.errors import SourceNotFound
from core.jobs import Job

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Matrix = NDArray[np.float32]

READERS = 16
CACHE_BYTES = 600_000_000  # of the search function's 1,769 MB


@dataclass(frozen=True, slots=True)
class Version:
    """A version of a document, with `batches` batches of vectors."""

    owner: str
    document_id: str
    version: str
    batches: int = 0


def version_of(job: Job) -> Version:
    """The version of the document that a job creates. Versions sort by the submission of their jobs."""
    return Version(job.owner, job.subject["document_id"], ids.ulid_of(job.job_id))


@dataclass(frozen=True, slots=True)
class Hit:
    """A chunk near the query. `score`: the cosine similarity, from -1 to 1."""

    document_id: str
    version: str
    chunk: int
    score: float
    text: str
    start: int
    end: int
    heading: str


class VectorStore(Protocol):
    """Stores vectors. A search covers exactly the given versions."""

    def put(
        self, version: Version, batch: int, vectors: Iterable[Sequence[float]], chunks: Sequence[dict[str, Any]]
    ) -> None: ...

    def has(self, version: Version, batch: int) -> bool: ...

    def count(self, version: Version) -> int: ...

    def search(self, vector: Sequence[float], versions: Sequence[Version], top_k: int) -> list[Hit]: ...

    def delete(self, version: Version) -> None: ...

    def versions(self, owner: str, document_id: str) -> list[Version]: ...


class ObjectVectors:
    """A VectorStore in the data bucket, for the index of one model."""

    def __init__(self, blobs: Blobs, *, index: str, dimensions: int, cache_bytes: int = CACHE_BYTES) -> None:
        self.index, self.dimensions = index, dimensions
        self._blobs = blobs
        self._cache: OrderedDict[str, Matrix] = OrderedDict()
        self._cache_bytes, self._cached_bytes = cache_bytes, 0
        self._lock = threading.Lock()

    def put(
        self, version: Version, batch: int, vectors: Iterable[Sequence[float]], chunks: Sequence[dict[str, Any]]
    ) -> None:
        """Write a batch. The numbers are written last: if they exist, the batch is complete."""
        prefix = self._batch(version, batch)
        lines = "".join(json.dumps(chunk) + "\n" for chunk in chunks)
        self._blobs.put(f"{prefix}.jsonl", lines.encode(), content_type="application/x-ndjson")
        self._blobs.put(f"{prefix}.f32", pack(vectors))

    def has(self, version: Version, batch: int) -> bool:
        return self._blobs.exists(f"{self._batch(version, batch)}.f32")

    def count(self, version: Version) -> int:
        """The number of vectors of this version."""
        rows = (size for key, size in self._blobs.sizes(self._prefix(version)) if key.endswith(".f32"))
        return sum(rows) // (4 * self.dimensions)

    def search(self, vector: Sequence[float], versions: Sequence[Version], top_k: int) -> list[Hit]:
        """The `top_k` nearest chunks, nearest first; equal ones in the order of the versions and chunks."""
        batches = [(version, batch) for version in versions for batch in range(version.batches)]
        with ThreadPoolExecutor(READERS) as pool:
            matrices = list(pool.map(lambda place: self._matrix(self._batch(*place)), batches))
            best = _nearest(vector, matrices, top_k)
            return list(pool.map(lambda hit: self._hit(*batches[hit[0]], row=hit[1], score=hit[2]), best))

    def chunks(self, version: Version) -> Iterator[dict[str, Any]]:
        """All chunks, in order. Raises SourceNotFound if the version was deleted."""
        for batch in range(version.batches):
            yield from map(json.loads, self._lines(version, batch))

    def chunk(self, version: Version, number: int) -> dict[str, Any]:
        """The chunk of this number. Raises SourceNotFound if the version was deleted, or has no such chunk.

        All batches of a version but the last have as many chunks as the first.
        """
        first = self._lines(version, 0)
        batch, row = divmod(number, len(first))
        lines = first if batch == 0 else self._lines(version, batch)
        if row >= len(lines):
            raise SourceNotFound(f"the document has no chunk {number}")
        chunk: dict[str, Any] = json.loads(lines[row])
        return chunk

    def of_index(self, index: str) -> ObjectVectors:
        """The texts of another index: this has no vectors of it, and so cannot search it."""
        return self if index == self.index else ObjectVectors(self._blobs, index=index, dimensions=1)

    def delete(self, version: Version) -> None:
        self._blobs.delete_all(self._prefix(version))

    def versions(self, owner: str, document_id: str) -> list[Version]:
        """All versions with objects, live or not."""
        prefix = self._document(owner, document_id)
        names = {key.removeprefix(prefix).partition("/")[0] for key in self._blobs.keys(prefix)}
        return [Version(owner, document_id, name) for name in sorted(names)]

    def _document(self, owner: str, document_id: str) -> str:
        """An owner contains no slash, so two pairs of owner and document never hash the same text."""
        digest = hashlib.sha256(f"{owner}/{document_id}".encode()).hexdigest()
        return f"vectors/{self.index}/{digest}/"

    def _prefix(self, version: Version) -> str:
        return f"{self._document(version.owner, version.document_id)}{version.version}/"

    def _lines(self, version: Version, batch: int) -> list[str]:
        return self._blobs.get(f"{self._batch(version, batch)}.jsonl").decode().splitlines()

    def _batch(self, version: Version, batch: int) -> str:
        return f"{self._prefix(version)}{batch:04d}"

    def _matrix(self, prefix: str) -> Matrix:
        import numpy as np  # only in the layer of `search`

        cached = self._cache.get(prefix)
        if cached is None:
            data = self._blobs.get(f"{prefix}.f32")
            cached = np.frombuffer(data, dtype="<f4").reshape(-1, self.dimensions)
            self._cache_matrix(prefix, cached)
        return cached

    def _cache_matrix(self, prefix: str, matrix: Matrix) -> None:
        """Cache a matrix, and remove the oldest ones while the cache is too large. Thread-safe."""
        with self._lock:
            if prefix not in self._cache:
                self._cache[prefix] = matrix
                self._cached_bytes += matrix.nbytes
            while self._cached_bytes > self._cache_bytes:
                _, oldest = self._cache.popitem(last=False)
                self._cached_bytes -= oldest.nbytes

    def _hit(self, version: Version, batch: int, *, row: int, score: float) -> Hit:
        chunk = json.loads(self._lines(version, batch)[row])
        return Hit(
            document_id=version.document_id,
            version=version.version,
            chunk=chunk["chunk"],
            score=score,
            text=chunk["text"],
            start=chunk["start"],
            end=chunk["end"],
            heading=chunk["heading"],
        )


def _nearest(vector: Sequence[float], matrices: Sequence[Matrix], top_k: int) -> list[tuple[int, int, float]]:
    """(index of the matrix, row, score) of the nearest rows."""
    import numpy as np

    if not matrices:
        return []
    query = np.asarray(vector, dtype=np.float32)
    scores = np.concatenate([matrix @ query for matrix in matrices])
    starts = np.cumsum([0, *(len(matrix) for matrix in matrices)])
    found: list[tuple[int, int, float]] = []
    for position in np.argsort(-scores, kind="stable")[:top_k]:
        place = int(np.searchsorted(starts, position, side="right")) - 1
        found.append((place, int(position - starts[place]), float(scores[position])))
    return found


def pack(vectors: Iterable[Sequence[float]]) -> bytes:
    """The vectors as rows of little-endian float32."""
    numbers = array("f", (x for vector in vectors for x in vector))
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()


def unpack(data: bytes, dimensions: int) -> list[Sequence[float]]:
    """The rows in the result of `pack`, without an incomplete last one."""
    width = 4 * dimensions
    numbers = array("f", data[: len(data) // width * width])
    if sys.byteorder == "big":
        numbers.byteswap()
    return [numbers[i : i + dimensions] for i in range(0, len(numbers), dimensions)]
