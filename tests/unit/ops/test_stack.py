"""The outputs of the stack, and the errors if there are none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber

from core.auth import KeyStore
from ops import stack
from ops.stack import StackNotFound
from tests.unit.ops.conftest import Ops, Result


@pytest.fixture
def cloudformation(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stubber]:
    """A client of CloudFormation that returns the responses of the test."""
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
    """They are read by the name of the stack."""
    describe(cloudformation, "RecadoService", KeysTable="keys-1", JobsTable="jobs-1")
    assert stack.outputs("RecadoService") == {"KeysTable": "keys-1", "JobsTable": "jobs-1"}


def test_another_stack_is_refused(cloudformation: Stubber) -> None:
    """The error names the output that is missing."""
    describe(cloudformation, "Website", Url="https://example.com")
    with pytest.raises(StackNotFound, match="Website has no output KeysTable"):
        stack.outputs("Website")


def test_a_missing_stack_is_named(ops: Ops, cloudformation: Stubber) -> None:
    """The error names the stack, and the exit status is 2."""
    message = "Stack with id RecadoService does not exist"
    cloudformation.add_client_error("describe_stacks", "ValidationError", message)
    assert ops("keys", "ls") == Result(2, "", f"ops: stack RecadoService: {message}\n")


def test_another_stack_can_be_named(ops: Ops, keys: KeyStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--stack` selects a deployment."""
    parts, asked = stack.outputs("RecadoService"), []
    monkeypatch.setattr(stack, "outputs", lambda name: asked.append(name) or parts)
    assert ops("--stack", "RecadoStaging", "keys", "ls").status == 0
    assert ops("keys", "ls").status == 0
    assert asked == ["RecadoStaging", "RecadoService"]


def test_profile_and_region_can_be_named(
    ops: Ops, keys: KeyStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`--profile` and `--region` are those of all clients."""
    configuration = tmp_path / "config"
    configuration.write_text("[profile second]\nregion = eu-south-2\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(configuration))
    for variable in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(variable)
    parts, asked = stack.outputs("RecadoService"), []
    monkeypatch.setattr(stack, "outputs", lambda name: asked.append(boto3.client("s3").meta.region_name) or parts)
    assert ops("--profile", "second", "keys", "ls").status == 0
    assert ops("--profile", "second", "--region", "us-west-2", "keys", "ls").status == 0
    assert asked == ["eu-south-2", "us-west-2"]
    assert ops("--profile", "third", "keys", "ls") == Result(
        2, "", "ops: The config profile (third) could not be found\n"
    )


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
def test_missing_credentials_and_a_missing_region_are_errors(
    ops: Ops, monkeypatch: pytest.MonkeyPatch, missing: tuple[str, ...], message: str
) -> None:
    """The error is one line that says what is missing."""
    for name in missing:
        monkeypatch.delenv(name)
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
    assert ops("keys", "ls") == Result(2, "", f"ops: {message}\n")


def test_an_error_of_aws_is_one_line(ops: Ops, keys: KeyStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table that does not exist is an error without a stack trace."""
    monkeypatch.setattr(stack, "outputs", lambda name: {"KeysTable": "missing"})
    result = ops("keys", "ls")
    assert (result.status, result.out) == (2, "")
    assert result.err.startswith("ops: An error occurred (ResourceNotFoundException)")
    assert result.err.count("\n") == 1
