"""API Gateway's WebSocket APIs: the handshake, messages in both directions, and how connections end."""

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

from tests.support import sample
from tests.support.cloud import Cloud
from tests.support.functions import ACCOUNT, REGION
from tests.support.sample import raising
from tests.support.sockets import Closed, Refused, Socket
from tests.support.template import Unsupported

Event = dict[str, Any]
OK = {"statusCode": 200}


class Told(list[Event]):
    """A function that says yes, and keeps what it was told."""

    def __call__(self, event: Event, context: Any) -> Any:
        self.append(event)
        return OK

    @property
    def kinds(self) -> list[str]:
        return [event["requestContext"]["eventType"] for event in self]


@pytest.fixture(autouse=True)
def greeted(it: sample.Sample) -> Told:
    it.scripts["greet"] = told = Told()
    it.scripts["talk"] = lambda event, context: {"statusCode": 200, "body": json.dumps(event)}
    return told


def manager(it: sample.Sample, endpoint: str | None = None) -> Any:
    """The client that a function would make."""
    url = endpoint or it.socket_apis[0].endpoint
    return boto3.client("apigatewaymanagementapi", region_name=REGION, endpoint_url=url)


def post(it: sample.Sample, socket: Socket, message: Any) -> None:
    data = json.dumps(message).encode()
    it.client("apigatewaymanagementapi").post_to_connection(ConnectionId=socket.connection_id, Data=data)


def status_of(error: ClientError) -> tuple[str, int]:
    return error.response["Error"]["Code"], error.response["ResponseMetadata"]["HTTPStatusCode"]


class TestConnecting:
    def test_the_handshake_becomes_an_event(self, it: sample.Sample, greeted: Told) -> None:
        """Headers, query (also repeated) and the context that API Gateway sends."""
        socket = it.connect("?token=a%20b&x=1&x=2", headers={"Origin": "https://example.org"})
        (event,) = greeted
        context = event["requestContext"]
        assert event["queryStringParameters"] == {"token": "a b", "x": "2"}
        assert event["multiValueQueryStringParameters"]["x"] == ["1", "2"]
        assert event["headers"]["Origin"] == "https://example.org"
        assert event["multiValueHeaders"]["Host"] == [it.socket_apis[0].host]
        assert (context["routeKey"], context["eventType"]) == ("$connect", "CONNECT")
        assert context["connectionId"] == socket.connection_id
        assert context["domainName"] == f"{context['apiId']}.execute-api.{REGION}.amazonaws.com"
        assert context["stage"] == "v1"
        assert context["identity"]["sourceIp"] == "203.0.113.7"
        assert context["connectedAt"] == context["requestTimeEpoch"] == int(it.clock.time * 1000)

    def test_without_a_query_the_event_has_none(self, it: sample.Sample, greeted: Told) -> None:
        """The field is absent, not null."""
        it.connect(it.socket_apis[0].url)
        assert "queryStringParameters" not in greeted[0]

    def test_an_identifier_is_eleven_bytes_in_base64(self, it: sample.Sample) -> None:
        """Each connection has its own, and every run the same."""
        first, second = it.connect(""), it.connect("")
        assert re.fullmatch(r"[\w-]{15}=", first.connection_id)
        assert first.connection_id != second.connection_id
        it.cloud.reset()
        assert it.connect("").connection_id == first.connection_id

    def test_it_is_open_then(self, it: sample.Sample) -> None:
        """And one of the cloud's sockets, in the order of their handshakes."""
        first, second = it.connect("?a"), it.connect(f"{it.socket_apis[0].url}?b")
        assert first.is_open
        assert first.close_code is None
        assert it.sockets == [first, second]

    @pytest.mark.parametrize("status", [401, 403, 500])
    def test_a_function_may_refuse(self, it: sample.Sample, status: int) -> None:
        """The client gets the function's own status, and there is no connection."""
        it.scripts["greet"] = lambda event, context: {"statusCode": status}
        with pytest.raises(Refused) as caught:
            it.connect("")
        assert (caught.value.status, it.sockets) == (status, [])

    @pytest.mark.parametrize("script", [raising, lambda event, context: None])
    def test_a_function_that_fails_is_a_502(self, it: sample.Sample, script: sample.Script) -> None:
        """So is an answer that is no proxy response."""
        it.scripts["greet"] = script
        with pytest.raises(Refused) as caught:
            it.connect("")
        assert caught.value.status == 502

    def test_a_function_that_takes_too_long_is_a_504(self, it: sample.Sample) -> None:
        """29 seconds."""
        it.scripts["greet"] = lambda event, context: time.sleep(29.5)
        with pytest.raises(Refused) as caught:
            it.connect("")
        assert caught.value.status == 504

    def test_the_connection_exists_after_the_function_only(self, it: sample.Sample) -> None:
        """While $connect runs, nothing can be posted to it."""

        def greet(event: Event, context: Any) -> Any:
            connection = event["requestContext"]["connectionId"]
            with pytest.raises(ClientError) as caught:
                manager(it).post_to_connection(ConnectionId=connection, Data=b"{}")
            assert status_of(caught.value) == ("GoneException", 410)
            return OK

        it.scripts["greet"] = greet
        socket = it.connect("")
        post(it, socket, {"n": 1})
        assert socket.messages == [{"n": 1}]
        assert it.functions.errors == []

    def test_another_path_is_refused(self, it: sample.Sample) -> None:
        """403 before any function runs; another host is not of this cloud."""
        with pytest.raises(Refused) as caught:
            it.connect(f"{it.socket_apis[0].url}/more?token=x")
        assert (caught.value.status, it.functions.invocations) == (403, [])
        with pytest.raises(LookupError):
            it.connect("wss://example.org/v1")


