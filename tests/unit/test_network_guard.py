"""Tests open no connections to other machines."""

from __future__ import annotations

import socket

import pytest
import pytest_socket


def test_no_socket_can_be_opened() -> None:
    """A connection that a test opens by mistake fails."""
    with pytest.raises((pytest_socket.SocketBlockedError, UserWarning)):
        socket.create_connection(("192.0.2.1", 80), timeout=1)


@pytest.mark.enable_socket
def test_loopback_can_be_opened_on_request() -> None:
    """A test with the marker `enable_socket` may connect to this machine only."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname(), timeout=1).close()
    with pytest.raises((pytest_socket.SocketConnectBlockedError, UserWarning)):
        socket.create_connection(("192.0.2.1", 80), timeout=1)
