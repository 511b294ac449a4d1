"""POST /search: the chunks nearest to a question, in any language that the model knows."""

from __future__ import annotations

import functools
from dataclasses import asdict, dataclass
from typing import Any

from aws_lambda_powertools.event_handler import APIGatewayRestResolver, Response
from aws_lambda_powertools.event_handler.api_gateway import Router

from core.aws import clients, settings
from core.aws.blobs import Blobs
from core.http import answer, caller, resolver
from kinds.document.index import embedding
from kinds.document.index.catalog import Catalog
from kinds.document.index.search import Filter, search
from kinds.document.index.vectors import ObjectVectors
from kinds.document.models import SearchAnswer, SearchRequest

router = Router()


@dataclass(frozen=True)
class Settings:
    jobs_table: str
    data_bucket: str
    embedding: str
    embedding_model: str
    embedding_dimensions: int
    cors_origins: str


@dataclass(frozen=True, slots=True)
class Dependencies:
    catalog: Catalog
    vectors: ObjectVectors
    embedder: embedding.Embedder


@functools.cache
def config() -> Settings:
    return settings.load(Settings)


@functools.cache
def dependencies() -> Dependencies:
    model, dimensions = config().embedding_model, config().embedding_dimensions
    return Dependencies(
        Catalog(clients.dynamodb(), config().jobs_table),
        ObjectVectors(
            Blobs(clients.s3(), config().data_bucket),
            index=embedding.index_name(model, dimensions),
            dimensions=dimensions,
        ),
        embedding.make(config().embedding, model=model, dimensions=dimensions, client=clients.client),
    )


@router.post("/search", tags=["documents"], summary="Find the nearest chunks of your documents")
def find(request: SearchRequest) -> Response[SearchAnswer]:
    owner = caller(router, "search")
    only = Filter(document_ids=tuple(request.filter.document_ids), metadata=request.filter.metadata)
    hits = search(
        request.query,
        owner=owner,
        top_k=request.top_k,
        only=only,
        index=dependencies().vectors.index,
        catalog=dependencies().catalog,
        store=dependencies().vectors,
        embedder=dependencies().embedder,
    )
    return answer({"hits": [asdict(hit) for hit in hits]})


@functools.cache
def app() -> APIGatewayRestResolver:
    return resolver(config().cors_origins, router)


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    return app().resolve(event, context)
