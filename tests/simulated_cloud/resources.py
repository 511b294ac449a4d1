"""Creates resources: one function per CloudFormation resource type, which calls the API of the service in moto.

A resource type or a property that is not listed here fails the deployment, so nothing is ignored by accident. The
properties under `kept` are accepted without an effect; other modules may read them from the deployment.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .functions import ACCOUNT, REGION
from .template import Unsupported

Properties = dict[str, Any]


@dataclass
class Resource:
    """A created resource. `reference` is the value of `Ref`, `attributes` are those of `Fn::GetAtt`."""

    kind: str
    stack: str
    logical_id: str
    path: str
    properties: Properties
    reference: str = ""
    attributes: dict[str, Any] = field(default_factory=dict)

    @property
    def physical_name(self) -> str:
        """A generated name that is the same at each deployment: stack, logical id and a hash of both."""
        digest = hashlib.sha256(f"{self.stack}/{self.logical_id}".encode()).hexdigest()[:12].upper()
        return f"{self.stack}-{self.logical_id[:24]}-{digest}"

    def arn(self, service: str, name: str, *, region: str = REGION) -> str:
        return f"arn:aws:{service}:{region}:{ACCOUNT}:{name}"


Client = Callable[[str], Any]
"""Gives the boto3 client of a service."""

Creator = Callable[[Resource, Properties, Client], None]


@dataclass(frozen=True)
class Type:
    create: Creator
    used: frozenset[str]
    kept: frozenset[str]

    def check(self, resource: Resource) -> None:
        if unknown := set(resource.properties) - self.used - self.kept - {"Tags"}:
            raise Unsupported(f"{resource.kind} {resource.logical_id}: {', '.join(sorted(unknown))}")


TYPES: dict[str, Type] = {}


def creates(kind: str, used: str = "", kept: str = "") -> Callable[[Creator], Creator]:
    def register(create: Creator) -> Creator:
        TYPES[kind] = Type(create, frozenset(used.split()), frozenset(kept.split()))
        return create

    return register


def create(resource: Resource, client: Client) -> None:
    """Create the resource and set its `reference` and `attributes`."""
    if resource.kind not in TYPES:
        raise Unsupported(f"{resource.kind} {resource.logical_id}: unknown resource type")
    TYPES[resource.kind].check(resource)
    TYPES[resource.kind].create(resource, resource.properties, client)


def named(kind: str, service: str, prefix: str, *, used: str = "", kept: str = "") -> None:
    """Register a resource type that has only a name and an ARN in the simulation."""

    @creates(kind, used, kept)
    def create_named(resource: Resource, properties: Properties, client: Client) -> None:
        resource.reference = next(
            (str(value) for key, value in properties.items() if key in NAME_PROPERTIES), resource.physical_name
        )
        region = "" if service == "iam" else REGION
        arn = resource.arn(service, prefix + resource.reference, region=region)
        resource.attributes = {"Arn": arn}


NAME_PROPERTIES = {"LogGroupName", "AlarmName", "PolicyName"}

named("AWS::IAM::Policy", "iam", "policy/", kept="PolicyDocument PolicyName Roles Users Groups")
named("AWS::Logs::LogGroup", "logs", "log-group:", kept="RetentionInDays LogGroupName LogGroupClass KmsKeyId")
named("AWS::S3::BucketPolicy", "s3", "policy/", kept="Bucket PolicyDocument")
named("AWS::SNS::TopicPolicy", "sns", "policy/", kept="PolicyDocument Topics")
named("AWS::SQS::QueuePolicy", "sqs", "policy/", kept="PolicyDocument Queues")
named(
    "AWS::CloudWatch::Alarm",
    "cloudwatch",
    "alarm:",
    kept="ActionsEnabled AlarmActions AlarmDescription AlarmName ComparisonOperator DatapointsToAlarm Dimensions "
    "EvaluationPeriods ExtendedStatistic InsufficientDataActions MetricName Metrics Namespace OKActions Period "
    "Statistic Threshold TreatMissingData Unit",
)
named(
    "AWS::Lambda::Permission",
    "lambda",
    "permission:",
    kept="Action FunctionName Principal SourceArn SourceAccount",
)


@creates(
    "AWS::IAM::Role",
    "RoleName AssumeRolePolicyDocument",
    "ManagedPolicyArns Policies Description MaxSessionDuration Path",
)
def role(resource: Resource, properties: Properties, client: Client) -> None:
    # Policies are not attached, because moto does not enforce them; the permissions module reads them.
    name = properties.get("RoleName", resource.physical_name[:64])
    trust = json.dumps(properties["AssumeRolePolicyDocument"])
    created = client("iam").create_role(RoleName=name, AssumeRolePolicyDocument=trust)["Role"]
    resource.reference = name
    resource.attributes = {"Arn": created["Arn"], "RoleId": created["RoleId"]}


@creates(
    "AWS::DynamoDB::Table",
    "KeySchema AttributeDefinitions BillingMode GlobalSecondaryIndexes TableName StreamSpecification "
    "TimeToLiveSpecification",
    "SSESpecification DeletionProtectionEnabled WarmThroughput PointInTimeRecoverySpecification TableClass "
    "OnDemandThroughput ContributorInsightsSpecification",
)
def table(resource: Resource, properties: Properties, client: Client) -> None:
    dynamodb = client("dynamodb")
    passed = {key: properties[key] for key in ("KeySchema", "AttributeDefinitions", "BillingMode")}
    if indexes := properties.get("GlobalSecondaryIndexes"):
        passed["GlobalSecondaryIndexes"] = [without(index, "WarmThroughput") for index in indexes]
    if "StreamSpecification" in properties:
        passed["StreamSpecification"] = {"StreamEnabled": True, **properties["StreamSpecification"]}
    name = properties.get("TableName", resource.physical_name)
    created = dynamodb.create_table(TableName=name, **passed)["TableDescription"]
    if ttl := properties.get("TimeToLiveSpecification"):
        dynamodb.update_time_to_live(TableName=name, TimeToLiveSpecification=ttl)
    resource.reference = name
    resource.attributes = {"Arn": created["TableArn"], "StreamArn": created.get("LatestStreamArn")}


@creates(
    "AWS::S3::Bucket",
    "BucketName",
    "BucketEncryption CorsConfiguration LifecycleConfiguration PublicAccessBlockConfiguration OwnershipControls "
    "NotificationConfiguration LoggingConfiguration",
)
def bucket(resource: Resource, properties: Properties, client: Client) -> None:
    if any(properties.get("NotificationConfiguration", {}).values()):
        raise Unsupported("notifications of a bucket")
    s3, name = client("s3"), properties.get("BucketName", resource.physical_name.lower()[:63])
    s3.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": REGION})
    resource.reference = name
    resource.attributes = {
        "Arn": f"arn:aws:s3:::{name}",
        "DomainName": f"{name}.s3.amazonaws.com",
        "RegionalDomainName": f"{name}.s3.{REGION}.amazonaws.com",
    }


@creates(
    "AWS::KMS::Key", "Description KeySpec KeyUsage", "EnableKeyRotation KeyPolicy PendingWindowInDays Enabled"
)
def key(resource: Resource, properties: Properties, client: Client) -> None:
    created = client("kms").create_key(**without(properties, *TYPES[resource.kind].kept, "Tags"))
    resource.reference = created["KeyMetadata"]["KeyId"]
    resource.attributes = {"Arn": created["KeyMetadata"]["Arn"], "KeyId": resource.reference}


@creates(
    "AWS::SQS::Queue",
    "QueueName VisibilityTimeout MessageRetentionPeriod DelaySeconds RedrivePolicy",
    "SqsManagedSseEnabled KmsMasterKeyId KmsDataKeyReusePeriodSeconds",
)
def queue(resource: Resource, properties: Properties, client: Client) -> None:
    name = properties.get("QueueName", resource.physical_name)
    given = without(properties, "QueueName", "Tags", *TYPES[resource.kind].kept)
    attributes = {key: as_attribute(value) for key, value in given.items()}
    url = client("sqs").create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]
    resource.reference = url
    resource.attributes = {"Arn": resource.arn("sqs", name), "QueueName": name, "QueueUrl": url}


@creates(
    "AWS::SNS::Topic",
    "TopicName",
    "DisplayName KmsMasterKeyId TracingConfig SignatureVersion",
)
def topic(resource: Resource, properties: Properties, client: Client) -> None:
    name = properties.get("TopicName", resource.physical_name)
    resource.reference = client("sns").create_topic(Name=name)["TopicArn"]
    resource.attributes = {"TopicArn": resource.reference, "TopicName": name}


@creates(
    "AWS::SNS::Subscription",
    "TopicArn Protocol Endpoint FilterPolicy RawMessageDelivery RedrivePolicy",
)
def subscription(resource: Resource, properties: Properties, client: Client) -> None:
    if properties["Protocol"] != "sqs":
        raise Unsupported(f"a subscription with protocol {properties['Protocol']}")
    attributes = {
        key: as_attribute(properties[key])
        for key in ("FilterPolicy", "RawMessageDelivery", "RedrivePolicy")
        if key in properties
    }
    created = client("sns").subscribe(
        TopicArn=properties["TopicArn"], Protocol="sqs", Endpoint=properties["Endpoint"], Attributes=attributes
    )
    resource.reference = created["SubscriptionArn"]


@creates(
    "AWS::Lambda::LayerVersion",
    "LayerName",
    "Content CompatibleRuntimes CompatibleArchitectures Description LicenseInfo",
)
def layer(resource: Resource, properties: Properties, client: Client) -> None:
    name = properties.get("LayerName", resource.physical_name)
    created = client("lambda").publish_layer_version(LayerName=name, Content={"ZipFile": EMPTY_ZIP})
    resource.reference = created["LayerVersionArn"]


@creates(
    "AWS::Lambda::Function",
    "FunctionName Handler Runtime Timeout MemorySize Role Environment Architectures Layers Description "
    "EphemeralStorage PackageType",
    "Code TracingConfig LoggingConfig ReservedConcurrentExecutions RecursiveLoop SnapStart "
    "RuntimeManagementConfig",
)
def function(resource: Resource, properties: Properties, client: Client) -> None:
    name = properties.get("FunctionName", resource.physical_name[:64])
    given = without(properties, "FunctionName", "Tags", *TYPES[resource.kind].kept)
    created = client("lambda").create_function(FunctionName=name, Code={"ZipFile": EMPTY_ZIP}, **given)
    resource.reference = name
    resource.attributes = {"Arn": created["FunctionArn"]}


@creates(
    "AWS::Lambda::EventSourceMapping",
    "EventSourceArn FunctionName BatchSize BisectBatchOnFunctionError DestinationConfig Enabled FilterCriteria "
    "FunctionResponseTypes MaximumRecordAgeInSeconds MaximumRetryAttempts StartingPosition",
    "ScalingConfig MaximumBatchingWindowInSeconds ParallelizationFactor MetricsConfig",
)
@creates(
    "AWS::Lambda::EventInvokeConfig",
    "FunctionName MaximumRetryAttempts",
    "Qualifier MaximumEventAgeInSeconds",
)
@creates("AWS::Events::Rule", "EventPattern ScheduleExpression State Targets", "Name Description EventBusName")
def simulated(resource: Resource, properties: Properties, client: Client) -> None:
    """Nothing is created in moto: this package implements these types from their properties."""
    resource.reference = properties.get("Name", resource.physical_name)
    resource.attributes = {"Arn": resource.arn("events", f"rule/{resource.reference}"), "Id": resource.reference}


@creates(
    "AWS::StepFunctions::StateMachine",
    "StateMachineName DefinitionString DefinitionSubstitutions RoleArn",
    "LoggingConfiguration TracingConfiguration EncryptionConfiguration",
)
def state_machine(resource: Resource, properties: Properties, client: Client) -> None:
    definition = str(properties["DefinitionString"])
    for name, value in properties.get("DefinitionSubstitutions", {}).items():
        definition = definition.replace(f"${{{name}}}", str(value))
    name = properties.get("StateMachineName", resource.physical_name)
    created = client("stepfunctions").create_state_machine(
        name=name,
        definition=definition,
        roleArn=properties["RoleArn"],
    )
    resource.reference = created["stateMachineArn"]
    resource.attributes = {"Arn": resource.reference, "Name": name}


@creates(
    "AWS::ApiGateway::RestApi",
    "",
    "Name Description EndpointConfiguration MinimumCompressionSize Policy DisableExecuteApiEndpoint "
    "ApiKeySourceType FailOnWarnings",
)
def rest_api(resource: Resource, properties: Properties, client: Client) -> None:
    resource.reference = short_id(resource)
    resource.attributes = {"RootResourceId": f"{resource.reference}root", "RestApiId": resource.reference}


@creates("AWS::ApiGateway::Resource", "RestApiId ParentId PathPart")
@creates(
    "AWS::ApiGateway::Method",
    "RestApiId ResourceId HttpMethod Integration AuthorizationType AuthorizerId",
    "ApiKeyRequired AuthorizationScopes MethodResponses OperationName",
)
@creates(
    "AWS::ApiGateway::Authorizer",
    "RestApiId Type AuthorizerUri IdentitySource AuthorizerResultTtlInSeconds",
    "Name AuthorizerCredentials IdentityValidationExpression",
)
@creates(
    "AWS::ApiGateway::GatewayResponse", "RestApiId ResponseType StatusCode ResponseParameters ResponseTemplates"
)
@creates("AWS::ApiGateway::Deployment", "RestApiId", "Description StageDescription StageName")
@creates("AWS::ApiGateway::Account", "", "CloudWatchRoleArn")
def rest_api_part(resource: Resource, properties: Properties, client: Client) -> None:
    require(resource, "AuthorizationType", "NONE", "CUSTOM")
    require(resource, "Type", "REQUEST")
    resource.reference = short_id(resource)
    names = ("ResourceId", "AuthorizerId", "DeploymentId", "Id")
    resource.attributes = dict.fromkeys(names, resource.reference)


@creates(
    "AWS::ApiGateway::Stage",
    "RestApiId StageName",
    "DeploymentId AccessLogSetting MethodSettings TracingEnabled Description CacheClusterEnabled",
)
def rest_api_stage(resource: Resource, properties: Properties, client: Client) -> None:
    resource.reference = properties["StageName"]


@creates(
    "AWS::ApiGatewayV2::Api",
    "ProtocolType RouteSelectionExpression",
    "Name Description DisableSchemaValidation IpAddressType",
)
def websocket_api(resource: Resource, properties: Properties, client: Client) -> None:
    require(resource, "ProtocolType", "WEBSOCKET")
    resource.reference = short_id(resource)
    endpoint = f"wss://{resource.reference}.execute-api.{REGION}.amazonaws.com"
    resource.attributes = {"ApiEndpoint": endpoint, "ApiId": resource.reference}


@creates(
    "AWS::ApiGatewayV2::Route",
    "ApiId RouteKey Target AuthorizationType",
    "OperationName",
)
@creates(
    "AWS::ApiGatewayV2::Integration",
    "ApiId IntegrationType IntegrationUri TimeoutInMillis",
    "Description IntegrationMethod PassthroughBehavior PayloadFormatVersion",
)
def websocket_part(resource: Resource, properties: Properties, client: Client) -> None:
    require(resource, "AuthorizationType", "NONE")
    require(resource, "IntegrationType", "AWS_PROXY")
    resource.reference = short_id(resource)
    names = ("RouteId", "IntegrationId")
    resource.attributes = dict.fromkeys(names, resource.reference)


@creates(
    "AWS::ApiGatewayV2::Stage",
    "ApiId StageName AutoDeploy",
    "DefaultRouteSettings RouteSettings AccessLogSettings Description",
)
def websocket_stage(resource: Resource, properties: Properties, client: Client) -> None:
    if not properties.get("AutoDeploy"):
        raise Unsupported(f"{resource.kind} {resource.logical_id}: no AutoDeploy")
    resource.reference = properties["StageName"]


def require(resource: Resource, name: str, *supported: str) -> None:
    """Raise `Unsupported` if the property has another value than these."""
    if resource.properties.get(name, supported[0]) not in supported:
        raise Unsupported(f"{resource.kind} {resource.logical_id}: {name} {resource.properties[name]}")


def short_id(resource: Resource) -> str:
    return hashlib.sha256(f"{resource.stack}/{resource.logical_id}".encode()).hexdigest()[:10]


def without(properties: Properties, *names: str) -> Properties:
    return {key: value for key, value in properties.items() if key not in names}


def as_attribute(value: Any) -> str:
    """SQS and SNS take every attribute as a string."""
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value) if isinstance(value, dict) else str(value)


def empty_zip() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("empty", "")
    return buffer.getvalue()


EMPTY_ZIP = empty_zip()
