"""Services that moto lacks, answered here: Bedrock's embeddings and CloudFormation's descriptions."""

from __future__ import annotations

import hashlib
import io
import json
import math
import random
from typing import Any

from botocore.response import StreamingBody

from .calls import Answer
from .deployment import Deployment

TITAN = "amazon.titan-embed-text-v2:0"


def embedding(text: str, dimensions: int) -> list[float]:
    """A unit vector that depends on nothing but the text: equal texts are equal, others nearly orthogonal."""
    chance = random.Random(hashlib.sha256(text.encode()).digest())
    values = [chance.gauss(0, 1) for _ in range(dimensions)]
    length = math.hypot(*values)
    return [value / length for value in values]


def invoke_model(params: dict[str, Any]) -> dict[str, Any]:
    """Answers `bedrock-runtime:InvokeModel` as Titan Text Embeddings V2 does."""
    if params["modelId"] != TITAN:
        raise NotImplementedError(f"model {params['modelId']}")
    body = json.loads(params["body"])
    vector = embedding(body["inputText"], body.get("dimensions", 1024))
    tokens = max(1, len(body["inputText"]) // 4)
    answer = {"embedding": vector, "embeddingsByType": {"float": vector}, "inputTextTokenCount": tokens}
    raw = json.dumps(answer).encode()
    return {"contentType": "application/json", "body": StreamingBody(io.BytesIO(raw), len(raw))}


def cloudformation(deployment: Deployment) -> dict[str, Answer]:
    """What scripts ask CloudFormation: the outputs and resources of stacks."""

    def stack(name: str) -> dict[str, Any]:
        outputs = deployment.outputs[name].items()
        return {
            "StackName": name,
            "StackStatus": "CREATE_COMPLETE",
            "Outputs": [{"OutputKey": key, "OutputValue": value} for key, value in outputs],
        }

    def describe_stacks(params: dict[str, Any]) -> dict[str, Any]:
        names = [params["StackName"]] if "StackName" in params else list(deployment.outputs)
        return {"Stacks": [stack(name) for name in names]}

    def resources(params: dict[str, Any]) -> list[dict[str, Any]]:
        return [
            {
                "LogicalResourceId": resource.logical_id,
                "PhysicalResourceId": resource.reference,
                "ResourceType": resource.kind,
                "ResourceStatus": "CREATE_COMPLETE",
            }
            for resource in deployment.resources
            if resource.stack == params["StackName"]
        ]

    return {
        "cloudformation:DescribeStacks": describe_stacks,
        "cloudformation:DescribeStackResources": lambda params: {"StackResources": resources(params)},
        "cloudformation:ListStackResources": lambda params: {"StackResourceSummaries": resources(params)},
        "cloudformation:ListExports": lambda params: {
            "Exports": [{"Name": name, "Value": value} for name, value in deployment.exports.items()]
        },
    }