class TestSending:
    @pytest.mark.parametrize(
        ("message", "route"),
        [
            ({"action": "ask"}, "ask"),
            ({"action": "other"}, "$default"),
            ({"action": ["ask"]}, "$default"),
            ({"action": "$connect"}, "$default"),
            ([1], "$default"),
            ("no JSON", "$default"),
        ],
    )
    def test_a_message_goes_to_the_route_of_its_action(self, it: sample.Sample, message: Any, route: str) -> None:
        """To $default where there is none such; the body is what was sent."""
        socket = it.connect("")
        socket.send(message)
        ((event,), body) = socket.take(), message if isinstance(message, str) else json.dumps(message)
        context = event["requestContext"]
        assert (context["routeKey"], context["eventType"]) == (route, "MESSAGE")
        assert (context["connectionId"], event["body"]) == (socket.connection_id, body)
        assert "headers" not in event

    def test_a_route_without_a_response_is_silent(self, it: sample.Sample) -> None:
        """What its function returns is lost."""
        socket = it.connect("")
        socket.send({"action": "tell"})
        assert socket.messages == []
        assert [one.name for one in it.functions.invocations] == ["sample_greet", "sample_talk"]

    def test_messages_are_taken_once(self, it: sample.Sample) -> None:
        """In order; `texts` has them as they came."""
        socket = it.connect("")
        for number in range(3):
            post(it, socket, {"n": number})
        assert socket.texts == ['{"n": 0}', '{"n": 1}', '{"n": 2}']
        assert socket.take() == [{"n": 0}, {"n": 1}, {"n": 2}]
        assert socket.take() == []

    @pytest.mark.parametrize("script", [raising, lambda event, context: None])
    @pytest.mark.parametrize("action", ["ask", "tell"])
    def test_a_function_that_fails_is_told(self, it: sample.Sample, script: sample.Script, action: str) -> None:
        """In API Gateway's words, whether the route has a response or not; the connection stays."""
        it.scripts["talk"] = script
        socket = it.connect("")
        socket.send({"action": action})
        (message,) = socket.messages
        assert message["message"] == "Internal server error"
        assert (message["connectionId"], "requestId" in message) == (socket.connection_id, True)
        assert socket.is_open

    def test_a_function_that_takes_too_long_is_told(self, it: sample.Sample) -> None:
        """After the integration's own time."""
        it.scripts["talk"] = lambda event, context: time.sleep(6)
        socket = it.connect("")
        socket.send({"action": "ask"})
        assert socket.messages[0]["message"] == "Endpoint request timed out"

    def test_a_large_frame_closes_the_connection(self, it: sample.Sample, greeted: Told) -> None:
        """With 1009 from 32 KB on, and no function sees it."""
        socket = it.connect("")
        socket.send("x" * 32 * 1024)
        socket.send("x" * (32 * 1024 + 1))
        assert (socket.is_open, socket.close_code) == (False, 1009)
        assert [one.name for one in it.functions.invocations].count("sample_talk") == 1
        assert greeted.kinds == ["CONNECT", "DISCONNECT"]
        assert greeted[1]["requestContext"]["disconnectStatusCode"] == 1009

    def test_a_fragmented_message_may_be_larger(self, it: sample.Sample) -> None:
        """128 KB in all."""
        socket = it.connect("")
        socket.send("x" * 128 * 1024, fragmented=True)
        assert socket.is_open
        socket.send("x" * (128 * 1024 + 1), fragmented=True)
        assert socket.close_code == 1009

    def test_nothing_is_sent_over_a_closed_connection(self, it: sample.Sample) -> None:
        """The client knows."""
        socket = it.connect("")
        socket.close()
        with pytest.raises(Closed):
            socket.send({})


