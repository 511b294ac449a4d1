"""API Gateway (WebSocket): the handshake, messages in both directions, and the end of connections."""

from __future__ import annotations

import json
import re
import threading
import time
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from tests.simulated_cloud.cloud import Cloud
from tests.simulated_cloud.functions import ACCOUNT, REGION
from tests.simulated_cloud.template import Unsupported
from tests.simulated_cloud.tests.sample import Sample, Script, raising, write_assembly
from tests.simulated_cloud.websocket_api import ConnectionClosed, HandshakeRefused, WebSocket

Event = dict[str, Any]
OK = {"statusCode": 200}


class RecordingHandler(list[Event]):
    """A handler that returns 200 and records its events."""

    def __call__(self, event: Event, context: Any) -> Any:
        self.append(event)
        return OK

    @property
    def kinds(self) -> list[str]:
        return [event["requestContext"]["eventType"] for event in self]


@pytest.fixture(autouse=True)
def connects(sample: Sample) -> RecordingHandler:
    sample.scripts["greet"] = handler = RecordingHandler()
    sample.scripts["talk"] = lambda event, context: {"statusCode": 200, "body": "ignored"}
    return handler


def manager(sample: Sample, endpoint: str | None = None) -> Any:
    """The client that a function would make."""
    url = endpoint or sample.websocket_apis[0].endpoint
    return boto3.client("apigatewaymanagementapi", region_name=REGION, endpoint_url=url)


def post(sample: Sample, socket: WebSocket, message: Any) -> None:
    data = json.dumps(message).encode()
    sample.client("apigatewaymanagementapi").post_to_connection(ConnectionId=socket.connection_id, Data=data)


def status_of(error: ClientError) -> tuple[str, int]:
    return error.response["Error"]["Code"], error.response["ResponseMetadata"]["HTTPStatusCode"]


class TestConnecting:
    def test_the_handshake_becomes_an_event(self, sample: Sample, connects: RecordingHandler) -> None:
        """The event has the headers, the query with repeated parameters and the context."""
        socket = sample.connect("?token=a%20b&x=1&x=2", headers={"Origin": "https://example.org"})
        (event,) = connects
        context = event["requestContext"]
        assert event["queryStringParameters"] == {"token": "a b", "x": "2"}
        assert event["multiValueQueryStringParameters"]["x"] == ["1", "2"]
        assert event["headers"]["Origin"] == "https://example.org"
        assert event["multiValueHeaders"]["Host"] == [sample.websocket_apis[0].host]
        assert (context["routeKey"], context["eventType"]) == ("$connect", "CONNECT")
        assert context["connectionId"] == socket.connection_id
        assert context["domainName"] == f"{context['apiId']}.execute-api.{REGION}.amazonaws.com"
        assert context["stage"] == "v1"
        assert context["identity"]["sourceIp"] == "203.0.113.7"
        assert context["connectedAt"] == context["requestTimeEpoch"] == int(sample.clock.time * 1000)

    def test_without_a_query_the_event_has_none(self, sample: Sample, connects: RecordingHandler) -> None:
        """Without a query string the field is absent, not null."""
        sample.connect(sample.websocket_apis[0].url)
        assert "queryStringParameters" not in connects[0]

    def test_a_connection_id_is_eleven_bytes_in_base64(self, sample: Sample) -> None:
        """Each connection has its own id, and the ids are the same in every run."""
        first, second = sample.connect(""), sample.connect("")
        assert re.fullmatch(r"[\w-]{15}=", first.connection_id)
        assert first.connection_id != second.connection_id
        sample.cloud.reset()
        assert sample.connect("").connection_id == first.connection_id

    def test_a_connection_is_open_after_the_handshake(self, sample: Sample) -> None:
        """The cloud lists its open connections, oldest first."""
        first, second = sample.connect("?a"), sample.connect(f"{sample.websocket_apis[0].url}?b")
        assert first.is_open
        assert first.close_code is None
        assert sample.websockets == [first, second]

    @pytest.mark.parametrize("status", [401, 403, 500])
    def test_a_function_may_refuse(self, sample: Sample, status: int) -> None:
        """The client gets the status that the function returned, and there is no connection."""
        sample.scripts["greet"] = lambda event, context: {"statusCode": status}
        with pytest.raises(HandshakeRefused) as caught:
            sample.connect("")
        assert (caught.value.status, sample.websockets) == (status, [])

    @pytest.mark.parametrize("script", [raising, lambda event, context: None])
    def test_a_function_that_fails_is_a_502(self, sample: Sample, script: Script) -> None:
        """A failed $connect, or a response that is not a proxy response, gives a 502."""
        sample.scripts["greet"] = script
        with pytest.raises(HandshakeRefused) as caught:
            sample.connect("")
        assert caught.value.status == 502

    def test_a_function_that_takes_too_long_is_a_504(self, sample: Sample) -> None:
        """The timeout of $connect is 29 seconds."""
        sample.scripts["greet"] = lambda event, context: time.sleep(29.5)
        with pytest.raises(HandshakeRefused) as caught:
            sample.connect("")
        assert caught.value.status == 504

    def test_the_connection_exists_only_after_connect(self, sample: Sample) -> None:
        """While $connect runs, nothing can be posted to the connection."""

        def greet(event: Event, context: Any) -> Any:
            connection = event["requestContext"]["connectionId"]
            with pytest.raises(ClientError) as caught:
                manager(sample).post_to_connection(ConnectionId=connection, Data=b"{}")
            assert status_of(caught.value) == ("GoneException", 410)
            return OK

        sample.scripts["greet"] = greet
        socket = sample.connect("")
        post(sample, socket, {"n": 1})
        assert socket.messages == [{"n": 1}]
        assert sample.functions.errors == []

    def test_another_path_is_refused(self, sample: Sample) -> None:
        """Another path gives a 403 without a function, and another host raises LookupError."""
        with pytest.raises(HandshakeRefused) as caught:
            sample.connect(f"{sample.websocket_apis[0].url}/more?token=x")
        assert (caught.value.status, sample.functions.invocations) == (403, [])
        with pytest.raises(LookupError):
            sample.connect("wss://example.org/v1")


