"""Who may do what. `permissions.json` is the whole list; a grant that is not in it, or not given, fails."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.stacks.machines import RUN_BY_MACHINES, machines
from tests.stacks.templates import ARN, Assembly, Resource, as_list, statements

Grants = dict[str, set[str]]
MACHINES = tuple(f"{kind} machine" for kind in RUN_BY_MACHINES)
EXPECTED = json.loads(Path(__file__).with_name("permissions.json").read_text())
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
    """Name of the role by function; those of the state machines are there too."""
    of_functions = {name: f.properties["Role"] for name, f in app.functions().items()}
    of_machines = {f"{kind} machine": m.resource.properties["RoleArn"] for kind, m in machines(app).items()}
    return {holder: role.removeprefix(ARN) for holder, role in (of_functions | of_machines).items()}


def grants(app: Assembly, holder: str) -> Grants:
    """Actions by resource, of every policy that the holder's role has."""
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
    """Without what every function has: its own log group, and tracing."""
    found = grants(app, holder)
    found.pop("*")
    if holder not in MACHINES:
        assert found.pop(f"{app.functions()[holder].name}Logs") == {"logs:CreateLogStream", "logs:PutLogEvents"}
    return found


def all_grants(app: Assembly) -> dict[str, Grants]:
    return {holder: grants(app, holder) for holder in roles(app)}


@pytest.mark.parametrize("holder", sorted(EXPECTED["grants"]))
def test_grants_are_those_that_were_agreed_on(app: Assembly, holder: str) -> None:
    """Exactly what `permissions.json` says, by action and resource."""
    assert specific(app, holder) == expected(holder)


def test_everybody_is_on_the_list(app: Assembly) -> None:
    """A new function needs an entry, and an entry a function."""
    assert sorted(EXPECTED["grants"]) == sorted(roles(app))


def test_no_role_is_shared(app: Assembly) -> None:
    """As many roles as there are functions and machines; none has a managed or an inline policy beside it."""
    names = list(roles(app).values())
    others = {"GatewayLogs/Role"}  # with which API Gateway writes logs
    of_the_app = [role for role in app.of("AWS::IAM::Role") if role.name not in others]
    assert sorted(set(names)) == sorted(names) == sorted(role.name for role in of_the_app)
    assert all(len(policy.properties["Roles"]) == 1 for policy in app.of("AWS::IAM::Policy"))
    assert {key for role in of_the_app for key in role.properties} == {
        "AssumeRolePolicyDocument",
        "Tags",
    }


def test_everything_is_granted_on_no_more_than_it_must(app: Assembly) -> None:
    """`*` stands as a resource only for actions that know no other."""
    found = {holder: granted["*"] for holder, granted in all_grants(app).items()}
    assert found == {holder: TRACING | WITHOUT_RESOURCE.get(holder, set()) for holder in found}


def test_no_action_is_a_pattern(app: Assembly) -> None:
    """`s3:Get*` would grant tomorrow what nobody has thought of today."""
    actions = {action for granted in all_grants(app).values() for some in granted.values() for action in some}
    assert {action for action in actions if "*" in action} == set()


def test_no_resource_is_a_pattern_but_below_a_name(app: Assembly) -> None:
    """Objects below a prefix, a table's indexes, a machine's executions; never a whole bucket or account."""
    patterns = {r for granted in all_grants(app).values() for r in granted if "*" in r and r != "*"}
    assert {pattern.replace("/*", "").replace(":*", "") for pattern in patterns} <= {
        *("Data/inputs", "Data/uploads", "Data/work", "Data/results", "Data/vectors", "Data/parked"),
        *("Data/aws/lambda", "Jobs/index", "Deliveries/index"),
        *(f"states:eu-west-1:123456789012:execution:{m.resource.name}" for m in machines(app).values()),
        "execute-api:eu-west-1:123456789012:Live/Api/@connections",
    }


def test_secrets_are_sealed_and_opened_by_one_each(app: Assembly) -> None:
    """The API may seal a webhook's secret and not open it; the sender may open it and not seal one."""
    of_the_key = {
        holder: actions
        for holder, granted in all_grants(app).items()
        for resource, actions in granted.items()
        if any(action.startswith("kms:") for action in actions) or resource == "SecretsKey"
    }
    assert of_the_key == {"api": {"kms:Encrypt"}, "sender": {"kms:Decrypt"}}


