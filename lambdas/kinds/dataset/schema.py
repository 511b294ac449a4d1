"""What a model expects of a table, as JSON: the target, the features and how each is made of a column.

Features of the model have names of our own (`f0`, `f1`, …): LightGBM refuses or changes some characters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from kinds.dataset.cleaning.types import ColumnType

Task = Literal["binary", "multiclass", "regression"]
FeatureKind = Literal["number", "boolean", "category", "days", "weekday", "month", "hour", "difference"]


@dataclass(frozen=True, slots=True)
class Feature:
    """`columns`: one, or the two whose difference in days it is. `categories`: the codes of texts, by place.

    `had_nulls`: whether the model has seen nulls of it. It knows no other way to tell them apart from zero.
    """

    kind: FeatureKind
    columns: tuple[str, ...]
    categories: tuple[str, ...] = ()
    had_nulls: bool = False

    @property
    def label(self) -> str:
        """For people."""
        if self.kind == "difference":
            return f"{self.columns[0]} − {self.columns[1]} (days)"
        plain = self.kind in ("number", "boolean", "category")
        return self.columns[0] if plain else f"{self.columns[0]} ({self.kind})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """`classes`: the texts of the target's values, by the number that the model knows; of two, the second is the
    positive one. `types`: of every column that a feature needs.
    """

    task: Task
    target: str
    classes: tuple[str, ...]
    features: tuple[Feature, ...]
    types: Mapping[str, ColumnType] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Schema:
        features = tuple(
            Feature(each["kind"], tuple(each["columns"]), tuple(each["categories"]), each["had_nulls"])
            for each in stored["features"]
        )
        types = {name: ColumnType(**each) for name, each in stored["types"].items()}
        return cls(
            task=stored["task"],
            target=stored["target"],
            classes=tuple(stored["classes"]),
            features=features,
            types=types,
        )


def columns_of(features: Sequence[Feature]) -> list[str]:
    """The columns that the features need, each once."""
    return list(dict.fromkeys(name for feature in features for name in feature.columns))
