"""The time budget of a wait."""

from __future__ import annotations

from dataclasses import dataclass

from recado._io import IO
from recado.errors import WaitTimeout


@dataclass(frozen=True, slots=True)
class Deadline:
    """`at`: by the clock of `io`, None for no deadline. `message`: of the WaitTimeout."""

    io: IO
    at: float | None
    message: str

    @classmethod
    def after(cls, io: IO, timeout: float | None, message: str) -> Deadline:
        """In `timeout` seconds; no deadline if it is None."""
        return cls(io, None if timeout is None else io.clock() + timeout, message)

    def limit(self, seconds: float) -> float:
        """`seconds`, or the time until the deadline if that is less. Raises WaitTimeout after the deadline."""
        if self.at is None:
            return seconds
        left = self.at - self.io.clock()
        if left <= 0:
            raise WaitTimeout(self.message)
        return min(seconds, left)

    def check(self) -> None:
        """Raises WaitTimeout after the deadline."""
        self.limit(0)

    async def sleep(self, seconds: float) -> None:
        """Sleep, but not past the deadline. Raises WaitTimeout after the deadline."""
        await self.io.sleep(self.limit(seconds))
