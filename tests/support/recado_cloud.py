"""Recado in the simulated cloud."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from core.dependencies import Parts, part
from tests.simulated_cloud.calls import caller
from tests.simulated_cloud.cloud import Cloud
from tests.support import bedrock

LAMBDAS = Path(__file__).parents[2] / "lambdas"
_made: dict[tuple[int, str], dict[str, Any]] = {}
_get, _cache_clear = part.__get__, Parts.cache_clear


def recado_cloud(assembly: Path) -> Cloud:
    """The synthesised app, deployed. Each function has dependencies of its own, as each has a process on AWS."""
    part.__get__ = _get_for_function  # type: ignore[assignment]
    part.__set__ = _set  # type: ignore[attr-defined]  # makes it a data descriptor, so that __get__ is always asked
    Parts.cache_clear = _clear  # type: ignore[method-assign]
    return Cloud(assembly, source=LAMBDAS, answers=bedrock.ANSWERS)


def _get_for_function(self: part[Any], instance: Parts | None, owner: type | None = None) -> Any:
    function = getattr(caller.get(), "function", None)
    if instance is None or function is None:
        return _get(self, instance, owner)  # type: ignore[call-overload]
    made = _made.setdefault((id(instance), function.function_name), {})
    with instance.lock:
        if self._name not in made:
            made[self._name] = self._make(instance)
    return made[self._name]


def _set(self: part[Any], instance: Parts, value: Any) -> None:
    vars(instance)[self._name] = value


def _clear(self: Parts) -> None:
    _cache_clear(self)
    for key in [key for key in _made if key[0] == id(self)]:
        del _made[key]
