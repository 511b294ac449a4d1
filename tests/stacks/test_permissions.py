"""The permissions of all roles. `permissions.json` lists them; an extra or a missing grant fails."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kinds.fine_tune.files import dataset_key, output_prefix
from tests.stacks.machines import RUN_BY_MACHINES, machines
from tests.stacks.templates import ARN, Assembly, Resource, as_list, statements

Grants = dict[str, set[str]]
MACHINES = tuple(f"{kind} machine" for kind in RUN_BY_MACHINES)
EXPECTED = json.loads(Path(__file__).with_name("permissions.json").read_text())
HOLDS = {("Jobs", "dynamodb:PutItem"), ("Jobs", "dynamodb:DeleteItem")}
WRITES_TO_TABLES = {"dynamodb:PutItem", "dynamodb:UpdateItem", "dynamodb:DeleteItem", "dynamodb:BatchWriteItem"}

# AWS offers no resource for these actions:
# https://docs.aws.amazon.com/service-authorization/latest/reference/list_awsx-ray.html
# https://docs.aws.amazon.com/service-authorization/latest/reference/list_amazondynamodb.html
# https://docs.aws.amazon.com/step-functions/latest/dg/cw-logs.html#cloudwatch-iam-policy
TRACING = {"xray:PutTraceSegments", "xray:PutTelemetryRecords"}
OF_A_MACHINE = {
    *("xray:GetSamplingRules", "xray:GetSamplingTargets"),
    *("logs:CreateLogDelivery", "logs:GetLogDelivery", "logs:UpdateLogDelivery", "logs:DeleteLogDelivery"),
    *("logs:ListLogDeliveries", "logs:PutResourcePolicy", "logs:DescribeResourcePolicies"),
    "logs:DescribeLogGroups",
}
WITHOUT_RESOURCE = {
    **{name: {"dynamodb:ListStreams"} for name in ("publisher", "push")},
    **dict.fromkeys(MACHINES, OF_A_MACHINE),
}


def roles(app: Assembly) -> dict[str, str]:
    """Names of the roles of functions and state machines."""
    of_functions = {name: f.properties["Role"] for name, f in app.functions().items()}
    of_machines = {f"{kind} machine": m.resource.properties["RoleArn"] for kind, m in machines(app).items()}
    return {holder: role.removeprefix(ARN) for holder, role in (of_functions | of_machines).items()}


def grants(app: Assembly, holder: str) -> Grants:
    """Actions by resource, from all policies of the holder's role."""
    found: Grants = defaultdict(set)
    role = roles(app)[holder]
    for policy in app.of("AWS::IAM::Policy"):
        if role in policy.properties["Roles"]:
            for statement in statements(policy.properties):
                assert statement["Effect"] == "Allow"
                for resource in as_list(statement["Resource"]):
                    found[short(resource)] |= set(as_list(statement["Action"]))
    return found


def short(arn: str) -> str:
    return arn.removeprefix(ARN).replace("arn:aws:", "")


def expected(holder: str) -> Grants:
    return {resource: set(expand(actions)) for resource, actions in EXPECTED["grants"][holder].items()}


def expand(actions: list[str]) -> Iterator[str]:
    for action in actions:
        yield from EXPECTED["groups"].get(action, [action])


def specific(app: Assembly, holder: str) -> Grants:
    """Grants without those that every function has: its log group, and tracing."""
    found = grants(app, holder)
    found.pop("*")
    if holder not in MACHINES:
        assert found.pop(f"{app.functions()[holder].name}Logs") == {"logs:CreateLogStream", "logs:PutLogEvents"}
    return found


def all_grants(app: Assembly) -> dict[str, Grants]:
    return {holder: grants(app, holder) for holder in roles(app)}


@pytest.mark.parametrize("holder", sorted(EXPECTED["grants"]))
def test_grants_are_those_of_the_list(app: Assembly, holder: str) -> None:
    """The holder has exactly the grants in `permissions.json`."""
    assert specific(app, holder) == expected(holder)


