"""The input, the events and the result of a summary."""

from __future__ import annotations

from pydantic import BaseModel, Field, model_validator

from core.llm.options import ModelOptions, ModelResult
from core.models import Text
from kinds.document.index.catalog import DocumentName
from kinds.summary.prompts import Style


class SummaryInput(ModelOptions):
    """What to summarize: a text, an upload, or a document that is indexed."""

    text: Text | None = Field(None, min_length=1, description="Plain text, Markdown or HTML.")
    s3_key: Text | None = Field(None, max_length=1024, description="The `s3_key` that POST /uploads returned.")
    document_id: DocumentName | None = Field(None, description="A document that GET /documents lists.")
    style: Style = "paragraph"
    max_words: int = Field(150, ge=20, le=1000, description="The summary has no more words. A headline has 20.")

    @model_validator(mode="after")
    def _one_source(self) -> SummaryInput:
        if sum(source is not None for source in (self.text, self.s3_key, self.document_id)) != 1:
            raise ValueError("send exactly one of text, s3_key and document_id")
        return self


class SummaryRequested(BaseModel):
    """The job was submitted."""

    model: str
    style: Style
    max_words: int
    document_id: str | None = None


class SummaryPlanned(BaseModel):
    """The text was cut into parts. Tokens, calls and cost are upper bounds; the cost is null if it is unknown."""

    parts: int
    input_tokens: int
    calls: int
    estimated_cost_usd: float | None


class SummarySummarized(BaseModel):
    """Every part has a summary. The next step makes one of them."""

    parts: int


class Summary(ModelResult):
    """The summary, with what all calls together used. `stop_reason` is that of the last one."""

    summary: str
    parts: int
    calls: int
