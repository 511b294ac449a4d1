"""Attacks run against the service in the simulated cloud, as its owners see it."""

from tests.integration.conftest import knob, receiver, service, without_reaper

__all__ = ["knob", "receiver", "service", "without_reaper"]
