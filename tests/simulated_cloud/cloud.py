"""The simulated cloud as tests use it. README.md describes it.

cloud = Cloud(Path("cdk.out"), source=Path("lambdas"))
with cloud.running():
    cloud.fail("dynamodb", "PutItem", "ThrottlingException", every=3, times=None)
    cloud.request("POST", "/orders", json={...})  # through the REST API
    cloud.settle()  # until nothing is left to do at the present time
    cloud.settle(within=3600)  # and on, moving the clock to whatever is due in the next hour
"""

from __future__ import annotations

import json as jsonlib
import math
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import boto3
import botocore.session
import requests
from moto import mock_aws
from moto.core.base_backend import BackendDict
from moto.core.custom_responses_mock import reset_responses_mock
from moto.core.models import responses_mock
from moto.dynamodb.models import dynamodb_backends
from moto.dynamodb.models.table import StreamShard
from moto.s3.models import s3_backends
from moto.sns.models import sns_backends
from moto.sqs.models import sqs_backends

from . import event_source_mappings, moto_fixes, presigned, websocket_api
from .async_invocations import AsyncInvocations
from .calls import (
    CallRule,
    Calls,
    Failure,
    Killed,
    OperationFake,
    caller,
    outside_functions,
    unrecorded_calls,
)
from .clock import Clock
from .cooperative_threads import Scheduler
from .deployment import Deployment, deploy
from .event_source_mappings import EventSourceMapping, PollerContext, event_source_mapping
from .eventbridge import EventBus, EventRule
from .functions import ACCOUNT, REGION, Functions, InvocationResult, short_name
from .permissions import Permissions
from .rest_api import Response, RestApi
from .step_functions import Executions, ExecutionView
from .websocket_api import WebSocket, WebSocketApi

__all__ = ["Cloud", "Killed"]

MOTO_CONFIG: Any = {
    "core": {"mock_credentials": False, "reset_boto3_session": False},
    "stepfunctions": {"execute_state_machine": True},
}
STEP_LIMIT = 20_000


class NotSettled(AssertionError):
    """The system did not come to rest within `STEP_LIMIT` steps."""


