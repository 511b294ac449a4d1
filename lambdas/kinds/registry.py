"""The registry: all kinds of jobs by name. To add a kind, import it and add it to ALL."""

from core.jobs import Kind
from kinds.agent.kind import AGENT
from kinds.completion.kind import COMPLETION
from kinds.dataset.kind import DATASET
from kinds.document.kind import DOCUMENT
from kinds.embedding.kind import EMBEDDING
from kinds.fine_tune.kind import FINE_TUNE
from kinds.replay.kind import REPLAY
from kinds.summary.kind import SUMMARY

ALL = (
    AGENT,
    COMPLETION,
    DATASET,
    DOCUMENT,
    EMBEDDING,
    FINE_TUNE,
    REPLAY,
    SUMMARY,
)
KINDS: dict[str, Kind] = {kind.name: kind for kind in ALL}
