"""One function per CloudFormation resource type, each through the service's own API.

A type or a property that is not named here fails the deployment: nothing is left out in silence.  Properties
under `kept` have no effect in this cloud, and are there for what reads the deployment.
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
    """What a template's resource became. `reference` is the value of `Ref`."""

    kind: str
    stack: str
    logical_id: str
    path: str
    properties: Properties
    reference: str = ""
    attributes: dict[str, Any] = field(default_factory=dict)

    @property
    def physical_name(self) -> str:
        """The same at each deployment: stack, logical id and a suffix made from both."""
        digest = hashlib.sha256(f"{self.stack}/{self.logical_id}".encode()).hexdigest()[:12].upper()
        return f"{self.stack}-{self.logical_id[:24]}-{digest}"

    def arn(self, service: str, name: str, *, region: str = REGION) -> str:
        return f"arn:aws:{service}:{region}:{ACCOUNT}:{name}"


@dataclass(frozen=True)
class Tools:
    """What creators use: clients by service name, and the text of a file asset by its key."""

    client: Callable[[str], Any]
    asset: Callable[[str], str]


Creator = Callable[[Resource, Properties, Tools], None]


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


def create(resource: Resource, tools: Tools) -> None:
    """Create it and fill in `reference` and `attributes`."""
    if resource.kind not in TYPES:
        raise Unsupported(f"{resource.kind} {resource.logical_id}: unknown resource type")
    TYPES[resource.kind].check(resource)
    TYPES[resource.kind].create(resource, resource.properties, tools)


def named(kind: str, service: str, prefix: str, *, used: str = "", kept: str = "") -> None:
    """A resource that only has a name and an ARN here."""

    @creates(kind, used, kept)
    def create_named(resource: Resource, properties: Properties, tools: Tools) -> None:
        resource.reference = next(
            (str(value) for key, value in properties.items() if key in NAME_PROPERTIES), resource.physical_name
        )
        region = "" if service == "iam" else REGION
        arn = resource.arn(service, prefix + resource.reference, region=region)
        resource.attributes = {"Arn": arn}


NAME_PROPERTIES = {"LogGroupName", "AlarmName", "PolicyName", "DashboardName"}

named("AWS::IAM::Policy", "iam", "policy/", kept="PolicyDocument PolicyName Roles Users Groups")
named("AWS::IAM::ManagedPolicy", "iam", "policy/", kept="PolicyDocument Roles Description Path ManagedPolicyName")
named("AWS::Logs::LogGroup", "logs", "log-group:", kept="RetentionInDays LogGroupName LogGroupClass KmsKeyId")
named("AWS::Logs::MetricFilter", "logs", "metric-filter:", kept="FilterPattern LogGroupName MetricTransformations")
named("AWS::Logs::ResourcePolicy", "logs", "policy:", kept="PolicyDocument PolicyName")
named("AWS::CloudWatch::Dashboard", "cloudwatch", "dashboard/", kept="DashboardBody DashboardName")
named("AWS::CDK::Metadata", "cdk", "", kept="Analytics")
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
    "AWS::CloudWatch::CompositeAlarm",
    "cloudwatch",
    "alarm:",
    kept="ActionsEnabled AlarmActions AlarmDescription AlarmName AlarmRule OKActions",
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
def role(resource: Resource, properties: Properties, tools: Tools) -> None:
    # Policies are kept, not attached: moto does not enforce them.
    name = properties.get("RoleName", resource.physical_name[:64])
    trust = json.dumps(properties["AssumeRolePolicyDocument"])
    created = tools.client("iam").create_role(RoleName=name, AssumeRolePolicyDocument=trust)["Role"]
    resource.reference = name
    resource.attributes = {"Arn": created["Arn"], "RoleId": created["RoleId"]}


TABLE_PROPERTIES = (
    "KeySchema AttributeDefinitions BillingMode GlobalSecondaryIndexes LocalSecondaryIndexes TableName "
    "StreamSpecification TimeToLiveSpecification"
)
TABLE_KEPT = "SSESpecification DeletionProtectionEnabled WarmThroughput"


