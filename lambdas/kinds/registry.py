"""The registry: every kind of job that there is, by its name. A new one takes two lines here."""

from core.jobs import Kind
from kinds.document.kind import DOCUMENT
from kinds.replay.kind import REPLAY

ALL = (
    DOCUMENT,
    REPLAY,
)
KINDS: dict[str, Kind] = {kind.name: kind for kind in ALL}
