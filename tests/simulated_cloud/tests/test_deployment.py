"""Deployment of a cloud assembly."""

from __future__ import annotations

from pathlib import Path

import boto3
import pytest
from moto import mock_aws

from tests.simulated_cloud.clock import EPOCH
from tests.simulated_cloud.cloud import Cloud
from tests.simulated_cloud.template import Unsupported
from tests.simulated_cloud.tests.sample import Sample, put, write_assembly


def test_stacks_are_deployed_in_the_order_of_their_dependencies(deployed: Cloud, sample: Sample) -> None:
    """The service stack, first in the manifest, can import from the storage stack."""
    assert list(deployed.deployment.outputs) == ["SampleStorage", "SampleService"]
    environment = sample.client("lambda").get_function_configuration(
        FunctionName=sample.name("AWS::Lambda::Function", "Worker")
    )["Environment"]["Variables"]
    assert environment["TABLE"] == sample.name("AWS::DynamoDB::Table", "Table")


def test_an_unknown_type_fails_the_deployment(tmp_path: Path) -> None:
    """The error names a resource type that the simulation lacks."""
    template = {"Resources": {"Ring": {"Type": "AWS::Braket::Ring"}}}
    cloud = Cloud(write_assembly(tmp_path, {"Odd": template}), tmp_path)
    with pytest.raises(Unsupported, match="AWS::Braket::Ring Ring"), cloud.running():
        pass


def test_an_unknown_property_fails_the_deployment(tmp_path: Path) -> None:
    """The error names a property that the simulation would ignore."""
    template = {"Resources": {"Q": {"Type": "AWS::SQS::Queue", "Properties": {"Colour": "red"}}}}
    cloud = Cloud(write_assembly(tmp_path, {"Odd": template}), tmp_path)
    with pytest.raises(Unsupported, match="Colour"), cloud.running():
        pass


def test_a_condition_fails_the_deployment(tmp_path: Path) -> None:
    """The error names a resource that may or may not be created."""
    template = {"Resources": {"Q": {"Type": "AWS::SQS::Queue", "Condition": "Wanted"}}}
    cloud = Cloud(write_assembly(tmp_path, {"Odd": template}), tmp_path)
    with pytest.raises(Unsupported, match="AWS::SQS::Queue Q: Condition"), cloud.running():
        pass


def test_it_is_deployed_again_after_another_test_emptied_moto(deployed: Cloud) -> None:
    """A `mock_aws` in another test, which resets every backend, does no harm."""
    with mock_aws():
        boto3.client("sqs").create_queue(QueueName="other")
    with deployed.running():
        assert len(deployed.queue("Queue")) == 0


def test_a_reset_leaves_nothing(sample: Sample) -> None:
    """Items, stream records, objects, messages, executions and recorded calls are removed."""
    put(sample, "a")
    sample.client("s3").put_object(Bucket=sample.bucket("Bucket"), Key="k", Body=b"x")
    sample.queue("Queue").send("m")
    sample.start("Asking", {})
    sample.settle()
    sample.cloud.reset()
    assert sample.settle() == 0
    assert sample.table("Table").scan()["Count"] == 0
    assert sample.client("s3").list_objects_v2(Bucket=sample.bucket("Bucket"))["KeyCount"] == 0
    assert (len(sample.queue("Queue")), sample.executions.all()) == (0, [])
    assert sample.clock.time - EPOCH.timestamp() < 1


def test_scripts_read_the_outputs_of_a_stack(sample: Sample) -> None:
    """CloudFormation describes a stack with its outputs."""
    (stack,) = sample.client("cloudformation").describe_stacks(StackName="SampleService")["Stacks"]
    assert stack["Outputs"] == [{"OutputKey": "QueueUrl", "OutputValue": sample.queue("Queue").url}]