class TestPosting:
    def test_a_function_posts_while_it_handles_a_message(self, it: sample.Sample) -> None:
        """What it posts comes before what it returns, and the calls are recorded as its own."""

        def talk(event: Event, context: Any) -> Any:
            connection = event["requestContext"]["connectionId"]
            manager(it).post_to_connection(ConnectionId=connection, Data='{"n": 1}')
            return {"statusCode": 200, "body": '{"n": 2}'}

        it.scripts["talk"] = talk
        socket = it.connect("")
        socket.send({"action": "ask"})
        assert socket.messages == [{"n": 1}, {"n": 2}]
        (call,) = it.calls.of("sample_talk")
        assert (call.action, call.index) == ("apigatewaymanagementapi:PostToConnection", 1)

    def test_threads_of_one_function_post_at_once(self, it: sample.Sample) -> None:
        """Nothing is lost, and each socket gets its own."""

        def talk(event: Event, context: Any) -> Any:
            client = manager(it)

            def tell(socket: Socket) -> None:
                for number in range(5):
                    client.post_to_connection(ConnectionId=socket.connection_id, Data=json.dumps(number))

            threads = [threading.Thread(target=tell, args=(socket,)) for socket in it.sockets]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            return OK

        it.scripts["talk"] = talk
        clients = [it.connect("") for _ in range(16)]
        clients[0].send({"action": "tell"})
        assert [client.messages for client in clients] == [[0, 1, 2, 3, 4]] * 16
        assert len(it.calls.of("sample_talk")) == 80

    @pytest.mark.parametrize("operation", ["post_to_connection", "get_connection", "delete_connection"])
    def test_a_connection_that_is_no_more_is_gone(self, it: sample.Sample, operation: str) -> None:
        """Closed or never there: 410, by the class that the client has for it."""
        socket = it.connect("")
        socket.close()
        client = manager(it)
        for connection in (socket.connection_id, "L0SM9cOFvHcCIhw="):
            data = {"Data": b"x"} if operation == "post_to_connection" else {}
            with pytest.raises(client.exceptions.GoneException) as caught:
                getattr(client, operation)(ConnectionId=connection, **data)
            assert status_of(caught.value) == ("GoneException", 410)

    def test_a_payload_over_128_kilobytes_is_refused(self, it: sample.Sample) -> None:
        """413, and the connection stays."""
        socket, client = it.connect(""), manager(it)
        client.post_to_connection(ConnectionId=socket.connection_id, Data="é" * 64 * 1024)
        with pytest.raises(client.exceptions.PayloadTooLargeException) as caught:
            client.post_to_connection(ConnectionId=socket.connection_id, Data=b"x" * (128 * 1024 + 1))
        assert status_of(caught.value) == ("PayloadTooLargeException", 413)
        assert (socket.is_open, len(socket.texts)) == (True, 1)

    def test_a_connection_tells_of_itself(self, it: sample.Sample) -> None:
        """Since when it is there, when something last passed, and who it is."""
        socket = it.connect("", headers={"User-Agent": "browser"})
        it.clock.advance(60)
        socket.send({"action": "tell"})
        told = manager(it).get_connection(ConnectionId=socket.connection_id)
        assert (told["LastActiveAt"] - told["ConnectedAt"]).total_seconds() == pytest.approx(60, abs=1)
        assert told["Identity"] == {"SourceIp": "203.0.113.7", "UserAgent": "browser"}

    def test_the_client_is_that_of_the_api_and_its_stage(self, it: sample.Sample) -> None:
        """AWS's own host names both, and without them it is 403; another host is as good as a domain name."""
        socket, api = it.connect(""), it.socket_apis[0]
        for endpoint in (f"https://{api.host}", f"https://other.execute-api.{REGION}.amazonaws.com/v1"):
            with pytest.raises(ClientError) as caught:
                manager(it, endpoint).post_to_connection(ConnectionId=socket.connection_id, Data=b"x")
            assert status_of(caught.value) == ("ForbiddenException", 403)
        manager(it, "https://live.example.org").post_to_connection(ConnectionId=socket.connection_id, Data=b"1")
        assert socket.messages == [1]

    def test_faults_meet_it_like_every_call(self, it: sample.Sample) -> None:
        """Before, and after it took effect."""
        socket = it.connect("")
        it.fail("apigatewaymanagementapi", "PostToConnection", "LimitExceededException")
        with pytest.raises(ClientError) as caught:
            post(it, socket, 1)
        assert (status_of(caught.value), socket.texts) == (("LimitExceededException", 429), [])
        it.fail("apigatewaymanagementapi", "PostToConnection", "GoneException", after=True)
        with pytest.raises(ClientError):
            post(it, socket, 2)
        assert socket.messages == [2]

    def test_what_a_role_does_not_allow_is_named(self, it: sample.Sample) -> None:
        """The sample's role may post to its API's stage, and not delete."""

        def talk(event: Event, context: Any) -> Any:
            connection = event["requestContext"]["connectionId"]
            manager(it).post_to_connection(ConnectionId=connection, Data=b"{}")
            manager(it).delete_connection(ConnectionId=connection)
            return OK

        it.scripts["talk"] = talk
        socket = it.connect("")
        socket.send({"action": "tell"})
        path = f"{it.socket_apis[0].id}/v1/DELETE/@connections/{socket.connection_id}"
        resource = f"arn:aws:execute-api:{REGION}:{ACCOUNT}:{path}"
        assert it.denied() == [f"sample_talk: execute-api:ManageConnections on {resource}"]