class TestSending:
    @pytest.mark.parametrize(
        ("message", "route"),
        [
            ({"action": "tell"}, "tell"),
            ({"action": "other"}, "$default"),
            ({"action": ["tell"]}, "$default"),
            ({"action": "$connect"}, "$default"),
            ([1], "$default"),
            ("no JSON", "$default"),
        ],
    )
    def test_a_message_goes_to_the_route_of_its_action(self, sample: Sample, message: Any, route: str) -> None:
        """A message without a matching route goes to $default."""
        sample.scripts["talk"] = events = RecordingHandler()
        socket = sample.connect("")
        socket.send(message)
        ((event,), body) = events, message if isinstance(message, str) else json.dumps(message)
        context = event["requestContext"]
        assert (context["routeKey"], context["eventType"]) == (route, "MESSAGE")
        assert (context["connectionId"], event["body"]) == (socket.connection_id, body)
        assert "headers" not in event

    def test_the_return_value_of_a_function_is_ignored(self, sample: Sample) -> None:
        """Routes have no responses."""
        socket = sample.connect("")
        socket.send({"action": "tell"})
        assert socket.messages == []
        assert [one.name for one in sample.functions.invocations] == ["sample_greet", "sample_talk"]

    def test_messages_are_taken_once(self, sample: Sample) -> None:
        """`take` returns the messages in order and removes them."""
        socket = sample.connect("")
        for number in range(3):
            post(sample, socket, {"n": number})
        assert socket.texts == ['{"n": 0}', '{"n": 1}', '{"n": 2}']
        assert socket.take() == [{"n": 0}, {"n": 1}, {"n": 2}]
        assert socket.take() == []

    @pytest.mark.parametrize("script", [raising, lambda event, context: None])
    def test_a_failed_function_sends_an_error_to_the_client(self, sample: Sample, script: Script) -> None:
        """API Gateway sends its error message, and the connection stays open."""
        sample.scripts["talk"] = script
        socket = sample.connect("")
        socket.send({"action": "tell"})
        (message,) = socket.messages
        assert message["message"] == "Internal server error"
        assert (message["connectionId"], "requestId" in message) == (socket.connection_id, True)
        assert socket.is_open

    def test_a_timeout_sends_an_error_to_the_client(self, sample: Sample) -> None:
        """The timeout is that of the integration."""
        sample.scripts["talk"] = lambda event, context: time.sleep(6)
        socket = sample.connect("")
        socket.send({"action": "tell"})
        assert socket.messages[0]["message"] == "Endpoint request timed out"

    def test_a_large_frame_closes_the_connection(self, sample: Sample, connects: RecordingHandler) -> None:
        """A frame of more than 32 KB closes the connection with code 1009, and no function gets it."""
        socket = sample.connect("")
        socket.send("x" * 32 * 1024)
        socket.send("x" * (32 * 1024 + 1))
        assert (socket.is_open, socket.close_code) == (False, 1009)
        assert [one.name for one in sample.functions.invocations].count("sample_talk") == 1
        assert connects.kinds == ["CONNECT", "DISCONNECT"]
        assert connects[1]["requestContext"]["disconnectStatusCode"] == 1009

    def test_nothing_is_sent_over_a_closed_connection(self, sample: Sample) -> None:
        """Sending over a closed connection raises ConnectionClosed."""
        socket = sample.connect("")
        socket.close()
        with pytest.raises(ConnectionClosed):
            socket.send({})


