"""Types of request fields that the API and the kinds share."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, StringConstraints


def encodable(text: str) -> str:
    """Raises ValueError for lone surrogates, which JSON can contain and UTF-8 cannot encode."""
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueError("the text has a lone surrogate (\\ud800 to \\udfff), which is not a character")
    return text


Text = Annotated[str, AfterValidator(encodable)]
ShortText = Annotated[Text, StringConstraints(min_length=1, max_length=256, pattern=r"^[^\x00-\x1f\x7f]+$")]


class Request(BaseModel):
    """Rejects unknown fields, so that a misspelt field is an error."""

    model_config = ConfigDict(extra="forbid")