def test_every_holder_is_on_the_list(app: Assembly) -> None:
    """Every function and state machine has an entry, and every entry has a function or state machine."""
    assert sorted(EXPECTED["grants"]) == sorted(roles(app))


def test_no_function_may_scan(app: Assembly) -> None:
    """The jobs table has the keys that links are signed with. An index is only queried."""
    for holder, granted in all_grants(app).items():
        for resource, actions in granted.items():
            assert "dynamodb:Scan" not in actions, holder
            if resource.endswith("/index/*"):
                assert actions == {"dynamodb:Query"}, (holder, resource)


def test_only_who_ends_jobs_or_leases_may_delete_items(app: Assembly) -> None:
    """A stage of a job has no DeleteItem."""
    found = {
        holder for holder, granted in all_grants(app).items() if "dynamodb:DeleteItem" in granted.get("Jobs", ())
    }
    ending = {"api", "dispatch", "finish_job", "reaper", "start_job", "worker"}
    assert found == ending | {"long_poll", "on_message", "ping", "push"}


def test_grants_that_no_recorded_call_used_are_listed(app: Assembly) -> None:
    """Integration tests record calls. What they do not use is listed with its reason, and still granted."""
    listed = [grant for entry in EXPECTED["unexercised"] for grant in entry["grants"]]
    assert len(listed) == len({tuple(grant) for grant in listed})
    assert [grant for grant in listed if grant[2] not in specific(app, grant[0]).get(grant[1], set())] == []
    assert all(entry["reason"].endswith(".") for entry in EXPECTED["unexercised"])


def test_no_role_is_shared(app: Assembly) -> None:
    """Each function and state machine has a role of its own, without managed or inline policies."""
    names = list(roles(app).values())
    others = {"GatewayLogs/Role", "Kinds/FineTune/BedrockRole"}  # API Gateway and Amazon Bedrock assume them
    of_the_app = [role for role in app.of("AWS::IAM::Role") if role.name not in others]
    assert sorted(set(names)) == sorted(names) == sorted(role.name for role in of_the_app)
    assert all(len(policy.properties["Roles"]) == 1 for policy in app.of("AWS::IAM::Policy"))
    assert {key for role in of_the_app for key in role.properties} == {
        "AssumeRolePolicyDocument",
        "Tags",
    }


def test_wildcard_resource_is_only_for_actions_without_resources(app: Assembly) -> None:
    """The resource `*` is only granted for actions that do not support resources."""
    found = {holder: granted["*"] for holder, granted in all_grants(app).items()}
    assert found == {holder: TRACING | WITHOUT_RESOURCE.get(holder, set()) for holder in found}


def test_no_action_is_a_pattern(app: Assembly) -> None:
    """No action has a wildcard: `s3:Get*` would also grant actions that AWS adds later."""
    actions = {action for granted in all_grants(app).values() for some in granted.values() for action in some}
    assert {action for action in actions if "*" in action} == set()


def test_patterns_of_resources(app: Assembly) -> None:
    """Patterns end at a prefix of the bucket, an index, the executions of a machine, or what Bedrock names."""
    patterns = {r for granted in all_grants(app).values() for r in granted if "*" in r and r != "*"}
    assert {pattern.replace("/*", "").replace(":*", "") for pattern in patterns} <= {
        *("Data/inputs", "Data/uploads", "Data/work", "Data/results", "Data/vectors", "Data/parked"),
        *("Data/aws/lambda", "Jobs/index", "Deliveries/index"),
        *(f"states:eu-west-1:123456789012:execution:{m.resource.name}" for m in machines(app).values()),
        "execute-api:eu-west-1:123456789012:Live/Api/@connections",
        *(f"bedrock:eu-west-1:123456789012:{kind}" for kind in ("custom-model", "model-customization-job")),
    }


def test_one_function_encrypts_secrets_and_one_decrypts_them(app: Assembly) -> None:
    """Only `api` may encrypt by the key, and only `sender` may decrypt."""
    of_the_key = {
        holder: actions
        for holder, granted in all_grants(app).items()
        for resource, actions in granted.items()
        if any(action.startswith("kms:") for action in actions) or resource == "SecretsKey"
    }
    assert of_the_key == {"api": {"kms:Encrypt"}, "sender": {"kms:Decrypt"}}


