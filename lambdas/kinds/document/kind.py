"""Documents: their text is extracted, cut into chunks and embedded, and search finds it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, Field, model_validator

from core.errors import Superseded
from core.events import timestamp
from core.jobs import Completion, Inputs, Job, Kind, Services
from core.models import Request, Text
from kinds.document.index.catalog import Catalog, Document, DocumentName
from kinds.document.index.vectors import ObjectVectors, version_of

if TYPE_CHECKING:
    from aws_lambda_powertools.event_handler.api_gateway import Router


# ── input and events ────────────────────────────────────────────────────────────────────────────────────


class DocumentInput(Request):
    """A document: its text, or the key of an upload."""

    text: Text | None = Field(None, description="The document itself: plain text, Markdown or HTML.")
    s3_key: Text | None = Field(None, max_length=1024, description="The `s3_key` that POST /uploads returned.")
    document_id: DocumentName | None = Field(
        None,
        description="Your name for the document. A later job with the same name replaces the document.",
    )

    @model_validator(mode="after")
    def _one_source(self) -> DocumentInput:
        if (self.text is None) == (self.s3_key is None):
            raise ValueError("send either text or s3_key")
        return self


class DocumentUploaded(BaseModel):
    """The document was submitted."""

    bytes: int


class DocumentChunked(BaseModel):
    """The text was cut into chunks, which are embedded in batches."""

    chunks: int
    batches: int
    characters: int


class DocumentEmbedded(BaseModel):
    """All chunks have vectors in this index."""

    vectors: int
    index: str


class DocumentIndexed(BaseModel):
    """Search finds the document."""

    document_id: str
    version: str
    media_type: str
    characters: int
    chunks: int


# ── hooks ────────────────────────────────────────────────────────────────────────────────────────────────


def _prepare(request: DocumentInput, inputs: Inputs) -> Mapping[str, Any]:
    if request.text is not None:
        source = inputs.keep_text(request.text, field="input.text")
    else:
        source = inputs.pin_upload(request.s3_key or "", field="input.s3_key")
    return {"document_id": request.document_id or inputs.job_id, **source}


def _execution_input(job: Job) -> Mapping[str, Any]:
    version = version_of(job)
    return {
        "document_id": version.document_id,
        "version": version.version,
        "source_key": job.input["source_key"],
    }


def _publish(job: Job, result: Mapping[str, Any], services: Services) -> Completion:
    """Makes this version the live one, unless a newer version or deletion was written first."""
    version = version_of(job)
    document = Document(
        document_id=version.document_id,
        version=version.version,
        job_id=job.job_id,
        index=result["index"],
        batches=result["batches"],
        chunks=result["chunks"],
        characters=result["characters"],
        media_type=result["media_type"],
        indexed_at=timestamp(time.time()),
        metadata=job.metadata,
    )
    return Completion(
        result={name: result[name] for name in DocumentIndexed.model_fields},
        writes=[_catalog(services).publish(job.owner, document)],
        on_condition_failed=Superseded("A newer version of this document was indexed first."),
    )


def _clean_up(job: Job, services: Services) -> None:
    """Delete the versions that the live one replaced, or the version of a job that did not become the live one.

    After a completed job, a newer version may be in progress and is not deleted.
    """
    own, live = version_of(job), _catalog(services).get(job.owner, job.subject["document_id"])
    if job.status == "completed":
        if live:
            _delete_versions(services, own.owner, own.document_id, lambda version: version < live.version)
    elif live is None or live.version != own.version:
        _delete_versions(services, own.owner, own.document_id, lambda version: version == own.version)


def _on_message(message: Mapping[str, Any], services: Services) -> None:
    """`document.deleted`, sent by the route: delete the versions before this one."""
    _delete_versions(
        services, message["owner"], message["document_id"], lambda version: version < str(message["version"])
    )


def _delete_versions(services: Services, owner: str, document_id: str, condition: Callable[[str], bool]) -> None:
    """Delete versions from all indexes: the model may have been changed since."""
    for index in services.blobs.folders("vectors/"):
        store = ObjectVectors(services.blobs, index=index, dimensions=1)
        for version in store.versions(owner, document_id):
            if condition(version.version):
                store.delete(version)


def _catalog(services: Services) -> Catalog:
    return Catalog(services.dynamodb, services.jobs_table)


def _embed(job: Job, message: Mapping[str, Any], seconds_left: Callable[[], float]) -> None:
    from kinds.document.batches import embed  # only the worker has its packages

    embed(job, message, seconds_left)


def _routes() -> Sequence[Router]:
    from kinds.document.routes import router  # only the API has its packages

    return (router,)


def _function_routes() -> Sequence[Router]:
    from kinds.document.search.routes import router  # only for the OpenAPI document

    return (router,)


DOCUMENT = Kind(
    name="document",
    input=DocumentInput,
    result=DocumentIndexed,
    subject="document_id",
    stages=("validate", "chunk", "embed", "store"),
    events={
        "uploaded": DocumentUploaded,
        "chunked": DocumentChunked,
        "embedded": DocumentEmbedded,
        "indexed": DocumentIndexed,
    },
    runs_on="machine",
    example={"text": "# The house\n\nThe cellar key hangs behind the door."},
    headline=("chunks",),
    prepare=_prepare,
    execution_input=_execution_input,
    on_batch=_embed,
    on_complete=_publish,
    on_ended=_clean_up,
    on_message=_on_message,
    routes=_routes,
    function_routes=_function_routes,
)
