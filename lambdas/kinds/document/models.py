"""The requests and responses under /documents and /search."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, Field, StringConstraints

from core.models import Request, encodable
from kinds.document.index.catalog import SearchFilter


class DocumentView(BaseModel):
    """A document that search finds."""

    document_id: str
    version: str
    job_id: str
    chunks: int
    characters: int
    media_type: str
    indexed_at: str
    metadata: dict[str, str]


class DocumentPage(BaseModel):
    documents: list[DocumentView]


class SearchRequest(Request):
    """A query in any language."""

    query: Annotated[
        str,
        # stripped before the length is checked
        StringConstraints(min_length=1, max_length=8000, strip_whitespace=True),
        AfterValidator(encodable),
    ]
    top_k: int = Field(10, ge=1, le=100)
    filter: SearchFilter = Field(default_factory=SearchFilter)


class SearchHit(BaseModel):
    """A chunk near the query. `score`: the cosine similarity."""

    document_id: str
    version: str
    chunk: int
    score: float
    text: str
    start: int
    end: int
    heading: str


class SearchAnswer(BaseModel):
    hits: list[SearchHit]
