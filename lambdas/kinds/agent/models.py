"""The input, the first event and the result of an agent's job."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field, StringConstraints

from core.llm.options import ModelOptions, ModelResult
from core.models import ShortText, Text
from kinds.document.index.catalog import SearchFilter

MAX_QUESTION = 4000
MAX_STEPS = 20


class AgentInput(ModelOptions):
    """A question about your documents. An agent searches them, reads, and answers with citations."""

    question: Annotated[Text, StringConstraints(min_length=1, max_length=MAX_QUESTION, pattern=r"\S")]
    filter: SearchFilter = Field(
        default_factory=SearchFilter, description="Only these documents are searched and read."
    )
    max_steps: int | None = Field(
        None, ge=1, le=MAX_STEPS, description="Calls of tools at most, the first search included; 4 if absent."
    )
    session: ShortText | None = Field(
        None, description="Your name of a conversation, or that of an earlier result: its turns are seen."
    )


class AgentRequested(BaseModel):
    """The question was submitted."""

    model: str
    max_steps: int
    session: str


class CitationView(BaseModel):
    """`quote` is the document's text from `start` to `end` (characters), in this chunk.

    It is evidence for the answer from `answer_start` to `answer_end`. `overlap`: the share of the answer's content
    words that it has.
    """

    document_id: str
    version: str
    chunk: int
    start: int
    end: int
    quote: str
    answer_start: int
    answer_end: int
    overlap: float


class AgentAnswer(ModelResult):
    """The answer, with evidence that was chosen and checked by code."""

    answer: str
    citations: list[CitationView]
    evidence: Literal["all", "some", "none"] = Field(description="How much of the answer has citations.")
    unsupported: list[str] = Field(description="The sentences of the answer without a citation.")
    tool_calls: int
    session: str = Field(description="Send it with the next question to go on.")
