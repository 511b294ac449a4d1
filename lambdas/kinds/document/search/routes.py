"""POST /search: the chunks nearest to a query, in any language that the model supports."""

from __future__ import annotations

from dataclasses import asdict

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.api_gateway import Router

from core.http import caller, json_response
from kinds.document.dependencies import document_dependencies
from kinds.document.index.search import Filter, search
from kinds.document.models import SearchAnswer, SearchRequest

router = Router()


@router.post("/search", tags=["documents"], summary="Search your documents")
def find(request: SearchRequest) -> Response[SearchAnswer]:
    owner = caller(router, "search")
    only = Filter(document_ids=tuple(request.filter.document_ids), metadata=request.filter.metadata)
    hits = search(
        request.query,
        owner=owner,
        top_k=request.top_k,
        only=only,
        index=document_dependencies.vectors.index,
        catalog=document_dependencies.catalog,
        store=document_dependencies.vectors,
        embedder=document_dependencies.embedder,
    )
    return json_response({"hits": [asdict(hit) for hit in hits]})
