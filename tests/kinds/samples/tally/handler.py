"""The one Task of a tally."""

from kinds.tally.kind import TALLY, count

from core.tasks import task

handler = task(TALLY, "count", count)
