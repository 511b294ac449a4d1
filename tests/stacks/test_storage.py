"""What holds data outlives the service, keeps nothing longer than is said, and is closed to the world."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.stacks.templates import Assembly, Template, as_list, resources, statements

CONTEXT = json.loads((Path(__file__).parents[2] / "cdk.json").read_text())["context"]
TABLE, BUCKET, KEY = "AWS::DynamoDB::Table", "AWS::S3::Bucket", "AWS::KMS::Key"
STATEFUL = {
    # Another logical id is another resource: CloudFormation would make it anew, empty.
    "JobsDF1CC2D4": TABLE,
    "DeliveriesBF2F7293": TABLE,
    "Keys4E30B592": TABLE,
    "Data666C94C7": BUCKET,
    "SecretsKey317DCF94": KEY,
}


def test_logical_ids_of_what_holds_data_are_pinned(storage: Template) -> None:
    """Tables, bucket and key keep their logical ids, or an update would replace them."""
    found = {i: d["Type"] for i, d in storage["Resources"].items() if d["Type"] in (TABLE, BUCKET, KEY)}
    assert found == STATEFUL


def test_the_service_holds_no_data(service: Template) -> None:
    """The service stack can be deleted and deployed again without losing a job."""
    assert {d["Type"] for d in service["Resources"].values()} & {TABLE, BUCKET, KEY} == set()


def test_data_outlives_its_stack(storage: Template) -> None:
    """By default, neither deleting the stack nor replacing a resource deletes data."""
    policies = {(d["DeletionPolicy"], d["UpdateReplacePolicy"]) for d in stateful(storage)}
    assert policies == {("Retain", "Retain")}


def test_data_goes_with_its_stack_on_request(overridden: Assembly) -> None:
    """`removal_policy: destroy` leaves nothing behind."""
    policies = {
        (d["DeletionPolicy"], d["UpdateReplacePolicy"]) for d in stateful(overridden.templates["RecadoStorage"])
    }
    assert policies == {("Delete", "Delete")}


def stateful(template: Template) -> list[dict[str, str]]:
    return [template["Resources"][logical_id] for logical_id in STATEFUL]


@pytest.mark.parametrize("table", [i for i, kind in STATEFUL.items() if kind == TABLE])
def test_tables_can_be_restored_and_expire(storage: Template, table: str) -> None:
    """Every table has point-in-time recovery, a time to live in `expires_at`, and no capacity to run out of."""
    properties = storage["Resources"][table]["Properties"]
    assert properties["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": True}
    assert properties["TimeToLiveSpecification"] == {"AttributeName": "expires_at", "Enabled": True}
    assert properties["BillingMode"] == "PAY_PER_REQUEST"


@pytest.mark.parametrize("table", ["JobsDF1CC2D4", "DeliveriesBF2F7293"])
def test_jobs_and_deliveries_have_both_indexes_from_the_first_day(storage: Template, table: str) -> None:
    """Two indexes with nothing but keys in them: CloudFormation adds one at a time, and old rows lack keys."""
    indexes = storage["Resources"][table]["Properties"]["GlobalSecondaryIndexes"]
    described = {
        index["IndexName"]: ([key["AttributeName"] for key in index["KeySchema"]], index["Projection"])
        for index in indexes
    }
    keys_only = {"ProjectionType": "KEYS_ONLY"}
    assert described == {"gsi1": (["gsi1pk", "gsi1sk"], keys_only), "gsi2": (["gsi2pk", "gsi2sk"], keys_only)}


def test_only_the_jobs_table_has_a_stream_and_it_carries_what_was_written(storage: Template) -> None:
    """The outbox needs the new image, and no other table is read as a stream."""
    streams = {i: t["StreamSpecification"] for i, t in resources(storage, TABLE) if "StreamSpecification" in t}
    assert streams == {"JobsDF1CC2D4": {"StreamViewType": "NEW_IMAGE"}}


def test_the_bucket_is_closed(storage: Template) -> None:
    """No public access of any sort, encrypted at rest, and nothing over plain HTTP."""
    ((_, bucket),) = resources(storage, BUCKET)
    assert set(bucket["PublicAccessBlockConfiguration"].values()) == {True}
    assert len(bucket["PublicAccessBlockConfiguration"]) == 4
    (encryption,) = bucket["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    assert encryption["ServerSideEncryptionByDefault"]["SSEAlgorithm"] == "AES256"
    ((_, policy),) = resources(storage, "AWS::S3::BucketPolicy")
    (statement,) = statements(policy)
    assert statement["Effect"] == "Deny"
    assert statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
    assert statement["Action"] == "s3:*"


def test_what_is_passing_through_expires_and_vectors_do_not(storage: Template) -> None:
    """Files go before the jobs, large results with them, and `vectors/` only with its documents."""
    ((_, bucket),) = resources(storage, BUCKET)
    expiring = {
        rule["Prefix"]: (rule["ExpirationInDays"], rule["Status"])
        for rule in bucket["LifecycleConfiguration"]["Rules"]
    }
    files = ("inputs/", "uploads/", "work/", "parked/", "aws/lambda/")
    days = dict.fromkeys(files, CONTEXT["file_retention_days"]) | {"results/": CONTEXT["job_retention_days"]}
    assert expiring == {prefix: (kept, "Enabled") for prefix, kept in days.items()}


def test_every_prefix_that_may_be_written_is_known(app: Assembly) -> None:
    """No function may put an object where nothing would ever remove it."""
    written = {
        resource.partition("/")[2].removesuffix("*")
        for policy in app.of("AWS::IAM::Policy")
        for statement in statements(policy.properties)
        if "s3:PutObject" in as_list(statement["Action"])
        for resource in as_list(statement["Resource"])
    }
    assert written == {"inputs/", "uploads/", "work/", "results/", "parked/", "aws/lambda/", "vectors/"}


def test_the_key_turns_over(storage: Template) -> None:
    """KMS makes new key material every year."""
    ((_, key),) = resources(storage, KEY)
    assert key["EnableKeyRotation"] is True


def test_browsers_may_upload_where_they_may_call(storage: Template, overridden: Assembly) -> None:
    """The configured origins, and no others, may PUT to a presigned URL; by default none may."""
    ((_, closed),) = resources(storage, BUCKET)
    assert "CorsConfiguration" not in closed
    ((_, opened),) = resources(overridden.templates["RecadoStorage"], BUCKET)
    (rule,) = opened["CorsConfiguration"]["CorsRules"]
    assert (rule["AllowedOrigins"], rule["AllowedMethods"]) == (["https://app.example.com"], ["PUT"])