@creates(
    "AWS::DynamoDB::Table",
    TABLE_PROPERTIES,
    f"{TABLE_KEPT} PointInTimeRecoverySpecification TableClass OnDemandThroughput "
    "ContributorInsightsSpecification",
)
@creates("AWS::DynamoDB::GlobalTable", TABLE_PROPERTIES, f"{TABLE_KEPT} Replicas WriteOnDemandThroughputSettings")
def table(resource: Resource, properties: Properties, tools: Tools) -> None:
    dynamodb = tools.client("dynamodb")
    passed = {key: properties[key] for key in ("KeySchema", "AttributeDefinitions", "BillingMode")}
    for key in ("GlobalSecondaryIndexes", "LocalSecondaryIndexes"):
        if key in properties:
            passed[key] = [without(index, "WarmThroughput") for index in properties[key]]
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
    "BucketName VersioningConfiguration",
    "BucketEncryption CorsConfiguration LifecycleConfiguration PublicAccessBlockConfiguration OwnershipControls "
    "NotificationConfiguration LoggingConfiguration",
)
def bucket(resource: Resource, properties: Properties, tools: Tools) -> None:
    if any(properties.get("NotificationConfiguration", {}).values()):
        raise Unsupported("notifications of a bucket")
    s3, name = tools.client("s3"), properties.get("BucketName", resource.physical_name.lower()[:63])
    s3.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": REGION})
    if versioning := properties.get("VersioningConfiguration"):
        s3.put_bucket_versioning(Bucket=name, VersioningConfiguration=versioning)
    resource.reference = name
    resource.attributes = {
        "Arn": f"arn:aws:s3:::{name}",
        "DomainName": f"{name}.s3.amazonaws.com",
        "RegionalDomainName": f"{name}.s3.{REGION}.amazonaws.com",
    }


@creates(
    "AWS::KMS::Key", "Description KeySpec KeyUsage", "EnableKeyRotation KeyPolicy PendingWindowInDays Enabled"
)
def key(resource: Resource, properties: Properties, tools: Tools) -> None:
    created = tools.client("kms").create_key(**without(properties, *TYPES[resource.kind].kept, "Tags"))
    resource.reference = created["KeyMetadata"]["KeyId"]
    resource.attributes = {"Arn": created["KeyMetadata"]["Arn"], "KeyId": resource.reference}


@creates("AWS::KMS::Alias", "AliasName TargetKeyId")
def alias(resource: Resource, properties: Properties, tools: Tools) -> None:
    target = properties["TargetKeyId"].rsplit("/", 1)[-1]
    tools.client("kms").create_alias(AliasName=properties["AliasName"], TargetKeyId=target)
    resource.reference = properties["AliasName"]


@creates(
    "AWS::SQS::Queue",
    "QueueName VisibilityTimeout MessageRetentionPeriod DelaySeconds RedrivePolicy FifoQueue MaximumMessageSize "
    "ContentBasedDeduplication ReceiveMessageWaitTimeSeconds DeduplicationScope FifoThroughputLimit "
    "RedriveAllowPolicy",
    "SqsManagedSseEnabled KmsMasterKeyId KmsDataKeyReusePeriodSeconds",
)
def queue(resource: Resource, properties: Properties, tools: Tools) -> None:
    suffix = ".fifo" if properties.get("FifoQueue") else ""
    name = properties.get("QueueName", resource.physical_name + suffix)
    given = without(properties, "QueueName", "Tags", *TYPES[resource.kind].kept)
    attributes = {key: as_attribute(value) for key, value in given.items()}
    url = tools.client("sqs").create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]
    resource.reference = url
    resource.attributes = {"Arn": resource.arn("sqs", name), "QueueName": name, "QueueUrl": url}


@creates(
    "AWS::SNS::Topic",
    "TopicName FifoTopic ContentBasedDeduplication",
    "DisplayName KmsMasterKeyId TracingConfig SignatureVersion FifoThroughputScope",
)
def topic(resource: Resource, properties: Properties, tools: Tools) -> None:
    name = properties.get("TopicName", resource.physical_name + (".fifo" if properties.get("FifoTopic") else ""))
    given = {
        key: as_attribute(properties[key])
        for key in ("FifoTopic", "ContentBasedDeduplication")
        if key in properties
    }
    resource.reference = tools.client("sns").create_topic(Name=name, Attributes=given)["TopicArn"]
    resource.attributes = {"TopicArn": resource.reference, "TopicName": name}


