"""Decorators that make one definition a blocking and an async method.

An `operation` is written once, as a coroutine. It is a blocking method of classes that inherit from `Blocking`,
and an async method of classes that inherit from `Asynchronous`; type checkers know which. `iteration` does the
same for async generators.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from recado._coroutines import iterate, run

P = ParamSpec("P")
T = TypeVar("T")


class Blocking:
    """Methods return their result."""


class Asynchronous:
    """Methods return coroutines and async generators."""


class operation(Generic[P, T]):  # noqa: N801 a decorator
    def __init__(self, function: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> None:
        self.function = function
        self.__doc__ = function.__doc__

    @overload
    def __get__(self, client: Blocking, owner: Any = None) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: Asynchronous, owner: Any = None) -> Callable[P, Coroutine[Any, Any, T]]: ...
    @overload
    def __get__(self, client: None, owner: Any = None) -> Callable[..., Coroutine[Any, Any, T]]: ...
    def __get__(self, client: Any, owner: Any = None) -> Any:
        if client is None:
            return self.function
        bound = self.function.__get__(client)
        return _blocking(bound, run) if isinstance(client, Blocking) else bound


class iteration(Generic[P, T]):  # noqa: N801 a decorator
    def __init__(self, function: Callable[Concatenate[Any, P], AsyncGenerator[T, None]]) -> None:
        self.function = function
        self.__doc__ = function.__doc__

    @overload
    def __get__(self, client: Blocking, owner: Any = None) -> Callable[P, Iterator[T]]: ...
    @overload
    def __get__(self, client: Asynchronous, owner: Any = None) -> Callable[P, AsyncGenerator[T, None]]: ...
    @overload
    def __get__(self, client: None, owner: Any = None) -> Callable[..., AsyncGenerator[T, None]]: ...
    def __get__(self, client: Any, owner: Any = None) -> Any:
        if client is None:
            return self.function
        bound = self.function.__get__(client)
        return _blocking(bound, iterate) if isinstance(client, Blocking) else bound


def _blocking(bound: Callable[..., Any], finish: Callable[[Any], Any]) -> Callable[..., Any]:
    @functools.wraps(bound)
    def call(*args: Any, **kwargs: Any) -> Any:
        return finish(bound(*args, **kwargs))

    return call