class TestPosting:
    def test_a_function_posts_while_it_handles_a_message(self, sample: Sample) -> None:
        """The client gets the message, and the call is recorded as the function's."""

        def talk(event: Event, context: Any) -> Any:
            connection = event["requestContext"]["connectionId"]
            manager(sample).post_to_connection(ConnectionId=connection, Data='{"n": 1}')
            return OK

        sample.scripts["talk"] = talk
        socket = sample.connect("")
        socket.send({"action": "tell"})
        assert socket.messages == [{"n": 1}]
        (call,) = sample.calls.of("sample_talk")
        assert (call.action, call.index) == ("apigatewaymanagementapi:PostToConnection", 1)

    def test_threads_of_one_function_post_concurrently(self, sample: Sample) -> None:
        """No message is lost, and each client gets its own."""

        def talk(event: Event, context: Any) -> Any:
            client = manager(sample)

            def tell(socket: WebSocket) -> None:
                for number in range(5):
                    client.post_to_connection(ConnectionId=socket.connection_id, Data=json.dumps(number))

            threads = [threading.Thread(target=tell, args=(socket,)) for socket in sample.websockets]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            return OK

        sample.scripts["talk"] = talk
        clients = [sample.connect("") for _ in range(16)]
        clients[0].send({"action": "tell"})
        assert [client.messages for client in clients] == [[0, 1, 2, 3, 4]] * 16
        assert len(sample.calls.of("sample_talk")) == 80

    @pytest.mark.parametrize("operation", ["post_to_connection", "delete_connection"])
    def test_a_closed_or_unknown_connection_is_gone(self, sample: Sample, operation: str) -> None:
        """The client's GoneException has the status 410."""
        socket = sample.connect("")
        socket.close()
        client = manager(sample)
        for connection in (socket.connection_id, "L0SM9cOFvHcCIhw="):
            data = {"Data": b"x"} if operation == "post_to_connection" else {}
            with pytest.raises(client.exceptions.GoneException) as caught:
                getattr(client, operation)(ConnectionId=connection, **data)
            assert status_of(caught.value) == ("GoneException", 410)

    def test_a_payload_over_128_kilobytes_is_refused(self, sample: Sample) -> None:
        """PostToConnection gets a 413, and the connection stays open."""
        socket, client = sample.connect(""), manager(sample)
        client.post_to_connection(ConnectionId=socket.connection_id, Data="é" * 64 * 1024)
        with pytest.raises(client.exceptions.PayloadTooLargeException) as caught:
            client.post_to_connection(ConnectionId=socket.connection_id, Data=b"x" * (128 * 1024 + 1))
        assert status_of(caught.value) == ("PayloadTooLargeException", 413)
        assert (socket.is_open, len(socket.texts)) == (True, 1)

    def test_the_endpoint_must_be_that_of_a_stage(self, sample: Sample) -> None:
        """Another endpoint of API Gateway gives a 403; a custom domain name is accepted."""
        socket, api = sample.connect(""), sample.websocket_apis[0]
        for endpoint in (f"https://{api.host}", f"https://other.execute-api.{REGION}.amazonaws.com/v1"):
            with pytest.raises(ClientError) as caught:
                manager(sample, endpoint).post_to_connection(ConnectionId=socket.connection_id, Data=b"x")
            assert status_of(caught.value) == ("ForbiddenException", 403)
        manager(sample, "https://live.example.org").post_to_connection(
            ConnectionId=socket.connection_id, Data=b"1"
        )
        assert socket.messages == [1]

    def test_rules_act_on_the_connections_api(self, sample: Sample) -> None:
        """A rule can fail the call before or after it takes effect."""
        socket = sample.connect("")
        sample.fail("apigatewaymanagementapi", "PostToConnection", "LimitExceededException")
        with pytest.raises(ClientError) as caught:
            post(sample, socket, 1)
        assert (status_of(caught.value), socket.texts) == (("LimitExceededException", 429), [])
        sample.fail("apigatewaymanagementapi", "PostToConnection", "GoneException", after=True)
        with pytest.raises(ClientError):
            post(sample, socket, 2)
        assert socket.messages == [2]

    def test_a_call_that_a_role_does_not_allow_is_found(self, sample: Sample) -> None:
        """The sample's role may post to the stage of its API, and not delete."""

        def talk(event: Event, context: Any) -> Any:
            connection = event["requestContext"]["connectionId"]
            manager(sample).post_to_connection(ConnectionId=connection, Data=b"{}")
            manager(sample).delete_connection(ConnectionId=connection)
            return OK

        sample.scripts["talk"] = talk
        socket = sample.connect("")
        socket.send({"action": "tell"})
        path = f"{sample.websocket_apis[0].id}/v1/DELETE/@connections/{socket.connection_id}"
        resource = f"arn:aws:execute-api:{REGION}:{ACCOUNT}:{path}"
        assert sample.denied() == [f"sample_talk: execute-api:ManageConnections on {resource}"]