@creates(
    "AWS::SNS::Subscription",
    "TopicArn Protocol Endpoint FilterPolicy FilterPolicyScope RawMessageDelivery RedrivePolicy Region",
)
def subscription(resource: Resource, properties: Properties, tools: Tools) -> None:
    if properties["Protocol"] != "sqs":
        raise Unsupported(f"a subscription with protocol {properties['Protocol']}")
    attributes = {
        key: as_attribute(properties[key])
        for key in ("FilterPolicy", "FilterPolicyScope", "RawMessageDelivery", "RedrivePolicy")
        if key in properties
    }
    created = tools.client("sns").subscribe(
        TopicArn=properties["TopicArn"], Protocol="sqs", Endpoint=properties["Endpoint"], Attributes=attributes
    )
    resource.reference = created["SubscriptionArn"]


@creates(
    "AWS::Lambda::LayerVersion",
    "LayerName",
    "Content CompatibleRuntimes CompatibleArchitectures Description LicenseInfo",
)
def layer(resource: Resource, properties: Properties, tools: Tools) -> None:
    name = properties.get("LayerName", resource.physical_name)
    created = tools.client("lambda").publish_layer_version(LayerName=name, Content={"ZipFile": EMPTY_ZIP})
    resource.reference = created["LayerVersionArn"]


@creates(
    "AWS::Lambda::Function",
    "FunctionName Handler Runtime Timeout MemorySize Role Environment Architectures Layers Description "
    "EphemeralStorage PackageType",
    "Code TracingConfig LoggingConfig ReservedConcurrentExecutions RecursiveLoop DeadLetterConfig SnapStart "
    "RuntimeManagementConfig",
)
def function(resource: Resource, properties: Properties, tools: Tools) -> None:
    name = properties.get("FunctionName", resource.physical_name[:64])
    given = without(properties, "FunctionName", "Tags", *TYPES[resource.kind].kept)
    created = tools.client("lambda").create_function(FunctionName=name, Code={"ZipFile": EMPTY_ZIP}, **given)
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
    "FunctionName MaximumRetryAttempts DestinationConfig",
    "Qualifier MaximumEventAgeInSeconds",
)
@creates("AWS::Events::Rule", "EventPattern ScheduleExpression State Targets", "Name Description EventBusName")
def noted(resource: Resource, properties: Properties, tools: Tools) -> None:
    """Run by this package itself, from the deployment's properties."""
    resource.reference = properties.get("Name", resource.physical_name)
    resource.attributes = {"Arn": resource.arn("events", f"rule/{resource.reference}"), "Id": resource.reference}


@creates(
    "AWS::StepFunctions::StateMachine",
    "StateMachineName StateMachineType DefinitionString Definition DefinitionS3Location DefinitionSubstitutions "
    "RoleArn",
    "LoggingConfiguration TracingConfiguration EncryptionConfiguration",
)
def state_machine(resource: Resource, properties: Properties, tools: Tools) -> None:
    definition = definition_of(properties, tools)
    for name, value in properties.get("DefinitionSubstitutions", {}).items():
        definition = definition.replace(f"${{{name}}}", str(value))
    name = properties.get("StateMachineName", resource.physical_name)
    created = tools.client("stepfunctions").create_state_machine(
        name=name,
        definition=definition,
        roleArn=properties["RoleArn"],
        type=properties.get("StateMachineType", "STANDARD"),
    )
    resource.reference = created["stateMachineArn"]
    resource.attributes = {"Arn": resource.reference, "Name": name}


def definition_of(properties: Properties, tools: Tools) -> str:
    if "DefinitionString" in properties:
        return str(properties["DefinitionString"])
    if "Definition" in properties:
        return json.dumps(properties["Definition"])
    return tools.asset(properties["DefinitionS3Location"]["Key"])