def test_key_policy_allows_the_account_only(app: Assembly) -> None:
    """The key's own policy has one statement, for the account, so roles need a policy to use the key."""
    (key,) = app.of("AWS::KMS::Key")
    (statement,) = key.properties["KeyPolicy"]["Statement"]
    assert statement["Principal"] == {"AWS": "arn:aws:iam::123456789012:root"}


def test_only_the_authorizer_reads_keys(app: Assembly) -> None:
    """Only the authorizer can read API keys, and only by GetItem. Others can read epochs in the same table."""
    readers = {holder: granted["Keys"] for holder, granted in all_grants(app).items() if "Keys" in granted}
    assert all(actions == {"dynamodb:GetItem"} for actions in readers.values())
    limited = {
        holder
        for holder in readers
        for policy in app.of("AWS::IAM::Policy")
        if roles(app)[holder] in policy.properties["Roles"]
        for statement in statements(policy.properties)
        if statement.get("Condition") == {"ForAllValues:StringLike": {"dynamodb:LeadingKeys": ["owner#*"]}}
    }
    assert readers.keys() - limited == {"authorizer"}


@pytest.mark.parametrize(
    ("reader", "written"),
    [("search", set()), ("authorizer", set()), ("long_poll", HOLDS)],
)
def test_readers_cannot_write(app: Assembly, reader: str, written: set[tuple[str, str]]) -> None:
    """Functions that read have no write access, except that `long_poll` stores leases and the `ping` of a test."""
    writes = WRITES_TO_TABLES | {"s3:PutObject", "s3:DeleteObject", "sqs:SendMessage"}
    found = {(resource, a) for resource, some in specific(app, reader).items() for a in some & writes}
    assert {(resource, action) for resource, action in found if not resource.endswith("/index/*")} == written


def test_sender_can_neither_list_nor_delete(app: Assembly) -> None:
    """The sender has no Query, Scan or DeleteItem, and no access to the data bucket."""
    granted = specific(app, "sender")
    actions = {action for some in granted.values() for action in some}
    assert actions & {"dynamodb:Query", "dynamodb:Scan", "dynamodb:DeleteItem"} == set()
    assert not any(resource.startswith("Data") for resource in granted)


def test_worker_and_search_may_call_the_embedding_model(app: Assembly, overridden: Assembly) -> None:
    """Two functions may call the configured model, and none if the model runs inside them."""
    model = "bedrock:eu-west-1::foundation-model/amazon.titan-embed-text-v2:0"
    assert {holder for holder, granted in all_grants(app).items() if model in granted} == {
        "worker",
        "search",
    }
    assert not any(model in granted for granted in all_grants(overridden).values())


def test_worker_alone_may_call_language_models(overridden: Assembly) -> None:
    """The worker may call exactly the configured models, and read the key of the other provider."""
    found = {
        holder: {
            resource: some
            for resource, some in granted.items()
            if re.search("bedrock|secretsmanager", resource) and not any("Customization" in one for one in some)
        }
        for holder, granted in all_grants(overridden).items()
    }
    calls = {"bedrock:InvokeModel", "bedrock:InvokeModelWithResponseStream"}
    assert {holder: some for holder, some in found.items() if some} == {
        "worker": {
            "bedrock:eu-west-1::foundation-model/amazon.nova-micro-v1:0": calls,
            "bedrock:eu-west-1:123456789012:inference-profile/eu.amazon.nova-lite-v1:0": calls,
            "bedrock:*::foundation-model/amazon.nova-lite-v1:0": calls,
            "bedrock:eu-west-1:123456789012:custom-model-deployment/abc": calls,
            "secretsmanager:eu-west-1:123456789012:secret:openai-key-??????": {"secretsmanager:GetSecretValue"},
        }
    }


