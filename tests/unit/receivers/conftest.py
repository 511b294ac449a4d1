"""Loads the example receivers, and signs requests as the service does."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import time_machine

from core.webhooks.transport import signing

RECEIVERS = Path(__file__).parents[3] / "examples" / "receivers"
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
AT = 1_796_000_000

Load = Callable[..., Any]
Sign = Callable[..., dict[str, str]]


@pytest.fixture(autouse=True)
def clock() -> Iterator[time_machine.Coordinates]:
    with time_machine.travel(AT, tick=False) as traveller:
        yield traveller


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Load:
    """Imports an example by the name of its file. `secrets`: RECADO_WEBHOOK_SECRET, unset if None."""

    def load(name: str, secrets: str | None = SECRET) -> ModuleType:
        monkeypatch.delenv("RECADO_WEBHOOK_SECRET", raising=False)
        if secrets is not None:
            monkeypatch.setenv("RECADO_WEBHOOK_SECRET", secrets)
        spec = importlib.util.spec_from_file_location(name, RECEIVERS / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


@pytest.fixture
def sign() -> Sign:
    """Returns the headers of a delivery that is sent now."""

    def sign(body: bytes, *, event_id: str = "evt_1", keys: str | list[str] = SECRET) -> dict[str, str]:
        signed = signing.sign(keys, event_id=event_id, timestamp=int(time.time()), body=body)
        return {"content-type": "application/json", **signed}

    return sign