@creates(
    "AWS::ApiGateway::RestApi",
    "BinaryMediaTypes",
    "Name Description EndpointConfiguration MinimumCompressionSize Policy DisableExecuteApiEndpoint "
    "ApiKeySourceType FailOnWarnings",
)
def rest_api(resource: Resource, properties: Properties, tools: Tools) -> None:
    resource.reference = short_id(resource)
    resource.attributes = {"RootResourceId": f"{resource.reference}root", "RestApiId": resource.reference}


@creates("AWS::ApiGateway::Resource", "RestApiId ParentId PathPart")
@creates(
    "AWS::ApiGateway::Method",
    "RestApiId ResourceId HttpMethod Integration AuthorizationType AuthorizerId RequestModels RequestParameters "
    "RequestValidatorId",
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
@creates("AWS::ApiGateway::RequestValidator", "RestApiId ValidateRequestBody ValidateRequestParameters", "Name")
@creates("AWS::ApiGateway::Deployment", "RestApiId", "Description StageDescription StageName")
@creates("AWS::ApiGateway::Account", "", "CloudWatchRoleArn")
def gateway_part(resource: Resource, properties: Properties, tools: Tools) -> None:
    resource.reference = short_id(resource)
    names = ("ResourceId", "AuthorizerId", "RequestValidatorId", "DeploymentId", "Id")
    resource.attributes = dict.fromkeys(names, resource.reference)


@creates("AWS::ApiGateway::Model", "RestApiId Schema Name", "ContentType Description")
def model(resource: Resource, properties: Properties, tools: Tools) -> None:
    resource.reference = properties.get("Name", short_id(resource))


@creates(
    "AWS::ApiGateway::Stage",
    "RestApiId StageName Variables",
    "DeploymentId AccessLogSetting MethodSettings TracingEnabled Description CacheClusterEnabled",
)
def stage(resource: Resource, properties: Properties, tools: Tools) -> None:
    resource.reference = properties["StageName"]


@creates(
    "AWS::ApiGatewayV2::Api",
    "ProtocolType RouteSelectionExpression",
    "Name Description DisableSchemaValidation IpAddressType",
)
def socket_api(resource: Resource, properties: Properties, tools: Tools) -> None:
    if properties["ProtocolType"] != "WEBSOCKET":
        raise Unsupported(f"{resource.kind} {resource.logical_id}: an API of type {properties['ProtocolType']}")
    resource.reference = short_id(resource)
    endpoint = f"wss://{resource.reference}.execute-api.{REGION}.amazonaws.com"
    resource.attributes = {"ApiEndpoint": endpoint, "ApiId": resource.reference}


@creates(
    "AWS::ApiGatewayV2::Route",
    "ApiId RouteKey Target AuthorizationType RouteResponseSelectionExpression",
    "OperationName",
)
@creates(
    "AWS::ApiGatewayV2::Integration",
    "ApiId IntegrationType IntegrationUri TimeoutInMillis",
    "Description IntegrationMethod PassthroughBehavior PayloadFormatVersion",
)
@creates(
    "AWS::ApiGatewayV2::RouteResponse",
    "ApiId RouteId RouteResponseKey",
    "ModelSelectionExpression ResponseModels ResponseParameters",
)
@creates("AWS::ApiGatewayV2::Deployment", "ApiId", "Description StageName")
def socket_part(resource: Resource, properties: Properties, tools: Tools) -> None:
    for name, only in (("AuthorizationType", "NONE"), ("IntegrationType", "AWS_PROXY")):
        if properties.get(name, only) != only:
            raise Unsupported(f"{resource.kind} {resource.logical_id}: {name} {properties[name]}")
    resource.reference = short_id(resource)
    names = ("RouteId", "IntegrationId", "RouteResponseId", "DeploymentId")
    resource.attributes = dict.fromkeys(names, resource.reference)


@creates(
    "AWS::ApiGatewayV2::Stage",
    "ApiId StageName AutoDeploy DeploymentId StageVariables",
    "DefaultRouteSettings RouteSettings AccessLogSettings Description",
)
def socket_stage(resource: Resource, properties: Properties, tools: Tools) -> None:
    if not properties.get("AutoDeploy") and "DeploymentId" not in properties:
        raise Unsupported(f"{resource.kind} {resource.logical_id}: nothing is deployed to it")
    resource.reference = properties["StageName"]


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
