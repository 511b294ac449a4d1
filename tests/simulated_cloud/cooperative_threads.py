"""Cooperative threads: only one runs at a time, and it yields only where it would block.

moto runs each execution, branch and iteration of Step Functions in a thread of its own. This module replaces those
threads. A task yields when it joins a thread, waits for an event or sleeps. So an execution moves only when the
test says so, always in the same order, and a wait ends when the virtual clock passes its deadline.
"""

from __future__ import annotations

import functools
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from .clock import Clock

EPSILON = 1e-6


class Aborted(BaseException):
    """Ends a task whose execution has ended. A BaseException, so that `except Exception` does not catch it."""


class Task:
    """A cooperative thread, with the methods of `threading.Thread` that moto's interpreter uses.

    `busy` means that the task is inside a Lambda function.
    """

    scheduler: Scheduler

    def __init__(
        self,
        group: None = None,
        target: Callable[..., Any] = lambda: None,
        name: str = "",
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        *,
        daemon: bool | None = None,
    ) -> None:
        self._call = functools.partial(target, *args, **(kwargs or {}))
        self.name = name or getattr(target, "__qualname__", "task")
        self.parent = self.scheduler.current
        self.children: list[Task] = []
        self.done: Event = self.scheduler.Event()
        self.deadline: float | None = None
        self.woken = False
        self.aborted = False
        self.busy = False
        self._started = False
        self._resume = threading.Semaphore(0)
        self._yielded = threading.Semaphore(0)

    @property
    def native_id(self) -> int:
        return id(self)

    def start(self) -> None:
        if self.parent:
            self.parent.children.append(self)
        self.scheduler.ready.append(self)

    def is_alive(self) -> bool:
        return not self.done.is_set()

    def join(self, timeout: float | None = None) -> None:
        self.done.wait(timeout)

    def run_until_blocked(self) -> None:
        """Run this task until it yields or ends."""
        previous, self.scheduler.current = self.scheduler.current, self
        if self._started:
            self._resume.release()
        else:
            self._started = True
            threading.Thread(target=self._body, name=self.name, daemon=True).start()
        self._yielded.acquire()
        self.scheduler.current = previous

    def yield_turn(self) -> None:
        """Return control to the thread that runs the tasks, until this task is run again."""
        self._yielded.release()
        self._resume.acquire()
        self.raise_if_aborted()

    def raise_if_aborted(self) -> None:
        # A running function goes on when the state that called it has ended, as in AWS.
        if self.aborted and not self.busy:
            raise Aborted

    def _body(self) -> None:
        self.scheduler.local.task = self
        try:
            self.raise_if_aborted()
            self._call()
        except Aborted:
            pass
        except BaseException as failure:  # the scheduler raises it in the thread of the test
            self.scheduler.failures.append(failure)
        self.done.set()
        self._yielded.release()


class Event:
    """`threading.Event` for tasks. `set` wakes the waiting tasks even if `clear` follows at once."""

    scheduler: Scheduler

    def __init__(self) -> None:
        self._flag = False
        self._waiting: list[Task] = []

    def is_set(self) -> bool:
        return self._flag

    def set(self) -> None:
        self._flag = True
        for task in self._waiting:
            self.scheduler.wake(task)
        self._waiting.clear()

    def clear(self) -> None:
        self._flag = False

    def wait(self, timeout: float | None = None) -> bool:
        if self._flag:
            return True
        task = self.scheduler.current
        if task is None:
            raise RuntimeError("only a task can wait")
        self._waiting.append(task)
        woken = self.scheduler.park(timeout)
        if task in self._waiting:
            self._waiting.remove(task)
        return woken


class Scheduler:
    """Runs the tasks. `in_function` tells whether the current task is inside a Lambda function."""

    def __init__(self, clock: Clock, in_function: Callable[[], bool]) -> None:
        self.clock = clock
        self.in_function = in_function
        self.current: Task | None = None
        self.ready: deque[Task] = deque()
        self.parked: list[Task] = []
        self.failures: list[BaseException] = []
        self.local = threading.local()
        self.Task: type[Task] = type("Task", (Task,), {"scheduler": self})
        self.Event: type[Event] = type("Event", (Event,), {"scheduler": self})

    def run_ready(self) -> int:
        """Run tasks until all of them are blocked. Returns how many times a task ran."""
        turns = 0
        self._wake_overdue()
        while self.ready:
            self.ready.popleft().run_until_blocked()
            turns += 1
            self._wake_overdue()
        if self.failures:
            raise self.failures.pop()
        return turns

    def start_now(self, task: Task) -> None:
        """Start a task and run it until it blocks, before its creator goes on."""
        task.start()
        self.ready.remove(task)
        task.run_until_blocked()

    def park(self, timeout: float | None) -> bool:
        """Block the current task until it is woken (True) or `timeout` virtual seconds have passed (False)."""
        task = self.current
        if task is None:
            raise RuntimeError("only a task can wait")
        task.busy = self.in_function()
        task.raise_if_aborted()
        task.woken = False
        task.deadline = None if timeout is None else self.clock.time + timeout
        self.parked.append(task)
        task.yield_turn()
        task.busy = False
        return task.woken

    def sleep(self, seconds: float) -> None:
        self.park(seconds)

    def wake(self, task: Task) -> None:
        if task in self.parked:
            self.parked.remove(task)
            task.woken = True
            self.ready.append(task)

    def next_deadline(self) -> float | None:
        return min((task.deadline for task in self.parked if task.deadline is not None), default=None)

    def abort_children(self, task: Task | None) -> None:
        """End the tasks that `task` has started. A function that is sleeping finishes first."""
        for child in task.children if task else []:
            self.abort(child)

    def abort(self, task: Task) -> None:
        self.abort_children(task)
        if task.is_alive():
            task.aborted = True
            if not task.busy:
                self.wake(task)

    def reset(self) -> None:
        """End all tasks, functions included."""
        for task in [*self.parked, *self.ready]:
            task.aborted, task.busy = True, False
            self.wake(task)
        while self.ready:
            self.ready.popleft().run_until_blocked()
        self.failures.clear()

    def _wake_overdue(self) -> None:
        now = self.clock.time + EPSILON
        overdue = [task for task in self.parked if task.deadline is not None and task.deadline <= now]
        for task in sorted(overdue, key=lambda task: task.deadline or 0):
            self.parked.remove(task)
            self.ready.append(task)
