"""The settings of the functions of datasets, in addition to those of all functions."""

from __future__ import annotations

from core.aws.settings import Environment, number
from core.dependencies import Parts, part


class DatasetSettings(Environment):
    dataset_max_rows = number()
    dataset_train_rows = number()
    dataset_train_seconds = number()


class DatasetDependencies(Parts):
    """See `core.dependencies`."""

    @part
    def settings(self) -> DatasetSettings:
        return DatasetSettings()


dataset_dependencies = DatasetDependencies()