class TestEnding:
    def test_a_connection_is_closed_before_disconnect_runs(
        self, sample: Sample, connects: RecordingHandler
    ) -> None:
        """$disconnect gets the close code and reason of the client."""
        open_then: list[list[WebSocket]] = []
        socket = sample.connect("")

        def greet(event: Event, context: Any) -> Any:
            open_then.append(sample.websockets)
            return connects(event, context)

        sample.scripts["greet"] = greet
        socket.close(1001, "leaving")
        context = connects[-1]["requestContext"]
        assert open_then == [[]]
        assert (context["routeKey"], context["eventType"]) == ("$disconnect", "DISCONNECT")
        assert (context["disconnectStatusCode"], context["disconnectReason"]) == (1001, "leaving")
        assert (context["connectionId"], socket.close_code) == (socket.connection_id, 1001)

    def test_a_connection_is_closed_once(self, sample: Sample, connects: RecordingHandler) -> None:
        """Closing a closed connection does nothing."""
        socket = sample.connect("")
        socket.close()
        socket.close()
        sample.settle()
        assert connects.kinds == ["CONNECT", "DISCONNECT"]

    def test_a_connection_can_be_lost_without_disconnect(self, sample: Sample, connects: RecordingHandler) -> None:
        """After `drop` no $disconnect runs."""
        socket = sample.connect("")
        socket.drop()
        sample.advance(8000)
        assert (socket.is_open, sample.websockets, connects.kinds) == (False, [], ["CONNECT"])
        with pytest.raises(ClientError, match="GoneException"):
            post(sample, socket, 1)

    def test_a_failed_disconnect_is_not_retried(self, sample: Sample) -> None:
        """The connection is closed although $disconnect fails."""
        socket = sample.connect("")
        sample.scripts["greet"] = raising
        socket.close()
        sample.settle(within=600)
        assert (sample.websockets, len(sample.functions.errors)) == ([], 1)

    def test_a_function_can_close_a_connection(self, sample: Sample, connects: RecordingHandler) -> None:
        """The client sees the close at once, and $disconnect runs after the function."""

        def talk(event: Event, context: Any) -> Any:
            manager(sample).delete_connection(ConnectionId=event["requestContext"]["connectionId"])
            assert connects.kinds == ["CONNECT"]
            return OK

        sample.scripts["talk"] = talk
        socket = sample.connect("")
        socket.send({"action": "tell"})
        assert (socket.close_code, socket.texts, sample.functions.errors) == (1000, [], [])
        sample.settle()
        assert connects.kinds == ["CONNECT", "DISCONNECT"]

    def test_an_idle_connection_is_closed_after_ten_minutes(
        self, sample: Sample, connects: RecordingHandler
    ) -> None:
        """It is closed with code 1001 when the clock passes ten minutes, and $disconnect runs."""
        sample.advance(100)  # away from the sample's schedule, which would stop there too
        socket = sample.connect("")
        sample.advance(599)
        assert socket.is_open
        sample.advance(100)
        assert socket.close_code == 1001
        context = connects[-1]["requestContext"]
        assert context["disconnectStatusCode"] == 1001
        assert context["requestTimeEpoch"] - context["connectedAt"] == pytest.approx(600_000, abs=10)

    @pytest.mark.parametrize("direction", ["in", "out"])
    def test_a_message_in_either_direction_restarts_the_idle_timeout(self, sample: Sample, direction: str) -> None:
        """The connection is closed ten minutes after the last message."""
        socket = sample.connect("")
        sample.advance(500)
        if direction == "in":
            socket.send({"action": "tell"})
        else:
            post(sample, socket, 1)
        sample.advance(500)
        assert socket.is_open
        sample.advance(101)
        assert not socket.is_open

    def test_no_connection_lasts_longer_than_two_hours(self, sample: Sample) -> None:
        """A connection is closed after two hours, even if messages are sent."""
        socket = sample.connect("")
        for _ in range(14):
            sample.advance(500)
            post(sample, socket, 1)
        sample.advance(199)
        assert socket.is_open
        sample.advance(2)
        assert socket.close_code == 1001

    def test_a_connection_can_expire_while_a_function_runs(
        self, sample: Sample, connects: RecordingHandler
    ) -> None:
        """PostToConnection gets GoneException, and $disconnect runs when the cloud settles."""
        socket = sample.connect("")
        sample.clock.advance(601)
        with pytest.raises(ClientError, match="GoneException"):
            post(sample, socket, 1)
        assert connects.kinds == ["CONNECT"]
        sample.settle()
        assert connects.kinds == ["CONNECT", "DISCONNECT"]

    def test_settle_does_not_wait_for_the_expiry(self, sample: Sample) -> None:
        """The expiry of a connection alone does not move the clock; it happens when the clock passes it."""
        socket, began = sample.connect(""), sample.clock.time
        assert sample.settle(within=3600) == 0
        assert (socket.is_open, sample.clock.time) == (True, began)
        sample.queue("Queue").send("m", DelaySeconds=900)
        sample.settle(within=3600)
        assert not socket.is_open

    def test_a_reset_removes_all_connections(self, sample: Sample, connects: RecordingHandler) -> None:
        """No $disconnect runs for them."""
        socket = sample.connect("")
        sample.client("apigatewaymanagementapi").delete_connection(ConnectionId=sample.connect("").connection_id)
        sample.cloud.reset()
        sample.settle()
        assert (sample.websockets, socket.is_open, connects.kinds) == ([], False, ["CONNECT", "CONNECT"])


