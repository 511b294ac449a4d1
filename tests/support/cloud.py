"""The cloud as tests use it: deploy once, then `with cloud.running(): ...` for each test.

    cloud.request("POST", "/jobs", json={...})     through the gateway
    cloud.settle()                                 until nothing is left to do now
    cloud.settle(within=3600)                      moving the clock from one due thing to the next
    cloud.fail("dynamodb", "TransactWriteItems", "ThrottlingException", every=3, times=None)

The API is described in the methods; the parts do what their modules say.
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

from . import deployment as deployments
from . import fakes, mappings, moto_fixes, presigned, sockets
from .calls import Calls, Failure, Killed, Rule, behind_the_scenes, caller, outside_functions
from .clock import Clock
from .cooperative import Scheduler
from .deployment import Deployment
from .executions import Executions, View
from .functions import ACCOUNT, REGION, Functions, Outcome, short_name
from .gateway import Gateway, Response
from .invocations import Asynchronous, Policy
from .mappings import Mapping as SourceMapping
from .mappings import World
from .permissions import Permissions
from .rules import Bus
from .rules import Rule as EventRule
from .sockets import Socket, SocketApi

__all__ = ["Cloud", "Killed"]

MOTO_CONFIG: Any = {
    "core": {"mock_credentials": False, "reset_boto3_session": False},
    "stepfunctions": {"execute_state_machine": True},
}
STEP_LIMIT = 20_000
TABLES = ("AWS::DynamoDB::Table", "AWS::DynamoDB::GlobalTable")


class NotSettled(AssertionError):
    """The system goes on for ever, or for longer than a test should."""


class Cloud:
    """One deployment of a cloud assembly, and everything that happens in it."""

    def __init__(self, assembly: Path, source: Path) -> None:
        """`assembly` is a `cdk.out`; `source` the folder from which handlers are imported."""
        self._assembly = assembly
        self._clients: dict[str, Any] = {}
        self._tables: Any = None
        self._marker: object = None
        self._pausing: set[str] = set()
        self.clock = Clock()
        self.calls = Calls(self.clock)
        self.functions = Functions(self.clock, source)
        self.scheduler = Scheduler(self.clock, in_function=lambda: caller.get() is not None)
        self.bus = Bus(self.clock, self.functions, self.client)
        self.asynchronous = Asynchronous(self.clock, self.functions, self.client)
        self.executions = Executions(self.scheduler, self._announce)
        self.world = World(self.clock, self.functions, self.client)
        self.deployment = Deployment()
        self.mappings: list[SourceMapping] = []
        self.gateways: list[Gateway] = []
        self.socket_apis: list[SocketApi] = []
        self.clock.sleeper = self._sleep

    # Life

    @contextmanager
    def running(self) -> Iterator[Cloud]:
        """The cloud for one test: deployed if it is not yet, empty, at the clock's beginning."""
        aws = mock_aws(config=MOTO_CONFIG)
        with ExitStack() as stack:
            stack.enter_context(self.clock.running())
            aws.start(reset=False)
            stack.callback(reset_responses_mock, responses_mock)
            stack.callback(aws.stop, remove_data=False)
            stack.enter_context(moto_fixes.installed(self.clock))
            stack.enter_context(self.functions.installed())
            stack.enter_context(self.executions.installed())
            stack.enter_context(self.calls.intercepted())
            if not self._is_deployed():
                self._deploy()
            self.reset()
            stack.callback(self._unwind)
            yield self

    def reset(self) -> None:
        """Empty everything and start at the beginning: data, messages, executions, caches, faults, time."""
        self.executions.reset()
        self.clock.reset()
        self._empty_backends()
        own: tuple[Any, ...] = (self.calls, self.functions, self.asynchronous, self.bus)
        for part in (*own, *self.mappings, *self.gateways, *self.socket_apis):
            part.reset()
        self._pausing.clear()
        self.world.chance, self.world.duplicates = None, 0.0

    # Names

    def client(self, service: str) -> Any:
        """A client outside every function, kept for the whole session."""
        if service not in self._clients:
            session = self._clients.setdefault("", boto3.Session(botocore_session=botocore.session.Session()))
            own = {"endpoint_url": self.socket_apis[0].endpoint} if service == sockets.SERVICE else {}
            self._clients[service] = session.client(service, region_name=REGION, **own)
        return self._clients[service]

    def name(self, kind: str, name: str) -> str:
        """The physical name (`Ref`) of the resource of this CloudFormation type; see `Deployment.find`."""
        return self.deployment.find(kind, name).reference

    def table(self, name: str) -> Any:
        """A boto3 table resource."""
        if self._tables is None:
            self._tables = boto3.resource("dynamodb", region_name=REGION)
        return self._tables.Table(self.deployment.find(TABLES, name).reference)

    def bucket(self, name: str) -> str:
        return self.name("AWS::S3::Bucket", name)

    def queue(self, name: str) -> Queue:
        return Queue(self, self.deployment.find("AWS::SQS::Queue", name).attributes["QueueName"])

    def output(self, key: str) -> Any:
        """The value of the one stack output with this key, or the only one whose key ends with it."""
        stacks = self.deployment.outputs.values()
        outputs = {name: value for outputs in stacks for name, value in outputs.items()}
        (value,) = [outputs[key]] if key in outputs else [v for name, v in outputs.items() if name.endswith(key)]
        return value

    # Doing things: always as the test, also when a function's fake counterpart does them in the middle of its run

    @outside_functions()
    def invoke(self, function: str, event: Any) -> Outcome:
        """Run a function by its short name (the folder of its handler) and wait for it."""
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
        api: int = 0,
    ) -> Response:
        """Send an HTTP request through the deployed REST API, below its stage."""
        given = dict(headers or {})
        if json is not None:
            body = jsonlib.dumps(json)
            given.setdefault("Content-Type", "application/json")
        raw = body.encode() if isinstance(body, str) else body
        pairs = list((params or {}).items())
        return self.gateways[api].request(method, target, body=raw, headers=given, params=pairs)

    @outside_functions()
    def connect(self, url: str, *, headers: Mapping[str, str] | None = None) -> Socket:
        """Open a WebSocket, by its URL or, below the stage of the only WebSocket API, by `?the=query`.

        Raises `sockets.Refused` with the HTTP status where the handshake fails.
        """
        place = urlsplit(url)
        found = [api for api in self.socket_apis if place.netloc in ("", api.host)]
        if len(found) != 1 or place.scheme not in ("", "wss"):
            raise LookupError(f"{len(found)} WebSocket APIs are at {url}")
        return found[0].connect(place, headers or {})

    @outside_functions()
    def fetch(
        self, method: str, url: str, *, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> requests.Response:
        """Use a presigned S3 URL as a client would; 403 unless everything is as it was signed."""
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
        """Deliver one batch to a function from each of its sources, also a paused one. Returns the records."""
        return sum(mapping.poll() for mapping in self.mappings if mapping.name == function)

    @outside_functions()
    def settle(self, *, within: float = 0.0) -> int:
        """Let everything happen that can, and return how much did.

        With `within`, the clock moves from one due thing to the next (a message that becomes visible, a retry,
        a timeout, a state that waits, a schedule on the way) as long as it is due within so many seconds.
        """
        return self._run_until(self.clock.time + within, idle_stops=True)

    @outside_functions()
    def advance(self, seconds: float) -> int:
        """Let `seconds` pass, with all that happens meanwhile, schedules included."""
        target = self.clock.time + seconds
        done = self._run_until(target, idle_stops=False)
        self.clock.advance_to(target)
        return done + self._step()

    # Getting in the way

    def on(self, service: str, operation: str, action: Callable[..., object], **options: Any) -> Rule:
        """Run `action(call)` before or after matching AWS calls; see `Calls.on`."""
        return self.calls.on(service, operation, action, **options)

    def fail(self, service: str, operation: str, failure: Failure, **options: Any) -> Rule:
        """Make matching AWS calls fail; see `Calls.fail`."""
        return self.calls.fail(service, operation, failure, **options)

    def kill(self, function: str, *, after: int) -> Rule:
        """Kill the function once, right after its AWS call number `after` took effect; 0 is before the first."""
        return self.fail(
            "*",
            "*",
            Killed,
            function=function,
            when=lambda call: call.index == max(after, 1),
            after=after > 0,
        )

    def pause(self, *functions: str) -> None:
        """Deliver nothing to these functions from queues and streams until `resume`."""
        self._pausing.update(functions)

    def resume(self, *functions: str) -> None:
        self._pausing.difference_update(functions or set(self._pausing))

    def unreliable(self, seed: int, *, duplicates: float = 0.5) -> None:
        """From now on batches are shuffled, pollers take turns at random, and some batches come twice."""
        self.world.chance, self.world.duplicates = random.Random(seed), duplicates

    def expire(self, name: str) -> int:
        """Remove the table's items whose time to live is over. Returns how many."""
        table = dynamodb_backends[ACCOUNT][REGION].tables[self.table(name).name]
        attribute = table.ttl["AttributeName"]
        expired = [
            item
            for item in table.all_items()
            if attribute in item.attrs and float(item.attrs[attribute].value) < self.clock.time
        ]
        for item in expired:
            table.delete_item(item.hash_key, item.range_key)
            if table.stream_shard:
                table.stream_shard.items[-1].record["userIdentity"] = {
                    "type": "Service",
                    "principalId": "dynamodb.amazonaws.com",
                }
        return len(expired)

    # Seeing

    @property
    def sockets(self) -> list[Socket]:
        """The WebSockets that are open."""
        return [socket for api in self.socket_apis for socket in api.sockets]

    def denied(self) -> list[str]:
        """The calls of functions so far that their roles do not allow, as `function: action on resource`."""
        return Permissions(self.deployment).denied(self.calls.log)

    def next_due(self) -> float:
        """When the next thing that waits will happen; infinity if nothing waits.

        Schedules and the ends of idle sockets are left aside: they come when the clock passes them.
        """
        active = [m for m in self.mappings if m.enabled and m.name not in self._pausing]
        times = [
            self.scheduler.next_deadline(),
            self.asynchronous.next_due(),
            self.clock.next_alarm(),
            *(mapping.next_due() for mapping in active),
        ]
        return min((when for when in times if when is not None), default=math.inf)

    def execution(self, name_or_arn: str) -> View:
        return self.executions.find(name_or_arn)

    # Within

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
        """What happens on the clock's way without anything waiting for it."""
        times = [self.bus.next_tick(), *(api.next_end() for api in self.socket_apis)]
        return min((when for when in times if when is not None), default=math.inf)

    def _work(self) -> int:
        total = 0
        while done := self._step():
            total += done
            if total > STEP_LIMIT:
                raise NotSettled(self._diagnosis())
        return total

    def _step(self) -> int:
        active = [m for m in self.mappings if m.enabled and m.name not in self._pausing]
        if self.world.chance:
            self.world.chance.shuffle(active)
        done = self.scheduler.run_ready() + self.bus.deliver() + self.asynchronous.run_due()
        done += sum(api.run_disconnects() for api in self.socket_apis)
        done += sum(mapping.poll() for mapping in active)
        if self.functions.broken:
            raise self.functions.broken.pop()
        return done

    def _diagnosis(self) -> str:
        recent = [f"{invocation.name}" for invocation in self.functions.invocations[-10:]]
        errors = [f"{name}: {error!r}" for name, error in self.functions.errors[-10:]]
        return "\n".join(["no end in sight; the last invocations were", *recent, "and the last errors", *errors])

    def _sleep(self, seconds: float) -> None:
        task = getattr(self.scheduler.local, "task", None)
        if task:
            self.scheduler.sleep(seconds)
        else:
            with outside_functions():  # what the clock sets off is not the sleeper's doing
                self.clock.advance(seconds)
        if invocation := caller.get():
            invocation.raise_if_over()

    def _announce(self, detail: dict[str, Any], arn: str) -> None:
        self.bus.put("aws.states", "Step Functions Execution Status Change", detail, [arn])

    def _is_deployed(self) -> bool:
        # Another test may have used moto on its own, and emptied it.
        return self._marker is not None and sqs_backends[ACCOUNT][REGION].queues.get(MARKER) is self._marker

    def _deploy(self) -> None:
        BackendDict.reset()  # not mock_aws().reset(), after which `requests` would go to the network
        with behind_the_scenes():
            self._marker = sqs_backends[ACCOUNT][REGION].create_queue(MARKER)
            self.deployment = deployments.deploy(self._assembly, self.client)
        self.mappings = [
            mappings.mapping(self.world, resource.properties)
            for resource in self.deployment.of("AWS::Lambda::EventSourceMapping")
        ]
        self.bus.rules = [
            EventRule(resource.reference, resource.properties)
            for resource in self.deployment.of("AWS::Events::Rule")
        ]
        self.gateways = [
            Gateway(api, self.deployment, self.functions, self.clock)
            for api in self.deployment.of("AWS::ApiGateway::RestApi")
        ]
        self.socket_apis = [
            SocketApi(api, self.deployment, self.functions, self.clock)
            for api in self.deployment.of("AWS::ApiGatewayV2::Api")
        ]
        self.asynchronous.policies = policies(self.deployment)
        self.calls.services = {sockets.SERVICE: lambda call: sockets.manage(self.socket_apis, call)}
        self.calls.answers = {
            **fakes.cloudformation(self.deployment),
            "bedrock-runtime:InvokeModel": fakes.invoke_model,
            "events:PutEvents": self.bus.put_events,
        }

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
    """A queue as a test sees it."""

    def __init__(self, cloud: Cloud, name: str) -> None:
        self._cloud = cloud
        self.name = name
        self.url = f"https://sqs.{REGION}.amazonaws.com/{ACCOUNT}/{name}"

    @property
    def bodies(self) -> list[str]:
        """Of all messages, also those in flight or delayed."""
        return [message.body for message in mappings.model_of(self.name)._messages]

    @property
    def visible(self) -> int:
        return len(mappings.model_of(self.name).messages)

    def __len__(self) -> int:
        return len(self.bodies)

    @outside_functions()
    def send(self, body: Any, **options: Any) -> None:
        text = body if isinstance(body, str) else jsonlib.dumps(body)
        self._cloud.client("sqs").send_message(QueueUrl=self.url, MessageBody=text, **options)


def policies(deployment: Deployment) -> dict[str, Policy]:
    """By function name: how its asynchronous invocations fail."""
    found: dict[str, Policy] = {}
    for resource in deployment.of("AWS::Lambda::Function"):
        dead_letters = resource.properties.get("DeadLetterConfig", {}).get("TargetArn")
        found[resource.reference] = Policy(dead_letters=dead_letters)
    for resource in deployment.of("AWS::Lambda::EventInvokeConfig"):
        policy = found[resource.properties["FunctionName"]]
        policy.retries = int(resource.properties.get("MaximumRetryAttempts", policy.retries))
        destinations = resource.properties.get("DestinationConfig", {})
        policy.on_failure = destinations.get("OnFailure", {}).get("Destination")
    return found
