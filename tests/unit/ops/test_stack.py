"""Where the deployed parts are: the stack's outputs, or a sentence that says why they cannot be had."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber

from core.auth import KeyStore
from ops import stack
from ops.stack import StackNotFound
from tests.unit.ops.conftest import Answer

Ops = Callable[..., Answer]


@pytest.fixture
def cloudformation(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stubber]:
    """CloudFormation's client, which answers what the test tells it to, in AWS's own form."""
    client = boto3.client("cloudformation")
    monkeypatch.setattr(boto3, "client", {"cloudformation": client}.__getitem__)
    with Stubber(client) as stubber:
        yield stubber


def describe(stubber: Stubber, name: str, **outputs: str) -> None:
    described: dict[str, Any] = {
        "StackName": name,
        "CreationTime": "2026-11-29T00:00:00Z",
        "StackStatus": "CREATE_COMPLETE",
        "Outputs": [{"OutputKey": key, "OutputValue": value} for key, value in outputs.items()],
    }
    stubber.add_response("describe_stacks", {"Stacks": [described]}, {"StackName": name})


def test_outputs_are_read_from_cloudformation(cloudformation: Stubber) -> None:
    """By the stack's name, each under its own."""
    describe(cloudformation, "RecadoService", KeysTable="keys-1", JobsTable="jobs-1")
    assert stack.outputs("RecadoService") == {"KeysTable": "keys-1", "JobsTable": "jobs-1"}


def test_a_stack_of_something_else_is_no_service(cloudformation: Stubber) -> None:
    """A stack without the service's outputs is not mistaken for it."""
    describe(cloudformation, "Website", Url="https://example.com")
    with pytest.raises(StackNotFound, match="Website has no output KeysTable"):
        stack.outputs("Website")


def test_a_stack_that_is_not_there_is_named(ops: Ops, cloudformation: Stubber) -> None:
    """One line names the stack that was asked for; the exit status is that of a wrong call."""
    message = "Stack with id RecadoService does not exist"
    cloudformation.add_client_error("describe_stacks", "ValidationError", message)
    assert ops("keys", "ls") == Answer(2, "", f"ops: stack RecadoService: {message}\n")


def test_another_stack_can_be_named(ops: Ops, keys: KeyStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--stack` chooses among deployments."""
    parts, asked = stack.outputs("RecadoService"), []
    monkeypatch.setattr(stack, "outputs", lambda name: asked.append(name) or parts)
    assert ops("--stack", "RecadoStaging", "keys", "ls").status == 0
    assert ops("keys", "ls").status == 0
    assert asked == ["RecadoStaging", "RecadoService"]


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        (
            ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"),
            "AWS cannot be asked: Unable to locate credentials",
        ),
        (("AWS_DEFAULT_REGION", "AWS_REGION"), "You must specify a region."),
    ],
)
def test_without_credentials_or_region_it_says_so(
    ops: Ops, monkeypatch: pytest.MonkeyPatch, missing: tuple[str, ...], message: str
) -> None:
    """No stack trace: one line that says what is missing."""
    for name in missing:
        monkeypatch.delenv(name)
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
    assert ops("keys", "ls") == Answer(2, "", f"ops: {message}\n")


def test_what_aws_refuses_is_told_in_a_line(ops: Ops, keys: KeyStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table that is gone, or may not be read, is a sentence as well."""
    monkeypatch.setattr(stack, "outputs", lambda name: {"KeysTable": "gone"})
    answer = ops("keys", "ls")
    assert (answer.status, answer.out) == (2, "")
    assert answer.err.startswith("ops: An error occurred (ResourceNotFoundException)")
    assert answer.err.count("\n") == 1
