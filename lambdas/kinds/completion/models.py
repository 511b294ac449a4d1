"""The input, the result and the first event of completions."""

from __future__ import annotations

import json
import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator, model_validator

from core.llm.options import ModelOptions, ModelResult
from core.models import Request, ShortText, Text, encodable

MAX_TOKENS = 128_000
MAX_CHARACTERS = 262_144
"""Of a filled template: the most that `max_inline_bytes` can be."""
_PLACEHOLDER = re.compile(r"\{\{\s*([^{}\s]+)\s*\}\}")


class ChatMessage(Request):
    """A turn of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: Annotated[Text, StringConstraints(min_length=1, pattern=r"\S")]


class JsonSchemaFormat(Request):
    """The answer is JSON of this schema."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    type: Literal["json_schema"]
    json_schema: dict[str, Any] = Field(min_length=1, description="A JSON schema of an object.")

    @field_validator("json_schema")
    @classmethod
    def _is_json(cls, schema: dict[str, Any]) -> dict[str, Any]:
        """Python reads NaN and lone surrogates, which are no JSON."""
        encodable(json.dumps(schema, ensure_ascii=False, allow_nan=False))
        return schema


class TextFormat(Request):
    """The answer is text."""

    type: Literal["text"]


class CompletionInput(ModelOptions):
    """A call of a language model: `messages`, a `prompt`, or a `template` with its `variables`."""

    messages: list[ChatMessage] | None = Field(None, min_length=1, max_length=500)
    prompt: Annotated[Text, StringConstraints(min_length=1, pattern=r"\S")] | None = None
    template: Annotated[Text, StringConstraints(min_length=1)] | None = Field(
        None, description="A prompt with placeholders, such as `Translate {{text}} into {{language}}.`"
    )
    variables: dict[ShortText, Text] | None = Field(None, max_length=100, description="What fills the template.")
    max_tokens: int | None = Field(None, ge=1, le=MAX_TOKENS, description="Of the answer. The text is cut there.")
    temperature: float | None = Field(None, ge=0, le=2, allow_inf_nan=False)
    stop: list[Annotated[Text, StringConstraints(min_length=1, max_length=100)]] = Field(
        default_factory=list, max_length=4, description="The answer ends before any of these texts."
    )
    response_format: Annotated[JsonSchemaFormat | TextFormat, Field(discriminator="type")] | None = None
    stream: bool = Field(True, description="Send the text to WebSockets of the job as it is made.")

    @model_validator(mode="after")
    def _one_prompt(self) -> CompletionInput:
        if sum(part is not None for part in (self.messages, self.prompt, self.template)) != 1:
            raise ValueError("send one of messages, prompt or template")
        return self

    @model_validator(mode="after")
    def _variables_fill_template(self) -> CompletionInput:
        names = set(_PLACEHOLDER.findall(self.template or ""))
        given = set(self.variables or {})
        if self.variables is not None and self.template is None:
            raise ValueError("variables needs a template")
        if missing := sorted(names - given):
            raise ValueError(f"variables: the template needs {', '.join(missing)}")
        if unused := sorted(given - names):
            raise ValueError(f"variables: the template does not use {', '.join(unused)}")
        return self

    @model_validator(mode="after")
    def _not_too_long(self) -> CompletionInput:
        """Before the template is filled: a small one can become gigabytes."""
        variables = self.variables or {}
        filled = sum(len(variables[name]) for name in _PLACEHOLDER.findall(self.template or ""))
        if filled > MAX_CHARACTERS:
            raise ValueError(f"template: the variables fill {filled} characters; at most {MAX_CHARACTERS} fit")
        return self

    @model_validator(mode="after")
    def _not_blank(self) -> CompletionInput:
        if self.template is not None and not self.turns()[0]["content"].strip():
            raise ValueError("template: with these variables it is blank")
        return self

    @model_validator(mode="after")
    def _conversation(self) -> CompletionInput:
        turns = [message.role for message in self.messages or () if message.role != "system"]
        if self.messages and (turns[:1] != ["user"] or turns[-1] != "user"):
            raise ValueError(
                "messages: the first and the last message, apart from system ones, must be of the user"
            )
        return self

    def turns(self) -> list[dict[str, str]]:
        """The messages that the model receives."""
        if self.messages is not None:
            return [message.model_dump() for message in self.messages]
        variables = self.variables or {}
        text = self.prompt or _PLACEHOLDER.sub(lambda match: variables[match[1]], self.template or "")
        return [{"role": "user", "content": text}]


class CompletionRequested(BaseModel):
    """The completion was submitted."""

    model: str
    max_tokens: int


class Completed(ModelResult):
    """The model's answer."""

    text: str
