"""Deploying: in order, all of it or nothing, and once for many tests."""

from __future__ import annotations

from pathlib import Path

import boto3
import pytest
from moto import mock_aws

from tests.support import sample
from tests.support.clock import EPOCH
from tests.support.cloud import Cloud
from tests.support.sample import put
from tests.support.template import Unsupported


def test_stacks_are_deployed_in_order_of_need(deployed: Cloud, it: sample.Sample) -> None:
    """The manifest lists the service first; what it imports comes from the storage stack."""
    assert list(deployed.deployment.outputs) == ["SampleStorage", "SampleService"]
    environment = it.client("lambda").get_function_configuration(
        FunctionName=it.name("AWS::Lambda::Function", "Worker")
    )["Environment"]["Variables"]
    assert environment["TABLE"] == it.name("AWS::DynamoDB::Table", "Table")


def test_an_unknown_type_fails_the_deployment(tmp_path: Path) -> None:
    """A resource that this cloud does not have is named, not skipped."""
    template = {"Resources": {"Ring": {"Type": "AWS::Braket::Ring"}}}
    cloud = Cloud(sample.write_assembly(tmp_path, {"Odd": template}), tmp_path)
    with pytest.raises(Unsupported, match="AWS::Braket::Ring Ring"), cloud.running():
        pass


def test_an_unknown_property_fails_the_deployment(tmp_path: Path) -> None:
    """A property that would be ignored is named, too."""
    template = {"Resources": {"Q": {"Type": "AWS::SQS::Queue", "Properties": {"Colour": "red"}}}}
    cloud = Cloud(sample.write_assembly(tmp_path, {"Odd": template}), tmp_path)
    with pytest.raises(Unsupported, match="Colour"), cloud.running():
        pass


def test_it_is_deployed_again_after_another_test_emptied_moto(deployed: Cloud) -> None:
    """A `mock_aws` of a test's own resets every backend."""
    with mock_aws():
        boto3.client("sqs").create_queue(QueueName="other")
    with deployed.running():
        assert len(deployed.queue("Queue")) == 0


def test_a_reset_leaves_nothing(it: sample.Sample) -> None:
    """Items, stream records, objects, messages, executions and recorded calls are gone."""
    put(it, "a")
    it.client("s3").put_object(Bucket=it.bucket("Bucket"), Key="k", Body=b"x")
    it.queue("Queue").send("m")
    it.start("Asking", {})
    it.settle()
    it.cloud.reset()
    assert it.settle() == 0
    assert it.table("Table").scan()["Count"] == 0
    assert it.client("s3").list_objects_v2(Bucket=it.bucket("Bucket"))["KeyCount"] == 0
    assert (len(it.queue("Queue")), it.executions.all()) == (0, [])
    assert it.clock.time - EPOCH.timestamp() < 1


def test_scripts_find_stacks_through_cloudformation(it: sample.Sample) -> None:
    """Outputs are described as CloudFormation describes them."""
    (stack,) = it.client("cloudformation").describe_stacks(StackName="SampleService")["Stacks"]
    assert stack["Outputs"] == [{"OutputKey": "QueueUrl", "OutputValue": it.queue("Queue").url}]