def test_the_key_is_open_to_policies_alone(app: Assembly) -> None:
    """The key's own policy names nobody but the account, so the roles above are all who can use it."""
    (key,) = app.of("AWS::KMS::Key")
    (statement,) = key.properties["KeyPolicy"]["Statement"]
    assert statement["Principal"] == {"AWS": "arn:aws:iam::123456789012:root"}


def test_only_the_authorizer_reads_keys(app: Assembly) -> None:
    """No other function can read a digest of a key, and the authorizer can do nothing but look one up."""
    readers = {holder: granted["Keys"] for holder, granted in all_grants(app).items() if "Keys" in granted}
    assert readers == {"authorizer": {"dynamodb:GetItem"}}


@pytest.mark.parametrize(
    ("reader", "written"),
    [("search", set()), ("authorizer", set()), ("long_poll", {("Jobs", "dynamodb:PutItem")})],
)
def test_readers_cannot_write(app: Assembly, reader: str, written: set[tuple[str, str]]) -> None:
    """What answers questions changes nothing, but that `wait` notes down the ping that it waits for."""
    writes = WRITES_TO_TABLES | {"s3:PutObject", "s3:DeleteObject", "sqs:SendMessage"}
    found = {(resource, a) for resource, some in specific(app, reader).items() for a in some & writes}
    assert {(resource, action) for resource, action in found if not resource.endswith("/index/*")} == written


def test_who_talks_to_strangers_can_browse_and_remove_nothing(app: Assembly) -> None:
    """The sender reads and writes items whose keys it knows, and has no document within its reach."""
    granted = specific(app, "sender")
    actions = {action for some in granted.values() for action in some}
    browsing = {"dynamodb:Query", "dynamodb:Scan", "dynamodb:DeleteItem"}
    assert actions & browsing == set()
    assert not any(resource.startswith("Data") for resource in granted)


def test_only_the_embedder_and_search_pay_for_the_model(app: Assembly, overridden: Assembly) -> None:
    """Two functions may call the one configured model; none where the model runs inside them."""
    model = "bedrock:eu-west-1::foundation-model/amazon.titan-embed-text-v2:0"
    assert {holder for holder, granted in all_grants(app).items() if model in granted} == {
        "worker",
        "search",
    }
    assert not any("bedrock" in r for granted in all_grants(overridden).values() for r in granted)


def test_roles_are_assumed_by_their_service_alone(app: Assembly) -> None:
    """Lambda takes functions' roles; Step Functions takes machines', for machines of this account only."""
    for holder, name in roles(app).items():
        (role,) = [role for role in app.of("AWS::IAM::Role") if role.name == name]
        (statement,) = role.properties["AssumeRolePolicyDocument"]["Statement"]
        service = "states" if holder in MACHINES else "lambda"
        assert statement["Principal"] == {"Service": f"{service}.amazonaws.com"}
        assert ("Condition" in statement) == (holder in MACHINES)


def test_each_function_is_called_by_whom_it_serves(app: Assembly) -> None:
    """A function's own policy lets in API Gateway or EventBridge, for one API or rule each."""
    callers: dict[str, set[str]] = defaultdict(set)
    for permission in app.of("AWS::Lambda::Permission"):
        properties: Any = permission.properties
        assert properties["Action"] == "lambda:InvokeFunction"
        assert properties["SourceArn"]
        callers[short(properties["FunctionName"])].add(properties["Principal"].removesuffix(".amazonaws.com"))
    by_name = {name: callers[f.name] for name, f in app.functions().items() if f.name in callers}
    assert by_name == {
        **{name: {"apigateway"} for name in ("api", "long_poll", "search", "authorizer", "on_message")},
        **{name: {"events"} for name in ("reaper", "retry_scheduler", "ping", "finish_job")},
    }


def test_the_policy_of_a_function_has_room(app: Assembly) -> None:
    """A function's policy may have 20 KB, and each route that may call it takes a statement of its own.

    https://docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html
    """
    sizes = {name: policy_bytes(app, function) for name, function in app.functions().items()}
    assert max(sizes.values()) < 20_480 / 2


def policy_bytes(app: Assembly, function: Resource) -> int:
    """As AWS writes it, with names of the length they get: 64 characters for functions, 100 for statements."""
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
