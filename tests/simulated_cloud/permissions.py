"""Finds calls of functions that their roles do not allow. moto allows every call.

Only identity policies are read. A condition counts as met in an Allow statement and as unmet in a Deny statement.
So this finds missing grants, and proves nothing about conditions, key policies or bucket policies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any
from urllib.parse import urlsplit

from .calls import Call
from .deployment import Deployment
from .functions import ACCOUNT, REGION
from .iam_policies import covers, listed
from .template import handler_folder
from .websocket_api import METHODS, SERVICE, is_own

# An action and the ARN of its resource. A call may need several.
Permission = tuple[str, str]
WRITES = {"Put": "PutItem", "Update": "UpdateItem", "Delete": "DeleteItem", "ConditionCheck": "ConditionCheckItem"}
S3_ACTIONS = {
    "HeadObject": "GetObject",
    "DeleteObjects": "DeleteObject",
    "ListObjectsV2": "ListBucket",
    "ListObjects": "ListBucket",
    "HeadBucket": "ListBucket",
    "CopyObject": "PutObject",
    "CreateMultipartUpload": "PutObject",
    "UploadPart": "PutObject",
    "CompleteMultipartUpload": "PutObject",
}


def arn(service: str, name: str) -> str:
    return f"arn:aws:{service}:{REGION}:{ACCOUNT}:{name}"


def dynamodb(operation: str, params: dict[str, Any]) -> Iterator[Permission]:
    if operation in ("TransactWriteItems", "TransactGetItems"):
        for item in params["TransactItems"]:
            ((kind, part),) = item.items()
            yield f"dynamodb:{WRITES.get(kind, 'GetItem')}", table(part["TableName"])
    elif operation in ("BatchGetItem", "BatchWriteItem"):
        for name in params["RequestItems"]:
            yield f"dynamodb:{operation}", table(name)
    else:
        index = f"/index/{params['IndexName']}" if "IndexName" in params else ""
        yield f"dynamodb:{operation}", table(params["TableName"]) + index


def table(name: str) -> str:
    return name if name.startswith("arn:") else arn("dynamodb", f"table/{name}")


def s3(operation: str, params: dict[str, Any]) -> Iterator[Permission]:
    action = S3_ACTIONS.get(operation, operation)
    keys = [item["Key"] for item in params.get("Delete", {}).get("Objects", [])] or [params.get("Key")]
    for key in keys:
        below = f"/{key}" if key is not None else ""
        yield f"s3:{action}", f"arn:aws:s3:::{params['Bucket']}{below}"
    if "CopySource" in params:
        source = params["CopySource"]
        yield "s3:GetObject", f"arn:aws:s3:::{source['Bucket']}/{source['Key']}"


def sqs(operation: str, params: dict[str, Any]) -> Iterator[Permission]:
    yield f"sqs:{operation.removesuffix('Batch')}", arn("sqs", params["QueueUrl"].rsplit("/", 1)[1])


def sns(operation: str, params: dict[str, Any]) -> Iterator[Permission]:
    yield f"sns:{operation.removesuffix('Batch')}", params["TopicArn"]


def states(operation: str, params: dict[str, Any]) -> Iterator[Permission]:
    # A task token does not name its state machine.
    yield f"states:{operation}", params.get("stateMachineArn") or params.get("executionArn") or "*"


def kms(operation: str, params: dict[str, Any]) -> Iterator[Permission]:
    # The ciphertext of Decrypt names its key.
    yield f"kms:{operation}", params.get("KeyId", "*")


_BEDROCK_ACTIONS = {"Converse": "InvokeModel", "ConverseStream": "InvokeModelWithResponseStream"}
"""https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ConverseStream.html"""


def customization(operation: str, params: dict[str, Any]) -> Iterator[Permission]:
    if operation == "CreateModelCustomizationJob":
        model = params["baseModelIdentifier"]
        yield f"bedrock:{operation}", f"arn:aws:bedrock:{REGION}::foundation-model/{model}"
        yield "iam:PassRole", params["roleArn"]
    else:
        yield f"bedrock:{operation}", arn("bedrock", f"model-customization-job/{params['jobIdentifier']}")


def bedrock(operation: str, params: dict[str, Any]) -> Iterator[Permission]:
    yield (
        f"bedrock:{_BEDROCK_ACTIONS.get(operation, operation)}",
        f"arn:aws:bedrock:{REGION}::foundation-model/{params['modelId']}",
    )


def events(operation: str, params: dict[str, Any]) -> Iterator[Permission]:
    for entry in params["Entries"]:
        yield "events:PutEvents", arn("events", f"event-bus/{entry.get('EventBusName', 'default')}")


def lambda_(operation: str, params: dict[str, Any]) -> Iterator[Permission]:
    name = params["FunctionName"]
    yield "lambda:InvokeFunction", name if name.startswith("arn:") else arn("lambda", f"function:{name}")


def connections(call: Call) -> Iterator[Permission]:
    # API Gateway's own endpoint names the API and its stage; a custom domain name does not.
    endpoint = call.client.meta.endpoint_url
    place = urlsplit(endpoint)
    path = f"{(place.hostname or '').split('.')[0]}{place.path.rstrip('/')}/{METHODS[call.operation]}"
    resource = arn("execute-api", f"{path}/@connections/{call.params['ConnectionId']}")
    yield "execute-api:ManageConnections", resource if is_own(endpoint) else "*"


SERVICES: dict[str, Callable[[str, dict[str, Any]], Iterator[Permission]]] = {
    "bedrock": customization,
    "bedrock-runtime": bedrock,
    "dynamodb": dynamodb,
    "events": events,
    "kms": kms,
    "lambda": lambda_,
    "s3": s3,
    "sns": sns,
    "sqs": sqs,
    "stepfunctions": states,
}


def permissions_for(call: Call) -> Iterator[Permission]:
    """The permissions that a call needs. Raises LookupError for a service that is not in `SERVICES`."""
    if call.service == SERVICE:
        return connections(call)
    if call.service not in SERVICES:
        raise LookupError(f"{call.function} calls {call.action}: add the permissions of this service to SERVICES")
    return SERVICES[call.service](call.operation, call.params)


class Permissions:
    """The policy statements of each function's role, by the function's short name."""

    def __init__(self, deployment: Deployment) -> None:
        policies = self._policies(deployment)
        self._statements = {
            handler_folder(resource.properties["Handler"]): policies.get(
                resource.properties["Role"].rsplit("/", 1)[1], []
            )
            for resource in deployment.of("AWS::Lambda::Function")
        }

    def denied(self, calls: Iterable[Call]) -> list[str]:
        """The calls of functions that are not allowed, as `function: action on resource`."""
        needed = {
            (call.function, action, resource)
            for call in calls
            if call.function
            for action, resource in permissions_for(call)
        }
        return sorted(f"{need[0]}: {need[1]} on {need[2]}" for need in needed if not self._allows(*need))

    def _policies(self, deployment: Deployment) -> dict[str, list[dict[str, Any]]]:
        found: dict[str, list[dict[str, Any]]] = {}
        for role in deployment.of("AWS::IAM::Role"):
            documents = [policy["PolicyDocument"] for policy in role.properties.get("Policies", [])]
            found[role.reference] = [one for document in documents for one in document["Statement"]]
        for policy in deployment.of("AWS::IAM::Policy"):
            for role_name in policy.properties.get("Roles", []):
                found[role_name] += policy.properties["PolicyDocument"]["Statement"]
        return found

    def _allows(self, function: str, action: str, resource: str) -> bool:
        effects = {
            statement["Effect"]
            for statement in self._statements[function]
            if not (statement["Effect"] == "Deny" and "Condition" in statement)
            and any(covers(pattern, action) for pattern in listed(statement.get("Action", [])))
            and any(resource == "*" or covers(pattern, resource) for pattern in listed(statement["Resource"]))
        }
        return effects == {"Allow"}