class TestEnding:
    def test_a_client_that_closes_is_gone_before_the_function_hears(
        self, it: sample.Sample, greeted: Told
    ) -> None:
        """$disconnect runs at once, with the code and reason of the client."""
        open_then: list[list[Socket]] = []
        socket = it.connect("")

        def greet(event: Event, context: Any) -> Any:
            open_then.append(it.sockets)
            return greeted(event, context)

        it.scripts["greet"] = greet
        socket.close(1001, "leaving")
        context = greeted[-1]["requestContext"]
        assert open_then == [[]]
        assert (context["routeKey"], context["eventType"]) == ("$disconnect", "DISCONNECT")
        assert (context["disconnectStatusCode"], context["disconnectReason"]) == (1001, "leaving")
        assert (context["connectionId"], socket.close_code) == (socket.connection_id, 1001)

    def test_it_ends_once(self, it: sample.Sample, greeted: Told) -> None:
        """Closing again does nothing."""
        socket = it.connect("")
        socket.close()
        socket.close()
        it.settle()
        assert greeted.kinds == ["CONNECT", "DISCONNECT"]

    def test_a_client_can_vanish(self, it: sample.Sample, greeted: Told) -> None:
        """Then the function never hears of it."""
        socket = it.connect("")
        socket.vanish()
        it.advance(8000)
        assert (socket.is_open, it.sockets, greeted.kinds) == (False, [], ["CONNECT"])
        with pytest.raises(ClientError, match="GoneException"):
            post(it, socket, 1)

    def test_a_function_that_fails_does_not_keep_it(self, it: sample.Sample) -> None:
        """$disconnect is tried once."""
        socket = it.connect("")
        it.scripts["greet"] = raising
        socket.close()
        it.settle(within=600)
        assert (it.sockets, len(it.functions.errors)) == ([], 1)

    def test_the_server_can_close_it(self, it: sample.Sample, greeted: Told) -> None:
        """At once for the client; $disconnect runs after the function that did it."""

        def talk(event: Event, context: Any) -> Any:
            manager(it).delete_connection(ConnectionId=event["requestContext"]["connectionId"])
            assert greeted.kinds == ["CONNECT"]
            return {"statusCode": 200, "body": "too late"}

        it.scripts["talk"] = talk
        socket = it.connect("")
        socket.send({"action": "ask"})
        assert (socket.close_code, socket.texts, it.functions.errors) == (1000, [], [])
        it.settle()
        assert greeted.kinds == ["CONNECT", "DISCONNECT"]

    def test_an_idle_connection_is_closed_after_ten_minutes(self, it: sample.Sample, greeted: Told) -> None:
        """With 1001, when the clock passes that, and $disconnect runs then."""
        it.advance(100)  # away from the sample's schedule, which would stop there too
        socket = it.connect("")
        it.advance(599)
        assert socket.is_open
        it.advance(100)
        assert socket.close_code == 1001
        context = greeted[-1]["requestContext"]
        assert context["disconnectStatusCode"] == 1001
        assert context["requestTimeEpoch"] - context["connectedAt"] == pytest.approx(600_000, abs=10)

    @pytest.mark.parametrize("direction", ["in", "out"])
    def test_what_passes_in_either_direction_keeps_it(self, it: sample.Sample, direction: str) -> None:
        """For ten minutes more."""
        socket = it.connect("")
        it.advance(500)
        if direction == "in":
            socket.send({"action": "tell"})
        else:
            post(it, socket, 1)
        it.advance(500)
        assert socket.is_open
        it.advance(101)
        assert not socket.is_open

    def test_no_connection_lasts_longer_than_two_hours(self, it: sample.Sample) -> None:
        """However busy it is."""
        socket = it.connect("")
        for _ in range(14):
            it.advance(500)
            post(it, socket, 1)
        it.advance(199)
        assert socket.is_open
        it.advance(2)
        assert socket.close_code == 1001

    def test_it_ends_in_the_middle_of_a_function(self, it: sample.Sample, greeted: Told) -> None:
        """A post that comes too late meets its end; $disconnect runs when something can."""
        socket = it.connect("")
        it.clock.advance(601)
        with pytest.raises(ClientError, match="GoneException"):
            post(it, socket, 1)
        assert greeted.kinds == ["CONNECT"]
        it.settle()
        assert greeted.kinds == ["CONNECT", "DISCONNECT"]

    def test_settling_does_not_wait_for_the_end(self, it: sample.Sample) -> None:
        """Idle sockets end on the way to something else, and are nothing to wait for."""
        socket, began = it.connect(""), it.clock.time
        assert it.settle(within=3600) == 0
        assert (socket.is_open, it.clock.time) == (True, began)
        it.queue("Queue").send("m", DelaySeconds=900)
        it.settle(within=3600)
        assert not socket.is_open

    def test_a_reset_leaves_none(self, it: sample.Sample, greeted: Told) -> None:
        """And no function hears of it."""
        socket = it.connect("")
        it.client("apigatewaymanagementapi").delete_connection(ConnectionId=it.connect("").connection_id)
        it.cloud.reset()
        it.settle()
        assert (it.sockets, socket.is_open, greeted.kinds) == ([], False, ["CONNECT", "CONNECT"])


