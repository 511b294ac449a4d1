"""Routes under /documents."""

from __future__ import annotations

import json
from typing import Annotated, Any
from urllib.parse import unquote

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.api_gateway import Router
from aws_lambda_powertools.event_handler.openapi.params import Path

from core.dependencies import DAY_SECONDS, dependencies
from core.errors import NotFound
from core.http import caller, json_response, no_content
from kinds.document.dependencies import document_dependencies
from kinds.document.index.catalog import Document
from kinds.document.models import DocumentPage, DocumentView

router = Router()
MISSING = "There is no such document. GET /documents lists yours."
DocumentId = Annotated[str, Path(description="The `document_id` of the job, URL-encoded.")]


@router.get("/documents", tags=["documents"], summary="List your documents")
def page() -> Response[DocumentPage]:
    owner = caller(router, "jobs:read")
    return json_response(
        {"documents": [_view(document) for document in document_dependencies.catalog.list(owner)]}
    )


@router.get("/documents/<document_id>", tags=["documents"], summary="Get a document")
def get(document_id: DocumentId) -> Response[DocumentView]:
    return json_response(_view(_find(caller(router, "jobs:read"))))


@router.delete(
    "/documents/<document_id>",
    tags=["documents"],
    summary="Delete a document",
    responses={204: {"description": "Deleted", "content": {}}},
)
def delete(document_id: DocumentId) -> Response[Any]:
    """Search does not find it any more; its vectors are deleted within minutes. Repeating it has no effect."""
    owner = caller(router, "jobs:write")
    name = next((name for name in _names() if document_dependencies.catalog.existed(owner, name)), None)
    if name is None:
        raise NotFound(MISSING)
    version = document_dependencies.catalog.delete(owner, name, seconds=_retention_seconds())
    message = {"event": "document.deleted", "owner": owner, "document_id": name, "version": version}
    dependencies.sqs.send_message(
        QueueUrl=dependencies.settings.indexing_queue_url, MessageBody=json.dumps(message), MessageGroupId=owner
    )
    return no_content()


# A name may contain slashes, which a path parameter does not match.
router.get("/documents/.+", include_in_schema=False)(lambda: get(""))
router.delete("/documents/.+", include_in_schema=False)(lambda: delete(""))


def _find(owner: str) -> Document:
    for name in _names():
        found = document_dependencies.catalog.get(owner, name)
        if found:
            return found
    raise NotFound(MISSING)


def _names() -> tuple[str, str]:
    """The possible names in the path: API Gateway may have decoded it or not."""
    name = router.current_event["path"].removeprefix("/documents/")
    return name, unquote(name)


def _view(document: Document) -> dict[str, Any]:
    shown = ("document_id", "version", "job_id", "chunks", "characters", "media_type", "indexed_at")
    return {name: getattr(document, name) for name in shown} | {"metadata": dict(document.metadata)}


def _retention_seconds() -> int:
    """How long a job that was submitted before the deletion can exist."""
    return dependencies.settings.job_retention_days * DAY_SECONDS
