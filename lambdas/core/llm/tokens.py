"""How many tokens a request has at most, without a tokenizer: each model has another one.

A byte-level tokenizer makes at most one token of each UTF-8 byte. English prose has 4 to 5 bytes a token, so that
bound is too high for it, and characters divided by 4 is 4 to 6 times too low for Chinese and Japanese. So letters
and spaces of ASCII count half a token each, everything else one a byte: digits, signs, and all other scripts. This
is an upper bound for prose and code in every language that we measured. Random letters, such as base64, can have
more tokens.
"""

from __future__ import annotations

import json
import re

from core.llm.provider import ModelRequest

TOKENS_PER_MESSAGE = 16
"""What a chat template puts around a turn, its role included."""
_LETTERS = re.compile(r"[A-Za-z ]")


def estimate_text(text: str) -> int:
    """Tokens of a text, at most."""
    letters = len(_LETTERS.findall(text))
    others = len(text.encode("utf-8", "surrogatepass")) - letters
    return others + -(-letters // 2)


def estimate_input(request: ModelRequest) -> int:
    """Input tokens of a request, at most: its messages, tools and schema."""
    texts = [message.content for message in request.messages]
    texts += [f"{call.name}{call.arguments}" for message in request.messages for call in message.tool_calls]
    texts += [f"{tool.name}{tool.description}{json.dumps(tool.parameters)}" for tool in request.tools]
    if request.schema is not None:
        texts.append(json.dumps(request.schema))
    turns = len(request.messages) + len(request.tools) + 1
    return sum(map(estimate_text, texts)) + TOKENS_PER_MESSAGE * turns
