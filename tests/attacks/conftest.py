"""The deployed service, and a receiver that does what an attacker says."""

from __future__ import annotations

from tests.integration.conftest import receiver, service

__all__ = ["receiver", "service"]
