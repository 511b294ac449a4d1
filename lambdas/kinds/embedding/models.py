"""The input, the events and the result of bulk embedding."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field, model_validator

from core.models import Request, Text

MAX_TEXTS = 2048


class EmbeddingInput(Request):
    """Texts to embed: a list, or an upload of JSON Lines: strings, or objects with `text` and perhaps `id`."""

    texts: list[Text] | None = Field(None, min_length=1, max_length=MAX_TEXTS)
    s3_key: Text | None = Field(None, max_length=1024, description="The `s3_key` that POST /uploads returned.")
    max_cost_usd: float | None = Field(
        None,
        gt=0,
        le=1_000_000,
        allow_inf_nan=False,
        description="Refuses the job if it could cost more. The model's price must be known.",
    )

    @model_validator(mode="after")
    def _one_source(self) -> EmbeddingInput:
        if (self.texts is None) == (self.s3_key is None):
            raise ValueError("send either texts or s3_key")
        return self


class EmbeddingRequested(BaseModel):
    """The job was submitted. `lines`: only of a list of texts; an upload is read later."""

    model: str
    lines: int | None = None


class EmbeddingPlanned(BaseModel):
    """The lines were read. `texts`: different ones, which are embedded in batches. Tokens and cost are limits."""

    lines: int
    texts: int
    batches: int
    input_tokens: int
    estimated_cost_usd: float | None


class EmbeddingEmbedded(BaseModel):
    """The model has answered for every text. The next step writes the files."""

    lines: int
    embedded: int
    errors: int


class EmbeddingFiles(BaseModel):
    """Names of the result files. The job's `files` has a link to each."""

    parquet: Literal["embeddings.parquet"] = "embeddings.parquet"
    jsonl: Literal["embeddings.jsonl"] = "embeddings.jsonl"
    errors: Literal["errors.jsonl"] = "errors.jsonl"


class Embedding(BaseModel):
    """Every line has a vector in `parquet` and `jsonl`, in the order of the lines, or is listed in `errors`.

    `duplicates`: lines whose text an earlier line has. They have its vector and were not embedded again.
    `input_tokens`: as the model counted them, or else estimated upwards.
    """

    lines: int
    embedded: int
    duplicates: int
    errors: int
    model: str
    dimensions: int
    input_tokens: int
    cost_usd: float | None = Field(description="Null if the model's price is not known.")
    files: EmbeddingFiles
