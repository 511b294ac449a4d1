"""A call of a model that a thread of its own makes, so that its deadline and `close` hold at any moment."""

from __future__ import annotations

import codecs
import contextvars
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, suppress
from queue import Empty, SimpleQueue
from typing import TypeAlias

from core.aws.clients import LONGEST_SILENCE_SECONDS
from core.errors import MalformedAnswer, ModelUnavailable, StreamCut
from core.llm.provider import End, ModelRequest, TextPart

Part: TypeAlias = TextPart | End


def read_timeout(request: ModelRequest, seconds: float) -> float:
    """For how long the provider may send nothing: an answer that is not streamed takes its time silently."""
    return min(LONGEST_SILENCE_SECONDS, seconds) if request.stream else seconds


class Connection:
    """What shuts down the connection of a call, from any thread."""

    def __init__(self) -> None:
        self.closed = False
        self._lock = threading.Lock()
        self._shut_down: Callable[[], object] | None = None

    def opened(self, shut_down: Callable[[], object]) -> None:
        """There is a connection. `shut_down` wakes a thread that reads from it; after `close` it is called now."""
        with self._lock:
            self._shut_down = shut_down
        if self.closed:
            self.close()

    def close(self) -> None:
        self.closed = True
        with self._lock:
            shut_down, self._shut_down = self._shut_down, None
        if shut_down:
            with suppress(OSError, ValueError, RuntimeError):  # the call has ended meanwhile
                shut_down()


class RunningCall:
    """An Answer that can be iterated once. The call is closed when the iteration ends, however it ends.

    `make` sends the request and yields the parts. An error that it raises is raised by the iteration. StreamCut is
    raised if there is no End, and ModelUnavailable if the End has not arrived after `seconds`.
    """

    def __init__(self, make: Callable[[Connection], Iterator[Part]], *, seconds: float) -> None:
        self._seconds = seconds
        self._deadline = time.monotonic() + seconds
        self._connection = Connection()
        self._arrived: SimpleQueue[Part | BaseException] = SimpleQueue()
        if seconds <= 0:
            self._arrived.put(ModelUnavailable("no time is left for a call"))
            return
        run = contextvars.copy_context().run
        threading.Thread(target=run, args=(self._read, make), name="model call", daemon=True).start()

    def __iter__(self) -> Iterator[Part]:
        try:
            while True:
                part = self._next()
                if isinstance(part, BaseException):
                    raise part
                yield part
                if isinstance(part, End):
                    return
        finally:
            self._connection.close()

    def close(self) -> None:
        """Stop the call. A waiting iteration raises StreamCut at once."""
        self._arrived.put(StreamCut("the call was stopped", billed=True))  # before the error of the connection
        self._connection.close()

    def _next(self) -> Part | BaseException:
        try:
            return self._arrived.get(timeout=max(0.0, self._deadline - time.monotonic()))
        except Empty:
            return ModelUnavailable(f"the model has not answered within {self._seconds:g} s", billed=True)

    def _read(self, make: Callable[[Connection], Iterator[Part]]) -> None:
        try:
            with closing(_whole_characters(make(self._connection))) as parts:
                for part in parts:
                    self._arrived.put(part)
                    if isinstance(part, End) or self._connection.closed:
                        return
            raise StreamCut("the answer stopped without its end", billed=True)
        except RecursionError:
            self._arrived.put(MalformedAnswer("the answer is nested too deeply", billed=True))
        except BaseException as error:  # the iteration must not wait for a thread that has ended
            self._arrived.put(error)


def _whole_characters(parts: Iterator[Part]) -> Generator[Part, None, None]:
    """Join the two halves of a UTF-16 pair, which JSON can split over two strings. A lone half becomes U+FFFD."""
    decoder = codecs.getincrementaldecoder("utf-16-le")(errors="replace")
    for part in parts:
        end = isinstance(part, End)
        text = "" if isinstance(part, End) else part.text
        whole = decoder.decode(text.encode("utf-16-le", "surrogatepass"), final=end)
        if whole:
            yield TextPart(whole)
        if end:
            yield part
