"""How many tokens a request has at most, without a tokenizer: each model has another one.

A byte-level tokenizer makes at most one token of each UTF-8 byte. For English prose, which has 3 to 5 bytes a
token, that is far too high. Characters divided by 4 is 4 to 11 times too low for Chinese, Japanese and emoji. So
lower-case ASCII letters and spaces count 3/5 of a token here, and everything else one a byte.

Counted with the tokenizer of SmolLM2, which is a coarse one (49,152 tokens): 2 to 3 times the real number for
English prose, 1.0 to 2.7 times for other scripts, code, numbers and base64. Only letters without words have more
tokens than this: hexadecimal digits 1.06 times as many, consonants alone 1.2 times.
"""

from __future__ import annotations

import json
import re

from core.llm.provider import ModelRequest

TOKENS_PER_MESSAGE = 16
"""What a chat template puts around a turn, its role included."""
_CHEAP = re.compile(r"[a-z ]")


def estimate_text(text: str) -> int:
    """Tokens of a text, at most."""
    cheap = len(_CHEAP.findall(text))
    others = len(text.encode("utf-8", "surrogatepass")) - cheap
    return others + -(-3 * cheap // 5)


def estimate_input(request: ModelRequest) -> int:
    """Input tokens of a request, at most: its messages, tools and schema."""
    texts = [message.content for message in request.messages]
    texts += [f"{call.name}{call.arguments}" for message in request.messages for call in message.tool_calls]
    texts += [f"{tool.name}{tool.description}{json.dumps(tool.parameters)}" for tool in request.tools]
    if request.schema is not None:
        texts.append(json.dumps(request.schema))
    turns = len(request.messages) + len(request.tools) + 1
    return sum(map(estimate_text, texts)) + TOKENS_PER_MESSAGE * turns
