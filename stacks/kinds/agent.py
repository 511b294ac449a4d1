"""Agents: the worker does all of the work. It reads the vectors that documents have."""

from __future__ import annotations

from stacks.constructs.submissions import agent_environment
from stacks.kinds.base import KindConstruct


class AgentConstruct(KindConstruct):
    """What the worker needs to search; the construct of documents gives it the model that embeds."""

    def grant(self) -> None:
        worker = self.shared.worker
        for name, value in agent_environment(self.shared.config).items():
            worker.add_environment(name, value)
        self.shared.storage.grant_objects(worker, read=("vectors/",))
