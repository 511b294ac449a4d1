"""What a summary takes at most, before its first call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from core.llm.provider import Usage
from core.llm.tokens import estimate_input
from kinds.summary import prompts
from kinds.summary.prompts import Form, Prompt

MIN_PER_MERGE = 5
MAX_SUMMARY_TOKENS = 1000
_SEPARATOR_TOKENS = 2
_CODE = "0" * 12  # no code has more tokens than digits


@dataclass(frozen=True, slots=True)
class Sizes:
    """Of a text that is cut into parts of `part_tokens` at most."""

    part_tokens: int

    @property
    def tokens(self) -> int:
        """Of a part's summary at most."""
        return min(MAX_SUMMARY_TOKENS, self.part_tokens // MIN_PER_MERGE - _SEPARATOR_TOKENS)

    @property
    def words(self) -> int:
        """That a part's summary is asked to have. In most languages they have fewer tokens than allowed."""
        return max(10, self.tokens // 4)

    @property
    def per_merge(self) -> int:
        """How many summaries one call can merge, at least."""
        return self.part_tokens // (self.tokens + _SEPARATOR_TOKENS)


@dataclass(frozen=True, slots=True)
class Estimate:
    """Upper bounds: the number of calls, their tokens in all, and those of the largest call."""

    calls: int
    usage: Usage
    largest: Usage


def estimate(parts: Sequence[int], form: Form, sizes: Sizes) -> Estimate:
    """Of a text that is cut into parts with these numbers of tokens."""
    if len(parts) == 1:
        calls = [_usage(prompts.whole(form), parts[0])]
    else:
        part, merge = prompts.part(sizes.words, sizes.tokens), prompts.merge(sizes.words, sizes.tokens)
        calls = [_usage(part, tokens) for tokens in parts]
        calls += [_usage(merge, sizes.part_tokens)] * _merges(len(parts), sizes.per_merge)
        calls += [_usage(prompts.final(form), sizes.part_tokens)]
    return Estimate(
        len(calls),
        Usage(sum(call.input_tokens for call in calls), sum(call.output_tokens for call in calls)),
        max(calls, key=lambda call: call.input_tokens + call.output_tokens),
    )


def _merges(summaries: int, per_merge: int) -> int:
    """Calls until one call can merge all that are left."""
    if summaries <= per_merge:
        return 0
    merged = -(-summaries // per_merge)
    return merged + _merges(merged, per_merge)


def _usage(prompt: Prompt, tokens: int) -> Usage:
    request = prompt.request("", model="", code=_CODE)
    return Usage(estimate_input(request) + tokens, prompt.max_tokens)