def test_roles_are_assumed_by_their_service_alone(app: Assembly) -> None:
    """Lambda assumes functions' roles. Step Functions assumes those of machines, under a condition."""
    for holder, name in roles(app).items():
        (role,) = [role for role in app.of("AWS::IAM::Role") if role.name == name]
        (statement,) = role.properties["AssumeRolePolicyDocument"]["Statement"]
        service = "states" if holder in MACHINES else "lambda"
        assert statement["Principal"] == {"Service": f"{service}.amazonaws.com"}
        assert ("Condition" in statement) == (holder in MACHINES)


def test_bedrock_reads_datasets_and_writes_its_files(app: Assembly) -> None:
    """Amazon Bedrock assumes a role for this account's trainings only, and only the worker may pass it on."""
    (role,) = [role for role in app.of("AWS::IAM::Role") if role.name == "Kinds/FineTune/BedrockRole"]
    (trust,) = role.properties["AssumeRolePolicyDocument"]["Statement"]
    assert trust["Principal"] == {"Service": "bedrock.amazonaws.com"}
    assert trust["Condition"] == {
        "StringEquals": {"aws:SourceAccount": "123456789012"},
        "ArnLike": {"aws:SourceArn": "arn:aws:bedrock:eu-west-1:123456789012:model-customization-job/*"},
    }
    (policy,) = [one for one in app.of("AWS::IAM::Policy") if role.name in one.properties["Roles"]]
    found = {
        (action, short(resource))
        for statement in statements(policy.properties)
        for action in as_list(statement["Action"])
        for resource in as_list(statement["Resource"])
    }
    assert found == {
        ("s3:ListBucket", "Data"),
        ("s3:GetObject", f"Data/{dataset_key('*')}"),
        ("s3:GetObject", "Data/results/*/fine_tune/*"),
        ("s3:PutObject", "Data/results/*/fine_tune/*"),
    }
    assert output_prefix("ana", "job_1") == "results/ana/job_1/fine_tune/"
    passing = {holder for holder, granted in all_grants(app).items() if role.name in granted}
    conditions = [
        statement["Condition"]
        for one in app.of("AWS::IAM::Policy")
        for statement in statements(one.properties)
        if statement["Action"] == "iam:PassRole"
    ]
    assert passing == {"worker"}
    assert conditions == [{"StringEquals": {"iam:PassedToService": "bedrock.amazonaws.com"}}]


def test_callers_of_functions(app: Assembly) -> None:
    """Functions' own policies allow API Gateway or EventBridge to invoke them, from one source per statement."""
    callers: dict[str, set[str]] = defaultdict(set)
    for permission in app.of("AWS::Lambda::Permission"):
        properties: Any = permission.properties
        assert properties["Action"] == "lambda:InvokeFunction"
        assert properties["SourceArn"]
        callers[short(properties["FunctionName"])].add(properties["Principal"].removesuffix(".amazonaws.com"))
    by_name = {name: callers[f.name] for name, f in app.functions().items() if f.name in callers}
    assert by_name == {
        **{name: {"apigateway"} for name in ("api", "long_poll", "search", "authorizer", "on_message")},
        **{name: {"events"} for name in ("reaper", "retry_scheduler", "ping", "finish_job", "training_ended")},
    }


def test_size_of_functions_policies(app: Assembly) -> None:
    """The largest function's policy is below half of the limit of 20 KB. Each route adds a statement.

    https://docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html
    """
    sizes = {name: policy_bytes(app, function) for name, function in app.functions().items()}
    assert max(sizes.values()) < 20_480 / 2


def policy_bytes(app: Assembly, function: Resource) -> int:
    """The policy's size with the longest names: 64 characters for functions, 100 for statements."""
    arn = "arn:aws-us-gov:lambda:us-gov-west-1:123456789012:function:" + "f" * 64
    found = [
        {
            "Sid": "s" * 100,
            "Effect": "Allow",
            "Principal": {"Service": permission.properties["Principal"]},
            "Action": permission.properties["Action"],
            "Resource": arn,
            "Condition": {"ArnLike": {"AWS:SourceArn": permission.properties["SourceArn"]}},
        }
        for permission in app.of("AWS::Lambda::Permission")
        if short(permission.properties["FunctionName"]) == function.name
    ]
    return len(json.dumps({"Version": "2012-10-17", "Id": "default", "Statement": found}))
