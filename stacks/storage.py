"""StorageStack: the data, which outlives the service. Deleting the service stack deletes nothing of it."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import Annotations, Duration, RemovalPolicy, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from constructs import Construct

from stacks.config import Config

# Lambda's on-failure destination writes stream records below this prefix, which cannot be configured:
# https://docs.aws.amazon.com/lambda/latest/dg/services-dynamodb-errors.html
DISCARDED = "aws/lambda/"
EXPIRING = ("inputs/", "uploads/", "work/", "parked/", DISCARDED)
RESULTS = "results/"
"""Results that are too large for the job's item. They are kept as long as the job."""


_DESTROYED = (
    "removal_policy is destroy: `cdk destroy` deletes the tables with all jobs and keys, and the KMS key after 30 "
    "days. It does not empty the data bucket, and fails while the bucket has objects: see docs/deploy.md, Removal"
)


class StorageStack(Stack):
    """Tables, the data bucket, and the key that encrypts webhook secrets."""

    def __init__(self, scope: Construct, construct_id: str, *, config: Config, **kwargs: object) -> None:
        super().__init__(scope, construct_id, **kwargs)  # type: ignore[arg-type]
        self._removal = RemovalPolicy.RETAIN if config.removal_policy == "retain" else RemovalPolicy.DESTROY
        if config.removal_policy == "destroy":
            Annotations.of(self).add_info(_DESTROYED)
        self.jobs = self._indexed(self._table("Jobs", stream=True))
        self.deliveries = self._indexed(self._table("Deliveries"))
        self.keys = self._table("Keys", sort_key=False)
        self.data = self._data_bucket(config)
        self.secrets_key = kms.Key(
            self,
            "SecretsKey",
            description="Encrypts webhook secrets: only the API may encrypt, only the sender may decrypt",
            enable_key_rotation=True,
            removal_policy=self._removal,
        )
        self._export()

    def _export(self) -> None:
        """Export all that the service may use, whether or not this version of it does.

        This stack is deployed first, and CloudFormation removes no export that the deployed service imports. So
        without this, a version of the service that stops using one could not be deployed.
        """
        tables = (self.jobs, self.deliveries, self.keys)
        names = [self.jobs.table_stream_arn, self.data.bucket_name, self.data.bucket_arn, self.secrets_key.key_arn]
        for value in (*names, *(each for table in tables for each in (table.table_name, table.table_arn))):
            self.export_value(value)

    def _table(self, construct_id: str, *, sort_key: bool = True, stream: bool = False) -> dynamodb.Table:
        string = dynamodb.AttributeType.STRING
        return dynamodb.Table(
            self,
            construct_id,
            partition_key=dynamodb.Attribute(name="pk", type=string),
            sort_key=dynamodb.Attribute(name="sk", type=string) if sort_key else None,
            billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
            time_to_live_attribute="expires_at",
            stream=dynamodb.StreamViewType.NEW_IMAGE if stream else None,
            point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
                point_in_time_recovery_enabled=True
            ),
            removal_policy=self._removal,
        )

    def _indexed(self, table: dynamodb.Table) -> dynamodb.Table:
        """Both indexes exist from the first deployment: CloudFormation adds one at a time, old items lack keys.

        gsi1: an owner's jobs and an endpoint's deliveries, by time. gsi2: open jobs by deadline, and deliveries by
        the time when they are due or by the reason why they were never made.
        """
        for name in ("gsi1", "gsi2"):
            table.add_global_secondary_index(
                index_name=name,
                partition_key=dynamodb.Attribute(name=f"{name}pk", type=dynamodb.AttributeType.STRING),
                sort_key=dynamodb.Attribute(name=f"{name}sk", type=dynamodb.AttributeType.STRING),
                projection_type=dynamodb.ProjectionType.KEYS_ONLY,
            )
        return table

    def _data_bucket(self, config: Config) -> s3.Bucket:
        """`vectors/` has no expiry: its objects are deleted with their documents."""
        bucket = s3.Bucket(
            self,
            "Data",
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            encryption=s3.BucketEncryption.S3_MANAGED,
            enforce_ssl=True,
            removal_policy=self._removal,
            cors=[_upload_cors(config.cors_origins)] if config.cors_origins else None,
        )
        days = dict.fromkeys(EXPIRING, config.file_retention_days) | {RESULTS: config.job_retention_days}
        for prefix, kept in days.items():
            bucket.add_lifecycle_rule(
                prefix=prefix,
                expiration=Duration.days(kept),
                abort_incomplete_multipart_upload_after=Duration.days(1),
            )
        return bucket

    def grant_objects(
        self,
        function: iam.IGrantable,
        *,
        read: Sequence[str] = (),
        write: Sequence[str] = (),
        delete: Sequence[str] = (),
        abort: Sequence[str] = (),
    ) -> None:
        """Allow exactly these actions on objects below these prefixes, and to list the bucket.

        Without s3:ListBucket, S3 answers 403 instead of 404 for an object that does not exist.
        """
        iam.Grant.add_to_principal(
            grantee=function, actions=["s3:ListBucket"], resource_arns=[self.data.bucket_arn]
        )
        granted = {
            "s3:GetObject": read,
            "s3:PutObject": write,
            "s3:DeleteObject": delete,
            "s3:AbortMultipartUpload": abort,
        }
        for action, prefixes in granted.items():
            if prefixes:
                arns = [self.data.arn_for_objects(f"{prefix}*") for prefix in prefixes]
                iam.Grant.add_to_principal(grantee=function, actions=[action], resource_arns=arns)

    def grant_jobs(self, function: iam.IGrantable, *calls: str, index: bool = False) -> None:
        """Allow these calls of DynamoDB on the jobs table, and with `index` to query its indexes.

        The table holds the keys that links are signed with, so no function may scan it.
        """
        _grant_items(function, self.jobs, calls, index=index)

    def grant_deliveries(self, function: iam.IGrantable, *calls: str, index: bool = False) -> None:
        """The same for the deliveries table."""
        _grant_items(function, self.deliveries, calls, index=index)

    def grant_epochs(self, function: iam.IGrantable) -> None:
        """Allow to read the epochs of owners in the table of keys, and no key."""
        iam.Grant.add_to_principal(
            grantee=function,
            actions=table_actions("GetItem"),
            resource_arns=[self.keys.table_arn],
            conditions={"ForAllValues:StringLike": {"dynamodb:LeadingKeys": ["owner#*"]}},
        )


def _grant_items(function: iam.IGrantable, table: dynamodb.Table, calls: Sequence[str], *, index: bool) -> None:
    """An operation of a transaction needs the permission of its own call, such as PutItem."""
    iam.Grant.add_to_principal(grantee=function, actions=table_actions(*calls), resource_arns=[table.table_arn])
    if index:
        indexes = f"{table.table_arn}/index/*"
        iam.Grant.add_to_principal(grantee=function, actions=table_actions("Query"), resource_arns=[indexes])


def table_actions(*names: str) -> list[str]:
    """IAM actions by the names of DynamoDB's API calls."""
    return [f"dynamodb:{name}" for name in names]


def _upload_cors(origins: tuple[str, ...]) -> s3.CorsRule:
    return s3.CorsRule(
        allowed_methods=[s3.HttpMethods.PUT],
        allowed_origins=list(origins),
        allowed_headers=["content-type", "content-length", "if-none-match"],
        exposed_headers=["etag"],
        max_age=3600,
    )
