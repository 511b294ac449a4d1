"""The storage stack: deletion policies, tables, the data bucket with its expiry, and the key."""

from __future__ import annotations

import json
from pathlib import Path

from tests.stacks.templates import Assembly, Template, as_list, resources, statements

CONTEXT = json.loads((Path(__file__).parents[2] / "cdk.json").read_text())["context"]
TABLE, BUCKET, KEY = "AWS::DynamoDB::Table", "AWS::S3::Bucket", "AWS::KMS::Key"
STATEFUL = {TABLE, BUCKET, KEY}


def test_service_stack_has_no_data(service: Template) -> None:
    """The service stack has no table, bucket or key, so it can be deleted and deployed again."""
    assert {definition["Type"] for definition in service["Resources"].values()} & STATEFUL == set()


def test_data_is_retained_by_default(storage: Template) -> None:
    """By default, tables, bucket and key are kept when the stack is deleted or a resource is replaced."""
    policies = {(d["DeletionPolicy"], d["UpdateReplacePolicy"]) for d in stateful(storage)}
    assert policies == {("Retain", "Retain")}


def test_data_is_deleted_with_its_stack_if_configured(overridden: Assembly) -> None:
    """`removal_policy: destroy` deletes tables, bucket and key with the stack."""
    policies = {
        (d["DeletionPolicy"], d["UpdateReplacePolicy"]) for d in stateful(overridden.templates["RecadoStorage"])
    }
    assert policies == {("Delete", "Delete")}


def test_whoever_deletes_data_is_told_what_stays(overridden: Assembly, whole: Assembly) -> None:
    """With `removal_policy: destroy`, synthesis says that the bucket is not emptied."""
    said = "It does not empty the data bucket"
    assert said in overridden.metadata
    assert said not in whole.metadata


def stateful(template: Template) -> list[dict[str, str]]:
    found = [definition for definition in template["Resources"].values() if definition["Type"] in STATEFUL]
    assert {definition["Type"] for definition in found} == STATEFUL
    return found


def test_tables_can_be_restored_and_expire_items(storage: Template) -> None:
    """Every table has point-in-time recovery, a time to live in `expires_at`, and on-demand capacity."""
    for _, properties in resources(storage, TABLE):
        assert properties["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": True}
        assert properties["TimeToLiveSpecification"] == {"AttributeName": "expires_at", "Enabled": True}
        assert properties["BillingMode"] == "PAY_PER_REQUEST"


def test_indexes_have_only_keys(storage: Template) -> None:
    """Indexes do not repeat the attributes of items. test_stable_names.py lists their keys."""
    indexes = [
        index for _, table in resources(storage, TABLE) for index in table.get("GlobalSecondaryIndexes", [])
    ]
    assert [index["Projection"] for index in indexes] == [{"ProjectionType": "KEYS_ONLY"}] * 4


def test_only_the_jobs_table_has_a_stream(app: Assembly) -> None:
    """The stream has new images, which the outbox needs."""
    tables = {table.name: table.properties.get("StreamSpecification") for table in app.of(TABLE)}
    streams = {name: stream for name, stream in tables.items() if stream}
    assert streams == {"Jobs": {"StreamViewType": "NEW_IMAGE"}}


def test_the_bucket_is_closed(storage: Template) -> None:
    """The bucket blocks public access, encrypts objects, and denies plain HTTP."""
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


def test_expiry_of_objects(storage: Template) -> None:
    """Files expire after `file_retention_days`, results after `job_retention_days`, and `vectors/` never."""
    ((_, bucket),) = resources(storage, BUCKET)
    expiring = {
        rule["Prefix"]: (rule["ExpirationInDays"], rule["Status"])
        for rule in bucket["LifecycleConfiguration"]["Rules"]
    }
    files = ("inputs/", "uploads/", "work/", "parked/", "aws/lambda/")
    days = dict.fromkeys(files, CONTEXT["file_retention_days"]) | {"results/": CONTEXT["job_retention_days"]}
    assert expiring == {prefix: (kept, "Enabled") for prefix, kept in days.items()}


def test_prefixes_that_functions_may_write(app: Assembly) -> None:
    """Functions and Amazon Bedrock may write only below prefixes that expire, and below `vectors/`."""
    written = {
        resource.partition("/")[2].removesuffix("*")
        for policy in app.of("AWS::IAM::Policy")
        for statement in statements(policy.properties)
        if "s3:PutObject" in as_list(statement["Action"])
        for resource in as_list(statement["Resource"])
    }
    prefixes = {"inputs/", "uploads/", "work/", "results/", "parked/", "aws/lambda/", "vectors/"}
    assert written == prefixes | {"results/*/fine_tune/"}


def test_key_rotation_is_enabled(storage: Template) -> None:
    """KMS rotates the key's material every year."""
    ((_, key),) = resources(storage, KEY)
    assert key["EnableKeyRotation"] is True


def test_cors_of_uploads(storage: Template, overridden: Assembly) -> None:
    """Only configured origins may PUT to a presigned URL, and by default none."""
    ((_, closed),) = resources(storage, BUCKET)
    assert "CorsConfiguration" not in closed
    ((_, opened),) = resources(overridden.templates["RecadoStorage"], BUCKET)
    (rule,) = opened["CorsConfiguration"]["CorsRules"]
    assert (rule["AllowedOrigins"], rule["AllowedMethods"]) == (["https://app.example.com"], ["PUT"])
