"""Stage 3: writes the vectors of all lines as Parquet and as JSON Lines, and the lines without one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from core.aws import errors as aws_errors
from core.aws.blobs import results_of, work_folder
from core.dependencies import dependencies
from core.errors import CountMismatch, JobClosed
from core.jobs import Job, begin, step
from core.jobs.machine import require_lease
from core.llm.prices import cost
from core.llm.provider import Usage
from kinds.document.dependencies import document_dependencies
from kinds.embedding.export import Vectors, write_files
from kinds.embedding.files import NDJSON, read_lines, read_outcome
from kinds.embedding.kind import EMBEDDING
from kinds.embedding.lines import Line
from kinds.embedding.models import Embedding, EmbeddingFiles

FILES = EmbeddingFiles()
CONTENT_TYPES = {FILES.parquet: "application/vnd.apache.parquet", FILES.jsonl: NDJSON, FILES.errors: NDJSON}


@aws_errors.raises_unavailable
def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    jobs, lease = dependencies.jobs, event["execution"]
    job = jobs.apply(event["job_id"], begin(EMBEDDING, stage="export", lease=lease))
    with TemporaryDirectory() as folder:
        result = _export(job, event["batches"], Path(folder), lease=lease)
    try:
        require_lease(jobs.get(job.job_id), lease)
    except JobClosed:  # canceled and cleaned up while the files were written
        _delete_files(job)
        raise
    return result.model_dump()


def _export(job: Job, batches: int, folder: Path, *, lease: str) -> Embedding:
    lines, dimensions = (
        read_lines(dependencies.blobs, job.job_id),
        document_dependencies.settings.embedding_dimensions,
    )
    with Vectors(folder / "vectors.f32", dimensions) as vectors:
        for batch in range(batches):
            vectors.add(read_outcome(dependencies.blobs, job.job_id, batch, dimensions=dimensions))
        result = _result(job, lines, vectors)
        facts: dict[str, Any] = {"lines": result.lines, "embedded": result.embedded, "errors": result.errors}
        dependencies.jobs.apply(job.job_id, step(verb="embedded", lease=lease, **facts))
        write_files(lines, vectors, folder)
    for name, content_type in CONTENT_TYPES.items():
        with (folder / name).open("rb") as file:
            dependencies.blobs.put(f"{results_of(job.owner, job.job_id)}{name}", file, content_type=content_type)
    return result


def _result(job: Job, lines: Sequence[Line], vectors: Vectors) -> Embedding:
    texts = [line.text for line in lines if line.text is not None]
    if vectors.texts != len(set(texts)):
        raise CountMismatch(f"There are {len(set(texts))} texts, but the model answered for {vectors.texts}.")
    embedded = [text for text in texts if vectors.has(text)]
    return Embedding(
        lines=len(lines),
        embedded=len(embedded),
        duplicates=len(texts) - len(set(texts)),
        errors=len(lines) - len(embedded),
        model=job.input["model"],
        dimensions=vectors.dimensions,
        input_tokens=vectors.input_tokens,
        cost_usd=cost(job.input["model"], Usage(vectors.input_tokens, 0)),
        files=FILES,
    )


def _delete_files(job: Job) -> None:
    for prefix in (work_folder(job.job_id), results_of(job.owner, job.job_id)):
        dependencies.blobs.delete_all(prefix)