class Cloud:
    """One deployment of a cloud assembly. It is deployed once and emptied for each test."""

    def __init__(
        self, assembly: Path, source: Path, *, answers: Mapping[str, OperationFake] | None = None
    ) -> None:
        """`assembly` is a `cdk.out`. `source` is the folder from which handlers are imported.

        `answers` fake operations that moto lacks, by `service:Operation`, such as `bedrock-runtime:InvokeModel`.
        """
        self._assembly = assembly
        self._clients: dict[str, Any] = {}
        self._tables: Any = None
        self._marker: object = None
        self._paused: set[str] = set()
        self._answers = dict(answers or {})
        self.clock = Clock()
        self.calls = Calls(self.clock)
        self.functions = Functions(self.clock, source)
        self.scheduler = Scheduler(self.clock, in_function=lambda: caller.get() is not None)
        self.bus = EventBus(self.clock, self.functions)
        self.async_invocations = AsyncInvocations(self.clock, self.functions)
        self.executions = Executions(self.scheduler, self._announce)
        self.poller_context = PollerContext(self.clock, self.functions, self.client)
        self.deployment = Deployment()
        self.mappings: list[EventSourceMapping] = []
        self.rest_apis: list[RestApi] = []
        self.websocket_apis: list[WebSocketApi] = []
        self.clock.on_sleep = self._sleep

    # Lifecycle

    @contextmanager
    def running(self) -> Iterator[Cloud]:
        """The cloud for one test: deployed if necessary, empty, and with the clock at its start."""
        aws = mock_aws(config=MOTO_CONFIG)
        with ExitStack() as stack:
            stack.enter_context(self.clock.running())
            stack.enter_context(moto_fixes.installed(self.clock))
            aws.start(reset=False)
            stack.callback(reset_responses_mock, responses_mock)
            stack.callback(aws.stop, remove_data=False)
            stack.enter_context(self.functions.installed())
            stack.enter_context(self.executions.installed())
            stack.enter_context(self.calls.intercepted())
            if not self._is_deployed():
                self._deploy()
            self.reset()
            stack.callback(self._unwind)
            yield self

    def reset(self) -> None:
        """Remove data, messages, executions, connections, records and faults, and reset caches and the clock."""
        self.executions.reset()
        self.clock.reset()
        self._empty_backends()
        own: tuple[Any, ...] = (self.calls, self.functions, self.async_invocations, self.bus)
        for part in (*own, *self.mappings, *self.rest_apis, *self.websocket_apis):
            part.reset()
        self._paused.clear()
        self.poller_context.rng, self.poller_context.duplicates = None, 0.0

    # Clients and names

    def client(self, service: str) -> Any:
        """The test's own boto3 client of a service."""
        if service not in self._clients:
            session = self._clients.setdefault("", boto3.Session(botocore_session=botocore.session.Session()))
            own = {"endpoint_url": self.websocket_apis[0].endpoint} if service == websocket_api.SERVICE else {}
            self._clients[service] = session.client(service, region_name=REGION, **own)
        return self._clients[service]

    def name(self, kind: str, name: str) -> str:
        """The physical name (`Ref`) of a resource by CloudFormation type and name; see `Deployment.find`."""
        return self.deployment.find(kind, name).reference

    def table(self, name: str) -> Any:
        """A boto3 table resource."""
        if self._tables is None:
            self._tables = boto3.resource("dynamodb", region_name=REGION)
        return self._tables.Table(self.name("AWS::DynamoDB::Table", name))

    def bucket(self, name: str) -> str:
        return self.name("AWS::S3::Bucket", name)

    def queue(self, name: str) -> Queue:
        return Queue(self, self.deployment.find("AWS::SQS::Queue", name).attributes["QueueName"])

    def output(self, key: str) -> Any:
        """The value of the stack output with this key, or of the only one whose key ends with it."""
        stacks = self.deployment.outputs.values()
        outputs = {name: value for outputs in stacks for name, value in outputs.items()}
        (value,) = [outputs[key]] if key in outputs else [v for name, v in outputs.items() if name.endswith(key)]
        return value

    # Actions. They count as the test's, also when a fake that a function has called performs them.

    @outside_functions()
    def invoke(self, function: str, event: Any) -> InvocationResult:
        """Invoke a function by its short name (the folder of its handler) and wait for the result."""
        return self.functions.call(self._function(function), event)

    @outside_functions()
    def request(
        self,
        method: str,
        target: str,
        *,
        json: Any = None,
        body: bytes | str = b"",
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, str] | None = None,
    ) -> Response:
        """Send an HTTP request to the REST API. `target` is the path below the stage."""
        given = dict(headers or {})
        if json is not None:
            body = jsonlib.dumps(json)
            given.setdefault("Content-Type", "application/json")
        raw = body.encode() if isinstance(body, str) else body
        pairs = list((params or {}).items())
        return self.rest_apis[0].request(method, target, body=raw, headers=given, params=pairs)

    @outside_functions()
    def connect(self, url: str, *, headers: Mapping[str, str] | None = None) -> WebSocket:
        """Open a WebSocket. `url` is a whole URL, or only `?the=query` if there is one WebSocket API.

        Raises `websocket_api.HandshakeRefused` with the HTTP status if the handshake fails.
        """
        parts = urlsplit(url)
        found = [api for api in self.websocket_apis if parts.netloc in ("", api.host)]
        if len(found) != 1 or parts.scheme not in ("", "wss"):
            raise LookupError(f"{len(found)} WebSocket APIs are at {url}")
        return found[0].connect(parts, headers or {})

    @outside_functions()
    def fetch(
        self, method: str, url: str, *, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> requests.Response:
        """Send a request to a presigned S3 URL. The status is 403 if the request differs from the signed one."""
        given = {"Content-Length": str(len(body)), **(headers or {})}
        try:
            presigned.check(method, url, given, self.clock.now)
        except presigned.Forbidden as error:
            refused = requests.Response()
            refused.status_code, refused._content = 403, f"<Error><Code>{error}</Code></Error>".encode()
            return refused
        return requests.request(method, url, data=body, headers=given, timeout=10)

    @outside_functions()
    def poll(self, function: str) -> int:
        """Deliver one batch from each queue and stream of a function, even if it is paused.

        Returns the number of records.
        """
        return sum(mapping.poll() for mapping in self.mappings if mapping.name == function)

    @outside_functions()
    def settle(self, *, within: float = 0.0) -> int:
        """Run everything that can run now. Returns the number of things that were done.

        With `within`, the clock moves to each next thing that is due within so many seconds: a message that
        becomes visible, a retry, a timeout, a Wait state. Schedules that are due on the way run too.
        """
        return self._run_until(self.clock.time + within, idle_stops=True)

    @outside_functions()
    def advance(self, seconds: float) -> int:
        """Move the clock by `seconds` and run everything that becomes due, schedules included."""
        target = self.clock.time + seconds
        done = self._run_until(target, idle_stops=False)
        self.clock.advance_to(target)
        return done + self._step()

    # Faults

    def on(self, service: str, operation: str, action: Callable[..., object], **options: Any) -> CallRule:
        """Run `action(call)` before or after matching AWS calls; see `Calls.on`."""
        return self.calls.on(service, operation, action, **options)

    def fail(self, service: str, operation: str, failure: Failure, **options: Any) -> CallRule:
        """Make matching AWS calls fail; see `Calls.fail`."""
        return self.calls.fail(service, operation, failure, **options)

    def kill(self, function: str, *, after: int) -> CallRule:
        """Kill the function once, right after its AWS call number `after`, or before its first call with 0."""
        return self.fail(
            "*",
            "*",
            Killed,
            function=function,
            when=lambda call: call.index == max(after, 1),
            after=after > 0,
        )

    def pause(self, *functions: str) -> None:
        """Deliver nothing from queues and streams to these functions until `resume`."""
        self._paused.update(functions)

    def resume(self, *functions: str) -> None:
        """Deliver to these functions again, or to all of them."""
        self._paused.difference_update(functions or set(self._paused))

    def unreliable(self, seed: int, *, duplicates: float = 0.5) -> None:
        """From now on shuffle batches and the order of pollers, and deliver some batches twice."""
        self.poller_context.rng, self.poller_context.duplicates = random.Random(seed), duplicates

    # Inspection

    @property
    def websockets(self) -> list[WebSocket]:
        """The open WebSockets."""
        return [socket for api in self.websocket_apis for socket in api.websockets]

    def denied(self) -> list[str]:
        """The calls of functions that their roles do not allow, as `function: action on resource`."""
        return Permissions(self.deployment).denied(self.calls.log)

    def next_due(self) -> float:
        """When the next thing is due for which `settle` moves the clock. Infinity if nothing is.

        Schedules and the expiry of WebSockets do not count: they happen when the clock passes them.
        """
        active = [m for m in self.mappings if m.enabled and m.name not in self._paused]
        times = [
            self.scheduler.next_deadline(),
            self.async_invocations.next_due(),
            self.clock.next_timer(),
            *(mapping.next_due() for mapping in active),
        ]
        return min((when for when in times if when is not None), default=math.inf)

    def execution(self, name_or_arn: str) -> ExecutionView:
        return self.executions.find(name_or_arn)

    # Internals

    def _function(self, name: str) -> Any:
        found = [
            function
            for resource in self.deployment.of("AWS::Lambda::Function")
            if name in (short_name(function := self.functions.get(resource.reference)), resource.reference)
        ]
        if len(found) != 1:
            raise LookupError(f"{len(found)} functions are called {name!r}")
        return found[0]

    def _run_until(self, target: float, *, idle_stops: bool) -> int:
        total = 0
        while total < STEP_LIMIT:
            total += self._work()
            due = self.next_due()
            tick = self._next_tick()
            when = due if idle_stops else min(due, tick)
            if when > target or when == math.inf:
                return total
            self.clock.advance_to(min(when, tick))
            total += self.bus.fire_due()
        raise NotSettled(self._diagnosis())

    def _next_tick(self) -> float:
        """When the clock has to stop for a schedule or for the expiry of a WebSocket."""
        times = [self.bus.next_tick(), *(api.next_expiry() for api in self.websocket_apis)]
        return min((when for when in times if when is not None), default=math.inf)

    def _work(self) -> int:
        total = 0
        while done := self._step():
            total += done
            if total > STEP_LIMIT:
                raise NotSettled(self._diagnosis())
        return total

    def _step(self) -> int:
        active = [m for m in self.mappings if m.enabled and m.name not in self._paused]
        if self.poller_context.rng:
            self.poller_context.rng.shuffle(active)
        done = self.scheduler.run_ready() + self.bus.deliver() + self.async_invocations.run_due()
        done += sum(api.run_disconnects() for api in self.websocket_apis)
        done += sum(mapping.poll() for mapping in active)
        if self.functions.import_errors:
            raise self.functions.import_errors.pop()
        return done

    def _diagnosis(self) -> str:
        recent = [f"{invocation.name}" for invocation in self.functions.invocations[-10:]]
        errors = [f"{name}: {error!r}" for name, error in self.functions.errors[-10:]]
        return "\n".join(["the system does not come to rest; last invocations:", *recent, "last errors:", *errors])

    def _sleep(self, seconds: float) -> None:
        task = getattr(self.scheduler.local, "task", None)
        if task:
            self.scheduler.sleep(seconds)
        else:
            with outside_functions():  # timers do not belong to the function that sleeps
                self.clock.advance(seconds)
        if invocation := caller.get():
            invocation.raise_if_ended()

    def _announce(self, detail: dict[str, Any], arn: str) -> None:
        self.bus.put("aws.states", "Step Functions Execution Status Change", detail, [arn])

    def _is_deployed(self) -> bool:
        # Another test may have used moto without this package and emptied it.
        return self._marker is not None and sqs_backends[ACCOUNT][REGION].queues.get(MARKER) is self._marker

    def _deploy(self) -> None:
        BackendDict.reset()  # not mock_aws().reset(), after which `requests` would go to the network
        with unrecorded_calls():
            self.deployment = deploy(self._assembly, self.client)
        self.mappings = [
            event_source_mapping(self.poller_context, resource.properties)
            for resource in self.deployment.of("AWS::Lambda::EventSourceMapping")
        ]
        self.bus.rules = [
            EventRule(resource.reference, resource.properties)
            for resource in self.deployment.of("AWS::Events::Rule")
        ]
        self.rest_apis = [
            RestApi(api, self.deployment, self.functions, self.clock)
            for api in self.deployment.of("AWS::ApiGateway::RestApi")
        ]
        self.websocket_apis = [
            WebSocketApi(api, self.deployment, self.functions, self.clock)
            for api in self.deployment.of("AWS::ApiGatewayV2::Api")
        ]
        self.async_invocations.retries = {
            config.properties["FunctionName"]: int(config.properties["MaximumRetryAttempts"])
            for config in self.deployment.of("AWS::Lambda::EventInvokeConfig")
            if "MaximumRetryAttempts" in config.properties
        }
        self.calls.services = {websocket_api.SERVICE: lambda call: websocket_api.manage(self.websocket_apis, call)}
        self.calls.answers = {
            "events:PutEvents": self.bus.put_events,
            "cloudformation:DescribeStacks": self.deployment.describe_stacks,
            **self._answers,
        }
        self._marker = sqs_backends[ACCOUNT][REGION].create_queue(MARKER)

    def _empty_backends(self) -> None:
        for table in dynamodb_backends[ACCOUNT][REGION].tables.values():
            table.items.clear()
            if table.stream_shard:
                table.stream_shard = StreamShard(ACCOUNT, table)
        for bucket in s3_backends[ACCOUNT]["aws"].buckets.values():
            for key in list(bucket.keys):  # popping closes their files
                bucket.keys.pop(key)
            bucket.multiparts.clear()
        for queue in sqs_backends[ACCOUNT][REGION].queues.values():
            queue._messages, queue._pending_messages, queue.deleted_messages = [], set(), set()
        for topic in sns_backends[ACCOUNT][REGION].topics.values():
            topic.sent_notifications.clear()

    def _unwind(self) -> None:
        self.executions.reset()
        self._empty_backends()


MARKER = "deployed-by-this-cloud"


class Queue:
    """An SQS queue."""

    def __init__(self, cloud: Cloud, name: str) -> None:
        self._cloud = cloud
        self.name = name
        self.url = f"https://sqs.{REGION}.amazonaws.com/{ACCOUNT}/{name}"

    @property
    def bodies(self) -> list[str]:
        """The bodies of all messages, also of those in flight or delayed."""
        return [message.body for message in event_source_mappings.moto_queue(self.name)._messages]

    @property
    def visible(self) -> int:
        """How many messages can be received now."""
        return len(event_source_mappings.moto_queue(self.name).messages)

    def __len__(self) -> int:
        return len(self.bodies)

    @outside_functions()
    def send(self, body: Any, **options: Any) -> None:
        text = body if isinstance(body, str) else jsonlib.dumps(body)
        self._cloud.client("sqs").send_message(QueueUrl=self.url, MessageBody=text, **options)
