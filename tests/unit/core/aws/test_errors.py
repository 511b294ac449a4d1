"""Errors of AWS (core.aws.errors), and reads of batches (core.aws.dynamodb)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from botocore import exceptions
from botocore.exceptions import ClientError

from core.aws import errors as aws_errors
from core.aws.dynamodb import batch_get
from core.errors import Retryable, Unavailable


def client_error(code: str, status: int = 400, **extra: Any) -> ClientError:
    metadata = {"HTTPStatusCode": status}
    return ClientError({"Error": {"Code": code}, "ResponseMetadata": metadata, **extra}, "Call")  # type: ignore[typeddict-item]


def instance(error: Callable[..., Exception]) -> Exception:
    """An instance of this error of botocore."""
    facts: dict[str, Any] = {"endpoint_url": "https://s3", "proxy_url": "https://p", "error": "reset"}
    return error(**facts, actual_bytes=1, expected_bytes=2)


@pytest.mark.parametrize("code", sorted(aws_errors.THROTTLES))
def test_throttles(code: str) -> None:
    """Throttling is transient."""
    assert aws_errors.is_transient(client_error(code))


@pytest.mark.parametrize("error", [client_error("InternalServerError"), client_error("Unknown", 500)])
def test_errors_of_the_service(error: ClientError) -> None:
    """Errors of the service are transient, by code or status."""
    assert aws_errors.is_transient(error)


@pytest.mark.parametrize(
    "error",
    [
        exceptions.EndpointConnectionError,
        exceptions.ConnectTimeoutError,
        exceptions.ReadTimeoutError,
        exceptions.ConnectionClosedError,
        exceptions.ProxyConnectionError,
        exceptions.ResponseStreamingError,
        exceptions.IncompleteReadError,
        exceptions.SSLError,
    ],
)
def test_broken_connections(error: type[Exception]) -> None:
    """Errors of connections are transient, also during a response."""
    assert aws_errors.is_transient(instance(error))


@pytest.mark.parametrize(
    "error",
    [
        client_error("AccessDeniedException"),
        client_error("ValidationException"),
        client_error("ConditionalCheckFailedException"),
        exceptions.NoCredentialsError(),
        exceptions.ParamValidationError(report="Missing required parameter"),
        ValueError("Connection"),
        TimeoutError(),
    ],
)
def test_permanent_errors(error: Exception) -> None:
    """Other errors are not transient."""
    assert not aws_errors.is_transient(error)


def test_code() -> None:
    """The code is that of AWS, or empty."""
    assert aws_errors.code(client_error("NoSuchKey")) == "NoSuchKey"
    assert aws_errors.code(KeyError("NoSuchKey")) == ""
    assert aws_errors.code(ClientError({}, "Call")) == ""


def test_cancellation_codes() -> None:
    """A canceled transaction has one code per operation, in order; without reasons there are none."""
    reasons = [{"Code": "None"}, {"Code": "ConditionalCheckFailed", "Message": "…"}, {}]
    error = client_error("TransactionCanceledException", CancellationReasons=reasons)
    assert aws_errors.cancellation_codes(error) == ["None", "ConditionalCheckFailed", "None"]
    assert aws_errors.cancellation_codes(client_error("TransactionCanceledException")) == []


def test_raises_unavailable() -> None:
    """Transient errors are raised as Unavailable."""

    @aws_errors.raises_unavailable
    def handler(event: str) -> None:
        raise instance(exceptions.ReadTimeoutError)

    with pytest.raises(Unavailable) as caught:
        handler("event")
    assert isinstance(caught.value, Retryable)
    assert isinstance(caught.value.__cause__, exceptions.ReadTimeoutError)


@pytest.mark.parametrize("error", [client_error("AccessDenied", 403), ValueError("mine"), Unavailable("ours")])
def test_other_errors_are_raised(error: Exception) -> None:
    """Other errors are raised unchanged."""

    @aws_errors.raises_unavailable
    def handler() -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        handler()
    assert caught.value is error


class UnprocessedKeys:
    """A client that processes only the first key of each request."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []

    def batch_get_item(self, RequestItems: dict[str, Any]) -> dict[str, Any]:
        self.requests.append(RequestItems)
        keys = {table: wanted["Keys"] for table, wanted in RequestItems.items()}
        found = {table: [{"of": table, **first}] for table, (first, *_) in keys.items()}
        left = {table: {"Keys": rest} for table, (_, *rest) in keys.items() if rest}
        return {"Responses": found, "UnprocessedKeys": left}


def test_batch_get_repeats_unprocessed_keys() -> None:
    """Unprocessed keys are requested again with the same options."""
    client = UnprocessedKeys()
    wanted = {"a": {"Keys": [{"pk": 1}, {"pk": 2}], "ConsistentRead": True}, "b": {"Keys": [{"pk": 3}]}}
    found = batch_get(client, wanted)
    assert found == {"a": [{"of": "a", "pk": 1}, {"of": "a", "pk": 2}], "b": [{"of": "b", "pk": 3}]}
    assert client.requests[1] == {"a": {"Keys": [{"pk": 2}], "ConsistentRead": True}}


def test_batch_get_without_keys() -> None:
    """Without keys there is no request: DynamoDB refuses it."""
    client = UnprocessedKeys()
    assert batch_get(client, {"a": {"Keys": []}}) == {"a": []}
    assert client.requests == []
