"""The kind `tally`: its clean-up removes inputs, which no other kind's does."""

from __future__ import annotations

from stacks.kinds.base import KindConstruct


class TallyConstruct(KindConstruct):
    def grant(self) -> None:
        self.shared.storage.grant_objects(self.shared.start_job, delete=("inputs/",))
