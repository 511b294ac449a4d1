"""The dependencies of the functions of fine-tunes, in addition to those of all functions."""

from __future__ import annotations

from typing import Any

from core.aws import clients
from core.aws.settings import Environment, number, text, texts
from core.dependencies import Parts, part


class FineTuneSettings(Environment):
    fine_tune_models = texts()
    fine_tune_min_examples = number()
    fine_tune_role = text()


class FineTuneDependencies(Parts):
    """See `core.dependencies`."""

    @part
    def settings(self) -> FineTuneSettings:
        return FineTuneSettings()

    @part
    def bedrock(self) -> Any:
        return clients.client("bedrock")


fine_tune_dependencies = FineTuneDependencies()