class TestDeploying:
    @pytest.mark.parametrize(
        ("kind", "properties", "problem"),
        [
            ("Api", {"ProtocolType": "HTTP"}, "HTTP"),
            ("Api", {"ProtocolType": "WEBSOCKET", "CorsConfiguration": {}}, "CorsConfiguration"),
            ("Route", {"AuthorizationType": "CUSTOM"}, "CUSTOM"),
            ("Integration", {"IntegrationType": "MOCK"}, "MOCK"),
            ("Stage", {"StageName": "v1"}, "nothing is deployed"),
            ("DomainName", {}, "unknown resource type"),
        ],
    )
    def test_what_is_not_modelled_fails_the_deployment(
        self, tmp_path: Path, kind: str, properties: dict[str, Any], problem: str
    ) -> None:
        """By its name."""
        template = {"Resources": {"Odd": {"Type": f"AWS::ApiGatewayV2::{kind}", "Properties": properties}}}
        cloud = Cloud(sample.write_assembly(tmp_path, {"Odd": template}), tmp_path)
        with pytest.raises(Unsupported, match=problem), cloud.running():
            pass

    def test_urls_can_be_built_from_the_template(self, it: sample.Sample) -> None:
        """`ApiEndpoint` and the stage's `Ref`."""
        api, stage = (it.deployment.find(f"AWS::ApiGatewayV2::{kind}", "Live") for kind in ("Api", "Stage"))
        assert f"{api.attributes['ApiEndpoint']}/{stage.reference}" == it.socket_apis[0].url
