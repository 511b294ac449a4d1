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


def made(error: Callable[..., Exception]) -> Exception:
    """An instance of botocore's error, whatever its message wants to be told."""
    facts: dict[str, Any] = {"endpoint_url": "https://s3", "proxy_url": "https://p", "error": "reset"}
    return error(**facts, actual_bytes=1, expected_bytes=2)


@pytest.mark.parametrize("code", sorted(aws_errors.THROTTLES))
def test_throttles(code: str) -> None:
    """A throttle is known by its code, and worth another try."""
    assert aws_errors.is_throttle(client_error(code))
    assert aws_errors.is_transient(client_error(code))


@pytest.mark.parametrize("error", [client_error("InternalServerError"), client_error("Unheard", 500)])
def test_faults_of_the_service(error: ClientError) -> None:
    """A fault of the service is worth another try, by its code or its status, and is no throttle."""
    assert aws_errors.is_transient(error)
    assert not aws_errors.is_throttle(error)


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
    """A connection that fails at any point, also in the middle of an answer, is worth another try."""
    assert aws_errors.is_transient(made(error))


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
def test_what_stays_wrong(error: Exception) -> None:
    """What would fail again the same way, or is not of AWS, is not transient."""
    assert not aws_errors.is_transient(error)


def test_code() -> None:
    """The code is AWS's; anything else has none."""
    assert aws_errors.code(client_error("NoSuchKey")) == "NoSuchKey"
    assert aws_errors.code(KeyError("NoSuchKey")) == ""
    assert aws_errors.code(ClientError({}, "Call")) == ""


def test_cancellation_codes() -> None:
    """A cancelled transaction gives one code per action, in order; without reasons there are none."""
    reasons = [{"Code": "None"}, {"Code": "ConditionalCheckFailed", "Message": "…"}, {}]
    error = client_error("TransactionCanceledException", CancellationReasons=reasons)
    assert aws_errors.cancellation_codes(error) == ["None", "ConditionalCheckFailed", "None"]
    assert aws_errors.cancellation_codes(client_error("TransactionCanceledException")) == []


def test_transient_becomes_unavailable() -> None:
    """What may pass by itself is raised under the name that the state machine retries."""

    @aws_errors.raises_unavailable
    def handler(event: str) -> None:
        raise made(exceptions.ReadTimeoutError)

    with pytest.raises(Unavailable) as caught:
        handler("event")
    assert isinstance(caught.value, Retryable)
    assert isinstance(caught.value.__cause__, exceptions.ReadTimeoutError)


@pytest.mark.parametrize("error", [client_error("AccessDenied", 403), ValueError("mine"), Unavailable("ours")])
def test_others_pass(error: Exception) -> None:
    """What stays wrong keeps its own class, and so does what is not of AWS."""

    @aws_errors.raises_unavailable
    def handler() -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        handler()
    assert caught.value is error


def test_wrapped_function_answers() -> None:
    """A wrapped function keeps its arguments, its answer and its name."""

    @aws_errors.raises_unavailable
    def add(a: int, *, b: int) -> int:
        return a + b

    assert add(1, b=2) == 3
    assert add.__name__ == "add"


class Stingy:
    """A table's client that leaves out all keys of a request but the first."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []

    def batch_get_item(self, RequestItems: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(RequestItems)
        keys = {table: wanted["Keys"] for table, wanted in RequestItems.items()}
        found = {table: [{"of": table, **first}] for table, (first, *_) in keys.items()}
        left = {table: {"Keys": rest} for table, (_, *rest) in keys.items() if rest}
        return {"Responses": found, "UnprocessedKeys": left}


def test_batch_get_asks_for_what_was_left_out() -> None:
    """Every key of every table is asked for until it is answered, and as it was asked for at first."""
    client = Stingy()
    wanted = {"a": {"Keys": [{"pk": 1}, {"pk": 2}], "ConsistentRead": True}, "b": {"Keys": [{"pk": 3}]}}
    found = batch_get(client, wanted)
    assert found == {"a": [{"of": "a", "pk": 1}, {"of": "a", "pk": 2}], "b": [{"of": "b", "pk": 3}]}
    assert client.asked[1] == {"a": {"Keys": [{"pk": 2}], "ConsistentRead": True}}


def test_batch_get_of_nothing() -> None:
    """DynamoDB refuses a table without keys, so it is not asked."""
    client = Stingy()
    assert batch_get(client, {"a": {"Keys": []}}) == {"a": []}
    assert client.asked == []
