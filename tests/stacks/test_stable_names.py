"""Names that may not change without a migration. Add new resources of these types to the lists.

CloudFormation identifies a resource by its logical id, which the CDK derives from the construct's path. Another id
is another resource: a deployment creates it, and then deletes or, if it is retained, abandons the old one.
This is what a change breaks, and what a migration does:

- A stack's name: every resource of the stack is created again. See each resource.
- A table, bucket or key: the new one has no data, or cannot decrypt the secrets. Import the old resource under its
  new id (`cdk import`).
- A key of a table or an index: CloudFormation replaces the table or the index. Copy all items to a new table.
- A queue: it is deleted with its messages. Keep the old queue and its worker until the queue is empty.
- A topic: subscriptions from outside the stack are deleted with it. Keep the old topic until they have moved.
- A state machine: running executions are terminated. Keep the old machine until its last execution has ended.
- A function that a state machine calls: running executions go on calling the old function. Keep it as long.
- An API: its URL is another, and clients have the old one. Keep the old API until they have moved.
- A stage: the deployment fails, because the API has a stage of that name. Remove the old stage first.
- A log group: it is deleted with its logs. Export them first.
- An output: `ops`, `local` and scripts of operators read it by its name. Add the new one and keep the old one.
- An export: the deployment fails, because the service stack imports it. Add the new export, deploy the service
  stack with it, and then remove the old one.

https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/using-cfn-updating-stacks-update-behaviors.html
https://docs.aws.amazon.com/step-functions/latest/apireference/API_DeleteStateMachine.html
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.stacks.machines import machines
from tests.stacks.templates import Assembly, Template, resources

STORAGE, SERVICE = "RecadoStorage", "RecadoService"
LOGICAL_IDS: Mapping[str, Mapping[str, set[str]]] = {
    STORAGE: {
        "AWS::DynamoDB::Table": {"JobsDF1CC2D4", "DeliveriesBF2F7293", "Keys4E30B592"},
        "AWS::S3::Bucket": {"Data666C94C7"},
        "AWS::KMS::Key": {"SecretsKey317DCF94"},
    },
    SERVICE: {
        "AWS::SQS::Queue": {
            "IndexingQueue86BC3118",
            "IndexingDeadLetters18DDD062",
            "EmbeddingQueue8FE9C051",
            "EmbeddingDeadLetters2E2123FF",
            "WebhooksNotifyQueueC7B8ED3C",
            "WebhooksNotifyDeadLetters0C3DB03A",
            "WebhooksQueue9FEFA2C1",
            "WebhooksDeadLetters4F5CA89C",
        },
        "AWS::SNS::Topic": {"FanOutDocEvents7FB2F7E6", "FanOutErrorAlertsBDA55059"},
        "AWS::StepFunctions::StateMachine": {"KindsDocumentMachine8B61F34C"},
        # those that a state machine calls
        "AWS::Lambda::Function": {
            "FunctionsValidateDocument7BF26356",
            "FunctionsChunkDocument57C57479",
            "FunctionsStoreVectorsAD9A7289",
            "FunctionsFinishJob5B889F16",
        },
        "AWS::ApiGateway::RestApi": {"RestApi79D61EE8"},
        "AWS::ApiGateway::Stage": {"RestApiDeploymentStagev1ED1B0EFA"},
        "AWS::ApiGatewayV2::Api": {"LiveApi149456B6"},
        "AWS::ApiGatewayV2::Stage": {"LiveStageA766EFDD"},
        # access logs of both APIs, and the transitions of every execution
        "AWS::Logs::LogGroup": {
            "GatewayLogsAccessDE285286",
            "GatewayLogsLiveAccessC09D7C42",
            "KindsDocumentMachineLogs2350B4E3",
        },
    },
}
LISTED_IN_PART = {"AWS::Lambda::Function", "AWS::Logs::LogGroup"}
OUTPUTS = {
    "ApiUrl",
    "LiveUrl",
    "KeysTable",
    "JobsTable",
    "DataBucket",
    "SecretsKey",
    "DocEventsTopic",
    "ErrorAlertsTopic",
    "DocumentStateMachine",
}
EXPORTS = {
    "RecadoStorage:ExportsOutputRefJobsDF1CC2D40B4BB8E8",
    "RecadoStorage:ExportsOutputFnGetAttJobsDF1CC2D4Arn85C9CFC3",
    "RecadoStorage:ExportsOutputFnGetAttJobsDF1CC2D4StreamArn408D1222",
    "RecadoStorage:ExportsOutputRefDeliveriesBF2F72939C80F584",
    "RecadoStorage:ExportsOutputFnGetAttDeliveriesBF2F7293Arn3864FF30",
    "RecadoStorage:ExportsOutputRefKeys4E30B5924C5B94AA",
    "RecadoStorage:ExportsOutputFnGetAttKeys4E30B592ArnAABB452F",
    "RecadoStorage:ExportsOutputRefData666C94C774A46B8E",
    "RecadoStorage:ExportsOutputFnGetAttData666C94C7Arn0D7E21B7",
    "RecadoStorage:ExportsOutputFnGetAttSecretsKey317DCF94Arn94500D76",
}
GSI1, GSI2 = {"gsi1": ["gsi1pk", "gsi1sk"]}, {"gsi2": ["gsi2pk", "gsi2sk"]}
TABLE_KEYS: Mapping[str, Mapping[str, list[str]]] = {
    "JobsDF1CC2D4": {"table": ["pk", "sk"], **GSI1, **GSI2},
    "DeliveriesBF2F7293": {"table": ["pk", "sk"], **GSI1, **GSI2},
    "Keys4E30B592": {"table": ["pk"]},
}
ASSEMBLIES = ("app", "own", "whole", "overridden")


@pytest.fixture(params=ASSEMBLIES)
def any_app(request: pytest.FixtureRequest) -> Assembly:
    """The app with this project's kinds, with more kinds, and with another configuration."""
    found: Assembly = request.getfixturevalue(request.param)
    return found


