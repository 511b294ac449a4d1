"""One definition, two clients.

An operation is written once, as a coroutine. On a client that stands on `Blocking` it is a plain method that
returns the result, on one that stands on `Awaiting` a method to be awaited; type checkers see which. An
`iteration` is the same for async generators.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from recado import _io

P = ParamSpec("P")
T = TypeVar("T")


class Blocking:
    """Calls return when they are done."""


class Awaiting:
    """Calls are awaited."""


class operation(Generic[P, T]):  # noqa: N801 reads as the decorator that it is
    def __init__(self, flow: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> None:
        self.flow = flow
        self.__doc__ = flow.__doc__

    @overload
    def __get__(self, client: Blocking, owner: Any = None) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: Awaiting, owner: Any = None) -> Callable[P, Coroutine[Any, Any, T]]: ...
    @overload
    def __get__(self, client: None, owner: Any = None) -> Callable[..., Coroutine[Any, Any, T]]: ...
    def __get__(self, client: Any, owner: Any = None) -> Any:
        if client is None:
            return self.flow
        bound = self.flow.__get__(client)
        return _finishing(bound, _io.run) if isinstance(client, Blocking) else bound


class iteration(Generic[P, T]):  # noqa: N801
    def __init__(self, flow: Callable[Concatenate[Any, P], AsyncGenerator[T, None]]) -> None:
        self.flow = flow
        self.__doc__ = flow.__doc__

    @overload
    def __get__(self, client: Blocking, owner: Any = None) -> Callable[P, Iterator[T]]: ...
    @overload
    def __get__(self, client: Awaiting, owner: Any = None) -> Callable[P, AsyncGenerator[T, None]]: ...
    @overload
    def __get__(self, client: None, owner: Any = None) -> Callable[..., AsyncGenerator[T, None]]: ...
    def __get__(self, client: Any, owner: Any = None) -> Any:
        if client is None:
            return self.flow
        bound = self.flow.__get__(client)
        return _finishing(bound, _io.iterate) if isinstance(client, Blocking) else bound


def _finishing(bound: Callable[..., Any], finish: Callable[[Any], Any]) -> Callable[..., Any]:
    @functools.wraps(bound)
    def call(*args: Any, **kwargs: Any) -> Any:
        return finish(bound(*args, **kwargs))

    return call
