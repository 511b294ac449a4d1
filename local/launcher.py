"""Starts MiniStack, in its own environment, with seven amendments. Run by `local.engine`; imports nothing of ours.

Each amendment says what MiniStack 1.5.33 does without it; the version is pinned, so look again when it changes.
"""

from __future__ import annotations

import mmap
import os
import signal
import socketserver
import sys
import tempfile
import threading
import time
from collections import defaultdict
from typing import Any

HOLDS_REQUESTS = "rest.long_poll.handler"
STOP_SECONDS = 5
LARGE_BODY = 1024 * 1024


def end_with_parent() -> None:
    """End with the parent process, however it ends: its end closes the pipe that is our standard input."""

    def wait() -> None:
        os.read(0, 1)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(STOP_SECONDS)  # requests and executions in flight can hold up an orderly end for minutes
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=wait, daemon=True).start()


def answer_at_once() -> None:
    """The engine hands a function its event in two small writes, which Nagle's algorithm keeps 40 ms apart."""
    socketserver.StreamRequestHandler.disable_nagle_algorithm = True


def retry_failed_stream_batches() -> None:
    """The engine ignores `batchItemFailures` of functions on a DynamoDB stream: the records would be lost.

    Here the whole batch comes again after a second. AWS resumes at the lowest failed sequence number; both are
    at-least-once.
    """
    from ministack.services import lambda_svc  # type: ignore[import-not-found]

    execute = lambda_svc._execute_function

    def execute_and_look(function: dict[str, Any], event: Any) -> dict[str, Any]:
        result: dict[str, Any] = execute(function, event)
        if _is_stream_batch(event) and _failures(result):
            body = {"errorType": "BatchItemFailures", "errorMessage": str(_failures(result))}
            return {**result, "error": True, "body": body}
        return result

    lambda_svc._execute_function = execute_and_look


def _is_stream_batch(event: Any) -> bool:
    records = event.get("Records") if isinstance(event, dict) else None
    return isinstance(records, list) and bool(records) and records[0].get("eventSource") == "aws:dynamodb"


def _failures(result: dict[str, Any]) -> list[Any]:
    body = result.get("body")
    failures: list[Any] = body.get("batchItemFailures") or [] if isinstance(body, dict) else []
    return failures


def share_the_cores() -> None:
    """The engine starts a process for every concurrent invocation, and eighty at once would starve this machine.

    Here a function has as many as there are cores, and further invocations wait their turn. Not so those that hold
    a request open: they wait anyway.
    """
    from ministack.services import lambda_svc

    dispatch = lambda_svc._execute_function_dispatch
    turns: dict[str, threading.Semaphore] = defaultdict(lambda: threading.Semaphore(max(2, os.cpu_count() or 2)))

    def dispatch_in_turn(function: dict[str, Any], config: dict[str, Any], *rest: Any) -> Any:
        if str(config.get("Handler", "")).startswith(HOLDS_REQUESTS):
            return dispatch(function, config, *rest)
        with turns[config["FunctionName"]]:
            return dispatch(function, config, *rest)

    lambda_svc._execute_function_dispatch = dispatch_in_turn


def say_where_the_api_stands() -> None:
    """The engine leaves out what AWS tells a function of its address: the domain, the scheme, the whole path."""
    from ministack.services import apigateway_v1  # type: ignore[import-not-found]

    build = apigateway_v1._build_lambda_event_v1

    def build_whole(*args: Any, **kwargs: Any) -> dict[str, Any]:
        event: dict[str, Any] = build(*args, **kwargs)
        context, headers = event["requestContext"], event["headers"]
        context["domainName"] = headers.get("host", "")
        context["path"] = f"/_aws/execute-api/{context['apiId']}{context['path']}"
        headers.setdefault("x-forwarded-proto", "http")
        event["multiValueHeaders"].setdefault("x-forwarded-proto", ["http"])
        return event

    apigateway_v1._build_lambda_event_v1 = build_whole


def say_where_websockets_connect() -> None:
    """The engine gives a WebSocket API a host name of its own, which no resolver knows, and HTTP's scheme."""
    from ministack.services.cloudformation import provisioners  # type: ignore[import-not-found]

    kinds = provisioners._RESOURCE_HANDLERS["AWS::ApiGatewayV2::Api"]

    def reachable(provision: Any) -> Any:
        def provide(*args: Any, **kwargs: Any) -> Any:
            api_id, attributes = provision(*args, **kwargs)
            here = f"{os.environ['MINISTACK_HOST']}:{os.environ['GATEWAY_PORT']}"
            return api_id, {**attributes, "ApiEndpoint": f"ws://{here}/_aws/execute-api/{api_id}"}

        return provide

    kinds["create"], kinds["update"] = reachable(kinds["create"]), reachable(kinds["update"])


class MappedBody(mmap.mmap):
    """The body of an object in a file without a name. What was read of it does not stay in memory."""

    @classmethod
    def of(cls, body: bytes) -> MappedBody:
        with tempfile.TemporaryFile() as file:
            file.write(body)
            file.flush()
            return cls(file.fileno(), len(body), access=mmap.ACCESS_READ)

    def __getitem__(self, place: Any) -> Any:
        found = super().__getitem__(place)
        self.madvise(mmap.MADV_DONTNEED)
        return found


def keep_large_objects_in_files() -> None:
    """The engine keeps objects in memory: a file of one gigabyte would take three of them."""
    from ministack.services import s3  # type: ignore[import-not-found]

    def map_body(record: dict[str, Any] | None) -> None:
        body = record.get("body") if record else None
        if record and isinstance(body, bytes) and len(body) > LARGE_BODY:
            record["body"] = MappedBody.of(body)

    put, upload_part, complete, get = (
        s3._put_object,
        s3._upload_part,
        s3._complete_multipart_upload,
        s3._get_object,
    )

    def put_mapped(bucket: str, key: str, *rest: Any, **named: Any) -> Any:
        answer = put(bucket, key, *rest, **named)
        map_body(s3._buckets.get(bucket, {}).get("objects", {}).get(key))
        return answer

    def upload_part_mapped(bucket: str, key: str, body: bytes, query: Any, headers: Any) -> Any:
        answer = upload_part(bucket, key, body, query, headers)
        upload = s3._multipart_uploads.get(s3._qp(query, "uploadId")) or {"parts": {}}
        for part in list(upload["parts"].values()):
            map_body(part)
        return answer

    def complete_mapped(bucket: str, key: str, *rest: Any, **named: Any) -> Any:
        answer = complete(bucket, key, *rest, **named)
        map_body(s3._buckets.get(bucket, {}).get("objects", {}).get(key))
        return answer

    def get_whole(*args: Any, **named: Any) -> Any:
        status, headers, body = get(*args, **named)
        return status, headers, body[:] if isinstance(body, MappedBody) else body

    s3._put_object, s3._upload_part = put_mapped, upload_part_mapped
    s3._complete_multipart_upload, s3._get_object = complete_mapped, get_whole


if __name__ == "__main__":
    answer_at_once()
    say_where_websockets_connect()
    say_where_the_api_stands()
    share_the_cores()
    retry_failed_stream_batches()
    keep_large_objects_in_files()
    if "--end-with-parent" in sys.argv:
        sys.argv.remove("--end-with-parent")
        end_with_parent()

    from ministack.app import main  # type: ignore[import-not-found]

    main()
