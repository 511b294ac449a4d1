"""The same service as the integration tests use."""

from __future__ import annotations

from tests.integration.conftest import knob, service

__all__ = ["knob", "service"]
