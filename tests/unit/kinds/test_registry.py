"""The registry of kinds (kinds.registry)."""

from __future__ import annotations

import pytest

from core import events
from core.jobs import Kind
from kinds.registry import KINDS

known = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


def test_names() -> None:
    """The registry has each kind under its own name."""
    assert {"document", "replay"} <= set(KINDS)
    assert all(kind.name == name for name, kind in KINDS.items())
    assert events.OWNER_KIND not in KINDS


@known
def test_descriptions(kind: Kind) -> None:
    """Kinds, results and events have descriptions in whole sentences."""
    for model in (kind.input, kind.result, *kind.events.values()):
        assert (model.__doc__ or "").strip().endswith("."), model


@known
def test_headlines(kind: Kind) -> None:
    """The fields of a headline exist in an event of the kind."""
    assert set(kind.headline) <= {name for model in kind.events.values() for name in model.model_fields}
