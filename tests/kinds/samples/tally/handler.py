"""The one Task of a tally."""

from kinds.tally.kind import TALLY, count

from core.jobs.run import task

handler = task(TALLY, "count", count)
