"""The port to providers of language models: requests, the parts of an answer, and what a provider does.

The errors of a provider are in `core.errors`. After ModelRejected or a subclass, the same request fails again.
After ModelFault (ModelThrottled, ModelUnavailable, StreamCut, MalformedAnswer), it may succeed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

Role = Literal["system", "user", "assistant", "tool"]
StopReason = Literal["end", "max_tokens", "stop_sequence", "tool_use", "content_filter"]
"""Why an answer ended. `max_tokens`: it is cut off. `content_filter`: the provider withheld the rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A call that the model asks for. `arguments`: the text that it wrote, which may not be JSON."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One turn. `tool_calls`: of an assistant; `tool_call_id`: of a `tool` turn, the call that it answers."""

    role: Role
    content: str
    tool_calls: Sequence[ToolCall] = ()
    tool_call_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A tool that the model may call. `parameters`: a JSON schema of an object."""

    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """One call. `model`: the provider's id of it. `schema`: a JSON schema that the answer must have.

    `stream`: whether text arrives as it is made; else as one part. `idempotency_key`: the same for a repetition
    whose first call may have been answered.
    """

    model: str
    messages: Sequence[Message]
    max_tokens: int
    temperature: float | None = None
    stop: Sequence[str] = ()
    schema: Mapping[str, Any] | None = None
    tools: Sequence[Tool] = ()
    require_tool: bool = False
    stream: bool = True
    idempotency_key: str | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as the provider counted them."""

    input_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class TextPart:
    """Text that follows the text before it."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """The last part of an answer. `usage`: None if the provider did not send it."""

    stop_reason: StopReason
    usage: Usage | None
    tool_calls: Sequence[ToolCall] = field(default=())


class Answer(Protocol):
    """The parts of an answer: any number of TextPart, then one End. Iteration raises the provider's errors.

    An answer without an End is never complete: iteration raises StreamCut instead of ending.
    """

    def __iter__(self) -> Iterator[TextPart | End]: ...

    def close(self) -> None:
        """Stop the call: shut down its connection, also while another thread waits for the next part."""


class Provider(Protocol):
    """`call` sends one request and never repeats it. `seconds`: until the whole answer must have arrived."""

    name: str

    def call(self, request: ModelRequest, *, seconds: float) -> Answer: ...
