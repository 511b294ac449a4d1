"""The examples, each loaded anew with its secret in the environment, and requests as the service signs them."""

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
    """Import an example by its file's name, with these secrets or with none."""

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
    """The headers of a delivery made now."""

    def sign(body: bytes, *, event_id: str = "evt_1", keys: str | list[str] = SECRET) -> dict[str, str]:
        signed = signing.sign(keys, event_id=event_id, timestamp=int(time.time()), body=body)
        return {"content-type": "application/json", **signed}

    return sign
