"""kinds: the registry"""

from __future__ import annotations

import pytest

from core import events
from core.jobs import Kind
from kinds.registry import KINDS

known = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


def test_each_by_its_name() -> None:
    """The registry has each kind under its own name, and none under the name of an owner's events."""
    assert {"document", "replay"} <= set(KINDS)
    assert all(kind.name == name for name, kind in KINDS.items())
    assert events.OWNER_KIND not in KINDS


@known
def test_what_callers_read(kind: Kind) -> None:
    """What OpenAPI says of a kind, of its result and of its events is there to be said, in whole sentences."""
    for model in (kind.input, kind.result, *kind.events.values()):
        assert (model.__doc__ or "").strip().endswith("."), model


@known
def test_its_headline(kind: Kind) -> None:
    """A one-line message tells numbers that some event of the kind has."""
    assert set(kind.headline) <= {name for model in kind.events.values() for name in model.model_fields}
