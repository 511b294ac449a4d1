"""The settings of the functions of summaries, in addition to those of all functions."""

from __future__ import annotations

from core.aws.settings import Environment, number
from core.dependencies import Parts, part


class SummarySettings(Environment):
    summary_part_tokens = number()


class SummaryDependencies(Parts):
    """See `core.dependencies`."""

    @part
    def settings(self) -> SummarySettings:
        return SummarySettings()


summary_dependencies = SummaryDependencies()