class TestDeploying:
    @pytest.mark.parametrize(
        ("kind", "properties", "problem"),
        [
            ("Api", {"ProtocolType": "HTTP"}, "HTTP"),
            ("Api", {"ProtocolType": "WEBSOCKET", "CorsConfiguration": {}}, "CorsConfiguration"),
            ("Route", {"AuthorizationType": "CUSTOM"}, "CUSTOM"),
            ("Integration", {"IntegrationType": "MOCK"}, "MOCK"),
            ("Stage", {"StageName": "v1"}, "no AutoDeploy"),
            ("RouteResponse", {}, "unknown resource type"),
            ("DomainName", {}, "unknown resource type"),
        ],
    )
    def test_what_is_not_modelled_fails_the_deployment(
        self, tmp_path: Path, kind: str, properties: dict[str, Any], problem: str
    ) -> None:
        """The error names what the simulation lacks."""
        template = {"Resources": {"Odd": {"Type": f"AWS::ApiGatewayV2::{kind}", "Properties": properties}}}
        cloud = Cloud(write_assembly(tmp_path, {"Odd": template}), tmp_path)
        with pytest.raises(Unsupported, match=problem), cloud.running():
            pass

    def test_the_url_can_be_built_from_the_template(self, sample: Sample) -> None:
        """The URL consists of `ApiEndpoint` and the `Ref` of the stage."""
        api, stage = (sample.deployment.find(f"AWS::ApiGatewayV2::{kind}", "Live") for kind in ("Api", "Stage"))
        assert f"{api.attributes['ApiEndpoint']}/{stage.reference}" == sample.websocket_apis[0].url