def logical_ids(template: Template, kind: str) -> set[str]:
    return {logical_id for logical_id, _ in resources(template, kind)}


# Stacks


def test_stack_names(any_app: Assembly) -> None:
    """The app has these two stacks."""
    assert set(any_app.templates) == set(LOGICAL_IDS)


def test_listed_resources_keep_their_logical_ids(any_app: Assembly) -> None:
    """Every listed resource is in its stack, whatever the configuration and the kinds are."""
    for stack, listed in LOGICAL_IDS.items():
        template = any_app.templates[stack]
        missing = {kind: ids - logical_ids(template, kind) for kind, ids in listed.items()}
        assert not any(missing.values()), (stack, missing)


def test_list_of_logical_ids_is_complete(app: Assembly) -> None:
    """Every resource of a listed type is on the list, except for functions and log groups."""
    types = {kind for listed in LOGICAL_IDS.values() for kind in listed} - LISTED_IN_PART
    found = {
        stack: {kind: ids for kind in types if (ids := logical_ids(template, kind))}
        for stack, template in app.templates.items()
    }
    assert found == {
        stack: {kind: ids for kind, ids in listed.items() if kind in types}
        for stack, listed in LOGICAL_IDS.items()
    }


def test_list_of_called_functions_is_complete(app: Assembly) -> None:
    """Every function that a state machine calls is on the list."""
    called = {function.logical_id for machine in machines(app).values() for function in machine.calling.values()}
    assert called == LOGICAL_IDS[SERVICE]["AWS::Lambda::Function"]


def test_outputs(any_app: Assembly) -> None:
    """The service stack has these outputs."""
    assert set(any_app.templates[SERVICE]["Outputs"]) >= OUTPUTS


def test_exports(app: Assembly) -> None:
    """The storage stack exports exactly these values, which the service stack imports."""
    outputs = app.templates[STORAGE]["Outputs"].values()
    assert {output["Export"]["Name"] for output in outputs if "Export" in output} == EXPORTS


def test_keys_of_tables_and_indexes(storage: Template) -> None:
    """Tables and indexes have these partition and sort keys, all of them strings."""
    found = {}
    for logical_id, table in resources(storage, "AWS::DynamoDB::Table"):
        schemas = {"table": table["KeySchema"]}
        schemas |= {index["IndexName"]: index["KeySchema"] for index in table.get("GlobalSecondaryIndexes", [])}
        found[logical_id] = {
            name: [key["AttributeName"] for key in sorted(schema, key=lambda key: str(key["KeyType"]))]
            for name, schema in schemas.items()
        }
        assert {attribute["AttributeType"] for attribute in table["AttributeDefinitions"]} == {"S"}
    assert found == TABLE_KEYS


# Stored data: attributes of items, prefixes of keys, object keys, and fields of messages
