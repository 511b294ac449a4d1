"""A small cloud assembly for the tests of this package. Its functions run scripts that a test provides."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.simulated_cloud.cloud import Cloud

Script = Callable[[Any, Any], Any]
FUNCTIONS = ("worker", "reader", "mirror", "step", "ended", "sweeper", "web", "guard", "greet", "talk")
HANDLER = """from cloud_sample import run


def handler(event, context):
    return run({name!r}, event, context)
"""
SHARED = """import functools
import os

scripts = {}


def run(name, event, context):
    return scripts[name](event, context)


@functools.cache
def settings():
    return dict(os.environ)


class Cache(dict):
    def cache_clear(self):
        self.clear()


cache = Cache()
"""


def getatt(logical_id: str, attribute: str = "Arn") -> dict[str, Any]:
    return {"Fn::GetAtt": [logical_id, attribute]}


def imported(name: str) -> dict[str, Any]:
    return {"Fn::ImportValue": f"SampleStorage:{name}"}


def invocation(logical_id: str) -> dict[str, Any]:
    path = ["arn:aws:apigateway:eu-west-1:lambda:path/2015-03-31/functions/", getatt(logical_id), "/invocations"]
    return {"Fn::Join": ["", path]}


STORAGE: dict[str, Any] = {
    "Resources": {
        "Table": {
            "Type": "AWS::DynamoDB::Table",
            "Properties": {
                "KeySchema": [
                    {"AttributeName": "pk", "KeyType": "HASH"},
                    {"AttributeName": "sk", "KeyType": "RANGE"},
                ],
                "AttributeDefinitions": [
                    {"AttributeName": "pk", "AttributeType": "S"},
                    {"AttributeName": "sk", "AttributeType": "S"},
                ],
                "BillingMode": "PAY_PER_REQUEST",
                "StreamSpecification": {"StreamViewType": "NEW_IMAGE"},
                "TimeToLiveSpecification": {"AttributeName": "expires_at", "Enabled": True},
            },
        },
        "Bucket": {"Type": "AWS::S3::Bucket"},
        "Key": {"Type": "AWS::KMS::Key", "Properties": {"EnableKeyRotation": True, "KeyPolicy": {}}},
    },
    "Outputs": {
        name: {"Value": value, "Export": {"Name": f"SampleStorage:{name}"}}
        for name, value in {
            "TableName": {"Ref": "Table"},
            "StreamArn": getatt("Table", "StreamArn"),
            "BucketArn": getatt("Bucket"),
        }.items()
    },
}


def functions() -> dict[str, Any]:
    allowed = {"Effect": "Allow", "Action": "dynamodb:Put*", "Resource": "arn:aws:dynamodb:*:*:table/Sample*"}
    posting = {
        "Effect": "Allow",
        "Action": "execute-api:ManageConnections",
        "Resource": {"Fn::Sub": "arn:aws:execute-api:*:*:${Live}/v1/POST/@connections/*"},
    }
    policy = {"PolicyName": "p", "PolicyDocument": {"Statement": [allowed, posting]}, "Roles": [{"Ref": "Role"}]}
    role: dict[str, Any] = {"AssumeRolePolicyDocument": {"Statement": []}}
    made: dict[str, Any] = {
        "Role": {"Type": "AWS::IAM::Role", "Properties": role},
        "Policy": {"Type": "AWS::IAM::Policy", "Properties": policy},
    }
    for name in FUNCTIONS:
        made[name.title()] = {
            "Type": "AWS::Lambda::Function",
            "Properties": {
                "Handler": f"sample_{name}.handler.handler",
                "Runtime": "python3.13",
                "Role": getatt("Role"),
                "Timeout": 30,
                "Code": {"S3Bucket": {"Fn::Sub": "assets-${AWS::AccountId}"}, "S3Key": "code.zip"},
                "Environment": {"Variables": {"TABLE": imported("TableName"), "NAME": name}},
            },
        }
    return made


def messaging() -> dict[str, Any]:
    return {
        "Topic": {"Type": "AWS::SNS::Topic"},
        "Dead": {"Type": "AWS::SQS::Queue"},
        "Queue": {
            "Type": "AWS::SQS::Queue",
            "Properties": {
                "VisibilityTimeout": 180,
                "RedrivePolicy": {"deadLetterTargetArn": getatt("Dead"), "maxReceiveCount": 5},
            },
        },
        "Subscription": {
            "Type": "AWS::SNS::Subscription",
            "Properties": {
                "TopicArn": {"Ref": "Topic"},
                "Protocol": "sqs",
                "Endpoint": getatt("Queue"),
                "RawMessageDelivery": True,
                "FilterPolicy": {"kind": ["wanted"]},
            },
        },
        "QueueMapping": {
            "Type": "AWS::Lambda::EventSourceMapping",
            "Properties": {
                "EventSourceArn": getatt("Queue"),
                "FunctionName": {"Ref": "Worker"},
                "BatchSize": 4,
                "FunctionResponseTypes": ["ReportBatchItemFailures"],
                "ScalingConfig": {"MaximumConcurrency": 2},
            },
        },
        "StreamMapping": {
            "Type": "AWS::Lambda::EventSourceMapping",
            "Properties": {
                "EventSourceArn": imported("StreamArn"),
                "FunctionName": {"Ref": "Reader"},
                "BatchSize": 4,
                "StartingPosition": "TRIM_HORIZON",
                "FunctionResponseTypes": ["ReportBatchItemFailures"],
                "BisectBatchOnFunctionError": True,
                "MaximumRetryAttempts": 2,
                "MaximumRecordAgeInSeconds": 3600,
                "DestinationConfig": {"OnFailure": {"Destination": imported("BucketArn")}},
                "FilterCriteria": {
                    "Filters": [
                        {
                            "Pattern": json.dumps(
                                {"eventName": ["INSERT"], "dynamodb": {"NewImage": {"entity": {"S": ["event"]}}}}
                            )
                        }
                    ]
                },
            },
        },
    }


def second_reader() -> dict[str, Any]:
    """A second mapping of the same stream, with two filters: shared new events, and changes of unseen items."""
    image = {"entity": {"S": ["event"]}, "shared": {"BOOL": [True]}}
    patterns: list[dict[str, Any]] = [
        {"eventName": ["INSERT"], "dynamodb": {"NewImage": image}},
        {"eventName": ["MODIFY"], "dynamodb": {"NewImage": {"seen": {"BOOL": [False]}}}},
    ]
    return {
        "MirrorMapping": {
            "Type": "AWS::Lambda::EventSourceMapping",
            "Properties": {
                "EventSourceArn": imported("StreamArn"),
                "FunctionName": {"Ref": "Mirror"},
                "StartingPosition": "LATEST",
                "FilterCriteria": {"Filters": [{"Pattern": json.dumps(pattern)} for pattern in patterns]},
            },
        }
    }


def machine(states: dict[str, Any], **more: Any) -> dict[str, Any]:
    definition = {"StartAt": next(iter(states)), "States": states, **more}
    text = json.dumps(definition).replace('"STEP"', '"${Step}"').replace('"QUEUE"', '"${Queue}"')
    before, _, after = text.partition("${Step}")
    return {
        "Type": "AWS::StepFunctions::StateMachine",
        "Properties": {
            # CDK writes a definition with tokens as a Join
            "DefinitionString": {"Fn::Join": ["", [before, "${Step}", after] if after else [text]]},
            "DefinitionSubstitutions": {"Step": getatt("Step"), "Queue": {"Ref": "Queue"}},
            "RoleArn": getatt("Role"),
        },
    }


def invoke_step(**more: Any) -> dict[str, Any]:
    return {
        "Type": "Task",
        "Resource": "arn:aws:states:::lambda:invoke",
        "Parameters": {"FunctionName": "STEP", "Payload.$": "$"},
        "OutputPath": "$.Payload",
        "End": True,
        **more,
    }


def ask(**more: Any) -> dict[str, Any]:
    return {
        "Type": "Task",
        "Resource": "arn:aws:states:::sqs:sendMessage.waitForTaskToken",
        "Parameters": {"QueueUrl": "QUEUE", "MessageBody": {"token.$": "$$.Task.Token", "item.$": "$"}},
        "End": True,
        **more,
    }


RETRY = [{"ErrorEquals": ["Unavailable"], "IntervalSeconds": 10, "BackoffRate": 2, "MaxAttempts": 3}]
CATCH = [{"ErrorEquals": ["States.ALL"], "ResultPath": "$.error", "Next": "Failed"}]
FAILED = {"Type": "Pass", "End": True}


def machines() -> dict[str, Any]:
    items = {"Type": "Map", "ItemsPath": "$.items", "MaxConcurrency": 2, "End": True}
    iteration = {"StartAt": "Ask", "States": {"Ask": ask()}}
    return {
        "Calling": machine({"Call": invoke_step(Retry=RETRY, Catch=CATCH), "Failed": FAILED}),
        "Waiting": machine(
            {"Wait": {"Type": "Wait", "Seconds": 3600, "Next": "Call"}, "Call": invoke_step()},
            TimeoutSeconds=86400,
        ),
        "Asking": machine({"Ask": ask(TimeoutSeconds=600, Catch=CATCH), "Failed": FAILED}),
        "Mapping": machine({"Each": {**items, "ItemProcessor": iteration, "Catch": CATCH}, "Failed": FAILED}),
        "Limited": machine({"Ask": ask()}, TimeoutSeconds=300),
    }


def rules() -> dict[str, Any]:
    pattern = {
        "source": ["aws.states"],
        "detail-type": ["Step Functions Execution Status Change"],
        "detail": {"status": ["FAILED", "TIMED_OUT", "ABORTED"]},
    }
    return {
        "SweeperConfig": {
            "Type": "AWS::Lambda::EventInvokeConfig",
            "Properties": {
                "FunctionName": {"Ref": "Sweeper"},
                "Qualifier": "$LATEST",
                "MaximumRetryAttempts": 0,
            },
        },
        "EndedRule": {
            "Type": "AWS::Events::Rule",
            "Properties": {"EventPattern": pattern, "Targets": [{"Arn": getatt("Ended"), "Id": "0"}]},
        },
        "SweepRule": {
            "Type": "AWS::Events::Rule",
            "Properties": {
                "ScheduleExpression": "rate(5 minutes)",
                "Targets": [{"Arn": getatt("Sweeper"), "Id": "0"}],
            },
        },
    }


def api() -> dict[str, Any]:
    here = {"RestApiId": {"Ref": "Api"}}

    def part(kind: str, **properties: Any) -> dict[str, Any]:
        return {"Type": f"AWS::ApiGateway::{kind}", "Properties": {**here, **properties}}

    def below(parent: Any, path: str) -> dict[str, Any]:
        return part("Resource", ParentId=parent, PathPart=path)

    def method(resource: Any, verb: str, **properties: Any) -> dict[str, Any]:
        integration = {"Type": "AWS_PROXY", "IntegrationHttpMethod": "POST", "Uri": invocation("Web")}
        given = {"ResourceId": resource, "HttpMethod": verb, "Integration": integration, **properties}
        return part("Method", **given)

    guarded = {"AuthorizationType": "CUSTOM", "AuthorizerId": {"Ref": "Guards"}}
    preflight = {
        "Type": "MOCK",
        "IntegrationResponses": [
            {
                "StatusCode": "204",
                "ResponseParameters": {"method.response.header.Access-Control-Allow-Origin": "'*'"},
            }
        ],
    }
    return {
        "Api": {"Type": "AWS::ApiGateway::RestApi"},
        "Guards": part(
            "Authorizer",
            Type="REQUEST",
            AuthorizerUri=invocation("Guard"),
            IdentitySource="method.request.header.Authorization",
            AuthorizerResultTtlInSeconds=300,
        ),
        "Things": below(getatt("Api", "RootResourceId"), "things"),
        "Thing": below({"Ref": "Things"}, "{thing_id}"),
        "Special": below({"Ref": "Things"}, "special"),
        "Rest": below(getatt("Api", "RootResourceId"), "{proxy+}"),
        "PostThings": method({"Ref": "Things"}, "POST"),
        "OptionsThings": method({"Ref": "Things"}, "OPTIONS", Integration=preflight),
        "AnyThing": method({"Ref": "Thing"}, "ANY", **guarded),
        "GetSpecial": method({"Ref": "Special"}, "GET"),
        "AnyRest": method({"Ref": "Rest"}, "ANY"),
        "Unauthorized": part(
            "GatewayResponse",
            ResponseType="UNAUTHORIZED",
            StatusCode="401",
            ResponseParameters={"gatewayresponse.header.WWW-Authenticate": "'Bearer'"},
            ResponseTemplates={"application/problem+json": '{"title":$context.error.messageString}'},
        ),
        "Stage": part("Stage", StageName="v1", DeploymentId={"Ref": "Deployment"}),
        "Deployment": part("Deployment"),
    }


def socket_api() -> dict[str, Any]:
    """A WebSocket API as CDK writes it."""

    def part(kind: str, **properties: Any) -> dict[str, Any]:
        return {"Type": f"AWS::ApiGatewayV2::{kind}", "Properties": {"ApiId": {"Ref": "Live"}, **properties}}

    def integration(function: str, **properties: Any) -> dict[str, Any]:
        return part("Integration", IntegrationType="AWS_PROXY", IntegrationUri=invocation(function), **properties)

    def route(key: str, name: str) -> dict[str, Any]:
        target = {"Fn::Join": ["", ["integrations/", {"Ref": name}]]}
        return part("Route", RouteKey=key, Target=target, AuthorizationType="NONE")

    return {
        "Live": {
            "Type": "AWS::ApiGatewayV2::Api",
            "Properties": {
                "Name": "live",
                "ProtocolType": "WEBSOCKET",
                "RouteSelectionExpression": "$request.body.action",
            },
        },
        "GreetIntegration": integration("Greet"),
        "TalkIntegration": integration("Talk", TimeoutInMillis=5000),
        "ConnectRoute": route("$connect", "GreetIntegration"),
        "DisconnectRoute": route("$disconnect", "GreetIntegration"),
        "TellRoute": route("tell", "TalkIntegration"),
        "DefaultRoute": route("$default", "TalkIntegration"),
        "LiveStage": part(
            "Stage", StageName="v1", AutoDeploy=True, DefaultRouteSettings={"ThrottlingRateLimit": 10}
        ),
    }


SERVICE: dict[str, Any] = {
    "Resources": {
        **functions(),
        **messaging(),
        **second_reader(),
        **machines(),
        **rules(),
        **api(),
        **socket_api(),
    },
    "Outputs": {"QueueUrl": {"Value": {"Ref": "Queue"}}},
}


def write_assembly(folder: Path, templates: dict[str, dict[str, Any]]) -> Path:
    """Write a `cdk.out` with these stacks, each of which depends on the one before it."""
    artifacts: dict[str, Any] = {}
    for name, template in templates.items():
        (folder / f"{name}.template.json").write_text(json.dumps(template))
        artifacts[name] = {
            "type": "aws:cloudformation:stack",
            "properties": {"templateFile": f"{name}.template.json"},
            "dependencies": list(artifacts)[-1:],
        }
    (folder / "manifest.json").write_text(json.dumps({"artifacts": dict(reversed(artifacts.items()))}))
    return folder


def write_functions(folder: Path) -> Path:
    """Write handlers that run the scripts in `cloud_sample.scripts`."""
    (folder / "cloud_sample.py").write_text(SHARED)
    for name in FUNCTIONS:
        package = folder / f"sample_{name}"
        package.mkdir()
        (package / "__init__.py").write_text("")
        (package / "handler.py").write_text(HANDLER.format(name=name))
    return folder


class Sample:
    """The simulated cloud with the sample. `scripts` are the functions by name; by default they return None."""

    def __init__(self, cloud: Cloud, scripts: dict[str, Script]) -> None:
        self.cloud = cloud
        self.scripts = scripts
        scripts.clear()
        scripts.update({name: lambda event, context: None for name in FUNCTIONS})

    def __getattr__(self, name: str) -> Any:
        return getattr(self.cloud, name)

    def start(self, machine: str, payload: Any, name: str = "run") -> str:
        arn = self.cloud.name("AWS::StepFunctions::StateMachine", machine)
        started = self.cloud.client("stepfunctions").start_execution(
            stateMachineArn=arn, name=name, input=json.dumps(payload)
        )
        return str(started["executionArn"])


def put(sample: Sample, pk: str, sk: str = "1", **attributes: Any) -> None:
    sample.table("Table").put_item(Item={"pk": pk, "sk": sk, **attributes})


def collect(into: list[Any], answer: Any = None) -> Script:
    """A function that records the message bodies of each batch."""

    def script(event: Any, context: Any) -> Any:
        into.append([record["body"] for record in event["Records"]])
        return answer

    return script


def failing(*bodies: str) -> Script:
    """A function that reports the messages with these bodies as failed."""

    def script(event: Any, context: Any) -> Any:
        failed = [record["messageId"] for record in event["Records"] if record["body"] in bodies]
        return {"batchItemFailures": [{"itemIdentifier": identifier} for identifier in failed]}

    return script


def raising(event: Any, context: Any) -> Any:
    """A function that fails."""
    raise RuntimeError("no")


def names(event: Any) -> list[str]:
    """The partition keys of a batch of stream records."""
    return [record["dynamodb"]["Keys"]["pk"]["S"] for record in event["Records"]]
