"""Items and messages reach moto without an HTTP request, and so do new tables and queues.

Most calls of a test read and write them, and most of their time is taken by making, routing and parsing requests
and responses. Here moto gets the parameters that boto3 has checked and serialised. The answer has been through
JSON, and moto and botocore translate an error as they do over HTTP. Requests with binary values, other operations
and other endpoints go over HTTP.
"""

from __future__ import annotations

import json
import re
from typing import Any

from botocore.awsrequest import AWSResponse
from botocore.client import BaseClient
from botocore.model import OperationModel
from botocore.parsers import create_parser
from moto.core import DEFAULT_ACCOUNT_ID
from moto.core.exceptions import HTTPException, ServiceException
from moto.core.models import botocore_stubber
from moto.core.responses import ActionContext, ActionResult, BaseResponse, get_service_model
from moto.core.serialize import get_serializer_class
from moto.dynamodb.responses import DynamoHandler
from moto.sqs.responses import SQSResponse

HANDLERS: dict[str, type[BaseResponse]] = {"dynamodb": DynamoHandler, "sqs": SQSResponse}
METHODS = {
    "BatchGetItem": "batch_get_item",
    "BatchWriteItem": "batch_write_item",
    "CreateTable": "create_table",
    "DeleteItem": "delete_item",
    "GetItem": "get_item",
    "PutItem": "put_item",
    "Query": "query",
    "Scan": "scan",
    "TransactGetItems": "transact_get_items",
    "TransactWriteItems": "transact_write_items",
    "UpdateItem": "update_item",
    "ChangeMessageVisibility": "change_message_visibility",
    "CreateQueue": "create_queue",
    "DeleteMessage": "delete_message",
    "DeleteMessageBatch": "delete_message_batch",
    "ReceiveMessage": "receive_message",
    "SendMessage": "send_message",
    "SendMessageBatch": "send_message_batch",
}
BINARY = re.compile(rb'"(BS?|BinaryValue)": ?["\[]')
PROTOCOL = "json"
Answer = tuple[AWSResponse, dict[str, Any]]
Response = dict[str, Any]
"""What botocore's parsers read: `status_code`, `headers` and `body`."""

over_http: Any = BaseClient._make_request  # type: ignore[attr-defined]


def make_request(client: BaseClient, operation: OperationModel, request: dict[str, Any], context: Any) -> Answer:
    """Replaces `BaseClient._make_request`, which sends the request."""
    if not is_direct(operation, request):
        answer: Answer = over_http(client, operation, request, context)
        return answer
    handler = handler_of(client, request["url"], json.loads(request["body"]))
    try:
        result = getattr(handler, METHODS[operation.name])()
    except ServiceException as error:
        return parsed(client, operation, serialised(operation, handler, ActionResult(error)))
    except HTTPException as error:
        return parsed(client, operation, response_of(error.code or 400, {}, error.description or ""))
    try:
        return answer_of(operation, 200, values_of(operation, json.dumps(result.result or {})))
    except TypeError:  # binary values, times
        return parsed(client, operation, serialised(operation, handler, result))


def is_direct(operation: OperationModel, request: dict[str, Any]) -> bool:
    return (
        operation.name in METHODS
        and operation.service_model.service_name in HANDLERS
        and botocore_stubber.enabled
        and "amazonaws.com" in request["url"]
        and not BINARY.search(request["body"])
    )


def handler_of(client: BaseClient, url: str, body: dict[str, Any]) -> BaseResponse:
    """moto's handler of one request, as far as the methods need it."""
    handler: Any = HANDLERS[client.meta.service_model.service_name]()
    handler.region, handler.current_account = client.meta.region_name, DEFAULT_ACCOUNT_ID
    handler.params = handler.body = body
    handler.uri, handler.uri_match = url, {}
    return handler


def serialised(operation: OperationModel, handler: BaseResponse, result: ActionResult) -> Response:
    model = get_service_model(handler.boto3_service_name)
    serializer = get_serializer_class(model.service_name, PROTOCOL)
    context = ActionContext(model, model.operation_model(operation.name), serializer, handler)
    return response_of(*result.execute_result(context))


def response_of(status: int, headers: dict[str, str], body: str) -> Response:
    lower = {name.lower(): value for name, value in headers.items()}
    return {"status_code": status, "headers": lower, "body": body.encode()}


def parsed(client: Any, operation: OperationModel, response: Response) -> Answer:
    parser, status = create_parser(PROTOCOL), response["status_code"]
    values = parser.parse(response, operation.output_shape)
    if status >= 300:
        client._endpoint._add_modeled_error_fields(response, values, operation, parser)
    return answer_of(operation, status, values)


def values_of(operation: OperationModel, text: str) -> dict[str, Any]:
    """The values of the answer's members."""
    members = operation.output_shape.members if operation.output_shape else {}
    return {name: value for name, value in json.loads(text, object_hook=plain).items() if name in members}


def plain(value: dict[str, Any]) -> dict[str, Any]:
    """Without what moto leaves out when it serialises, and with the numbers of items as texts."""
    kept = {name: member for name, member in value.items() if member is not None}
    if isinstance(kept.get("N"), int | float):
        kept["N"] = str(kept["N"])
    return kept


def answer_of(operation: OperationModel, status: int, values: dict[str, Any]) -> Answer:
    metadata = {"HTTPStatusCode": status, "HTTPHeaders": {}, "RetryAttempts": 0, "RequestId": "direct"}
    values["ResponseMetadata"] = values.get("ResponseMetadata", {}) | metadata
    return AWSResponse(operation.name, status, {}, None), values
