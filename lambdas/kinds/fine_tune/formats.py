"""The formats of training examples: each is read into an `Example`, and written in the format of the base model.

- `prompt/completion`: `{"prompt": "…", "completion": "…"}`
- `messages`: `{"system": "…", "messages": [{"role": "user", "content": "…"}, …]}`; the first message may be the
  system's, as OpenAI has it
- `bedrock-conversation-2024`: `{"schemaVersion": "bedrock-conversation-2024", "system": [{"text": "…"}],
  "messages": [{"role": "user", "content": [{"text": "…"}]}, …]}`

https://docs.aws.amazon.com/bedrock/latest/userguide/model-customization-prepare.html
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Format = Literal["prompt/completion", "messages", "bedrock-conversation-2024"]
PROMPT: Format = "prompt/completion"
MESSAGES: Format = "messages"
CONVERSATION: Format = "bedrock-conversation-2024"
FIELDS: Mapping[Format, frozenset[str]] = {
    PROMPT: frozenset({"prompt", "completion"}),
    MESSAGES: frozenset({"system", "messages"}),
    CONVERSATION: frozenset({"schemaVersion", "system", "messages"}),
}
UNKNOWN_FORMAT = "has neither prompt and completion nor messages"

Note = Callable[[str, str], None]
"""Called with the field and the message of each error."""


@dataclass(frozen=True, slots=True)
class Example:
    """`turns`: texts of user and assistant in turn, the user's first and the assistant's last."""

    system: str
    turns: tuple[str, ...]


def format_of(line: Mapping[str, Any]) -> Format | None:
    """What the fields of a line say; None if they belong to no format."""
    if "messages" in line:
        return CONVERSATION if "schemaVersion" in line else MESSAGES
    return PROMPT if line.keys() & FIELDS[PROMPT] else None


def read(line: Mapping[str, Any], form: Format, note: Note) -> Example | None:
    """The example, or None after all its errors were noted."""
    errors: list[str] = []

    def noted(field: str, message: str) -> None:
        errors.append(field)
        note(field, message)

    for name in sorted(line.keys() - FIELDS[form]):
        noted(name[:60], f"is not a field of the format {form}; remove it")
    if form == PROMPT:
        example = Example("", tuple(_text(line.get(name), name, noted) for name in ("prompt", "completion")))
    else:
        if line.get("schemaVersion", CONVERSATION) != CONVERSATION:
            noted("schemaVersion", f"must be {CONVERSATION}")
        example = _conversation(line, form, noted)
    return None if errors else example


def write(example: Example, form: Format) -> dict[str, Any]:
    """The line. Raises ValueError if the format has no place for all turns."""
    if form == PROMPT:
        if len(example.turns) > 2:
            raise ValueError("has several questions, but the model takes one prompt and one completion a line")
        prompt, completion = example.turns
        return {"prompt": f"{example.system}\n\n{prompt}" if example.system else prompt, "completion": completion}
    written = _written if form == CONVERSATION else str
    roles = ("user", "assistant")
    messages = [{"role": roles[n % 2], "content": written(text)} for n, text in enumerate(example.turns)]
    system = {"system": written(example.system)} if example.system else {}
    version = {"schemaVersion": CONVERSATION} if form == CONVERSATION else {}
    return {**version, **system, "messages": messages}


def _written(text: str) -> list[dict[str, str]]:
    return [{"text": text}]


def _conversation(line: Mapping[str, Any], form: Format, note: Note) -> Example:
    content = _blocks if form == CONVERSATION else _text
    system = content(line["system"], "system", note) if "system" in line else ""
    messages = line["messages"]
    if not isinstance(messages, list) or not messages:
        note("messages", "must be a list of at least one question and its answer")
        return Example(system, ())
    first = 0
    if form == MESSAGES and isinstance(messages[0], Mapping) and messages[0].get("role") == "system":
        first = 1
        if system:
            note("messages[0].role", "is a second system text; give one")
        system = _message(messages[0], 0, "system", content, note)
    turns = tuple(
        _message(message, n, "assistant" if (n - first) % 2 else "user", content, note)
        for n, message in enumerate(messages[first:], first)
    )
    if not turns or len(turns) % 2:
        note(f"messages[{len(messages) - 1}]", "is the last message, and must be the assistant's")
    return Example(system, turns)


def _message(message: Any, n: int, role: str, content: Callable[[Any, str, Note], str], note: Note) -> str:
    place = f"messages[{n}]"
    if not isinstance(message, Mapping):
        note(place, "must be an object with role and content")
        return ""
    for name in sorted(message.keys() - {"role", "content"}):
        note(f"{place}.{name[:60]}", "is not a field of a message; remove it")
    if "role" not in message:
        note(f"{place}.role", f"is missing; {role} is expected")
    elif message["role"] != role:
        note(f"{place}.role", f"must be {role}: user and assistant take turns, and the user begins")
    return content(message.get("content"), f"{place}.content", note)


def _blocks(value: Any, place: str, note: Note) -> str:
    """The texts of a list of blocks, joined."""
    if not isinstance(value, list) or not value:
        note(place, 'must be a list such as [{"text": "…"}]')
        return ""
    texts = []
    for n, block in enumerate(value):
        if not isinstance(block, Mapping) or block.keys() != {"text"}:
            note(f"{place}[{n}]", 'must be {"text": "…"}; other content is not supported')
        else:
            texts.append(_text(block["text"], f"{place}[{n}].text", note))
    return "\n".join(texts)


def _text(value: Any, place: str, note: Note) -> str:
    if value is None:
        note(place, "is missing")
    elif not isinstance(value, str):
        note(place, "must be a text")
    elif not value.strip():
        note(place, "is empty")
    elif any("\ud800" <= character <= "\udfff" for character in value):
        note(place, "has half of a character (\\ud800 to \\udfff)")
    else:
        return value
    return ""
