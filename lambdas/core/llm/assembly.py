"""Answers assembled from their pieces, in the same way for every provider."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import ParamSpec

from core.errors import MalformedAnswer
from core.llm.provider import End, StopReason, TextPart, ToolCall, Usage
from core.llm.running_call import Part

P = ParamSpec("P")
MAX_COUNT = 1_000_000_000
"""More tokens than any call has."""


def reads_answer(read: Callable[P, Iterator[Part]]) -> Callable[P, Iterator[Part]]:
    """Decorator of a generator that reads an answer: one that has another form than the API's is malformed."""

    @functools.wraps(read)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> Iterator[Part]:
        try:
            for part in read(*args, **kwargs):
                if isinstance(part, TextPart) and not isinstance(part.text, str):
                    raise TypeError("the text is not a string")
                yield part
        except (AttributeError, KeyError, TypeError) as error:
            raise MalformedAnswer("the answer does not have the form of the API", billed=True) from error

    return wrapper


def usage_of(given: object, made: object) -> Usage | None:
    """The usage with these counts of tokens, None if they cannot be: a negative one would lift the rate limit."""
    if not all(isinstance(count, int) and 0 <= count <= MAX_COUNT for count in (given, made)):
        return None
    return Usage(given, made)  # type: ignore[arg-type]


@dataclass(slots=True)
class _Pieces:
    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)


class ToolCalls:
    """Tool calls. The pieces of parallel calls may alternate: an index tells which call they belong to."""

    def __init__(self) -> None:
        self._calls: list[_Pieces] = []
        self._by_index: dict[int, _Pieces] = {}

    def add(self, index: int, *, id: str = "", name: str = "", arguments: str = "") -> None:
        """Add a piece. Another id at the same index begins another call: some servers give all calls index 0."""
        call = self._by_index.get(index)
        if call is None or (id and call.id and id != call.id):
            call = self._by_index[index] = _Pieces()
            self._calls.append(call)
        call.id, call.name = id or call.id, name or call.name
        call.arguments.append(arguments)

    def end(self, reason: StopReason, usage: Usage | None, *, max_tokens: int) -> End:
        """The End of the answer.

        It has tool calls only if its reason is `tool_use`: those of an answer that is cut off may be incomplete. A
        server may say `tool_use` for such an answer, too: arguments that are not JSON after `max_tokens` tokens.
        """
        calls = tuple(_tool_call(pieces) for pieces in self._calls)
        if calls and reason in ("end", "stop_sequence", "tool_use"):
            cut = usage is not None and usage.output_tokens >= max_tokens and not all(map(_has_json, calls))
            reason = "max_tokens" if cut else "tool_use"
        return End(stop_reason=reason, usage=usage, tool_calls=calls if reason == "tool_use" else ())


def _tool_call(pieces: _Pieces) -> ToolCall:
    """The call. Providers send no text at all for a call without arguments."""
    arguments = "".join(pieces.arguments).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return ToolCall(id=pieces.id, name=pieces.name, arguments=arguments or "{}")


def _has_json(call: ToolCall) -> bool:
    try:
        json.loads(call.arguments)
    except ValueError:
        return False
    return True
