"""Clients of the model's service without sockets."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from urllib.parse import urlsplit

import boto3
import pytest
from botocore.awsrequest import AWSResponse
from botocore.config import Config

from local.model.service import Service
from local.model.upstreams import Fake


class Raw:
    """A response's body as urllib3 gives it to botocore."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = pieces

    def stream(self, *_: object, **__: object) -> Iterator[bytes]:
        yield from self._pieces

    def read(self, *_: object) -> bytes:
        return b"".join(self._pieces)

    def close(self) -> None:
        pass


@pytest.fixture
def service() -> Service:
    return Service(Fake(words=6))


@pytest.fixture(scope="session")
def make_bedrock() -> Callable[[Service], Any]:
    """A function that lets a boto3 client, which is made once, call a service."""
    called: list[Service] = []
    client = boto3.client("bedrock-runtime", config=Config(retries={"total_max_attempts": 1}))

    def send(request: Any, **_: object) -> AWSResponse:
        headers = {name.lower(): str(value) for name, value in request.headers.items()}
        response = called[-1].handle(request.method, urlsplit(request.url).path, headers, request.body)
        return AWSResponse(request.url, response.status, response.headers, Raw(response.body))

    client.meta.events.register("before-send.bedrock-runtime", send)

    def make(service: Service) -> Any:
        called[:] = [service]
        return client

    return make


@pytest.fixture
def bedrock(service: Service, make_bedrock: Callable[[Service], Any]) -> Any:
    return make_bedrock(service)


@pytest.fixture
def post(service: Service) -> Callable[[dict[str, Any]], tuple[int, bytes]]:
    """POST /v1/chat/completions: status and body."""

    def send(body: dict[str, Any]) -> tuple[int, bytes]:
        response = service.handle("POST", "/v1/chat/completions", {}, json.dumps(body).encode())
        return response.status, b"".join(response.body)

    return send
