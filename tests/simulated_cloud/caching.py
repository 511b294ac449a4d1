"""Caches and faster replacements for slow parts of moto and boto3 that give the same result each time.

Optional. A test that runs a whole state machine takes less than half of the time with them.
"""

from __future__ import annotations

import functools
import gc
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from antlr4 import ParserRuleContext, RuleContext  # type: ignore[import-untyped]
from botocore.client import BaseClient
from botocore.signers import RequestSigner
from moto.core import models, responses
from moto.core.base_backend import BaseBackend
from moto.core.serialize import ResponseSerializer
from moto.sqs import models as sqs_models
from moto.stepfunctions.parser.asl.component.eval_component import EvalComponent
from moto.stepfunctions.parser.asl.component.state.exec.state_task import lambda_eval_utils
from moto.stepfunctions.parser.asl.component.state.exec.state_task.service import state_task_service_sqs
from moto.stepfunctions.parser.asl.parse.asl_parser import AmazonStateLanguageParser
from moto.stepfunctions.parser.asl.parse.preprocessor import Preprocessor
from moto.stepfunctions.parser.asl.utils import boto_client, json_path

from . import direct_calls, dynamodb_speed

Patch = tuple[Any, str, Any]


def memoised(owner: Any, name: str) -> Patch:
    """A patch that caches the results of `owner.name` for the whole test session, also across cold starts."""
    return owner, name, functools.cache(getattr(owner, name))


MEMOISED = (
    memoised(json_path, "parse"),
    memoised(models, "CallbackResponse"),
    memoised(responses, "camelcase_to_underscores"),
    memoised(responses, "method_names_from_class"),
    memoised(RuleContext, "getText"),
)
parse, get_value = AmazonStateLanguageParser.parse, ResponseSerializer.get_value
real_urls: Any = BaseBackend.urls
real_sign: Any = RequestSigner.sign
urls_by_backend: dict[type[BaseBackend], Any] = {}


@contextmanager
def installed(*more: Patch) -> Iterator[None]:
    """Apply the caches inside the block, and `more` patches, such as caches of the project's own AWS clients."""
    freeze_garbage()
    with ExitStack() as patches:
        for owner, name, replacement in (*MEMOISED, *more, *replacements()):
            patches.enter_context(mock.patch.object(owner, name, replacement))
        yield


def replacements() -> list[Patch]:
    return [
        (AmazonStateLanguageParser, "parse", staticmethod(program)),
        (ResponseSerializer, "get_value", value_of),
        (sqs_models, "unix_time_millis", milliseconds),
        (BaseBackend, "urls", property(urls)),
        (responses, "gen_amzn_requestid_long", request_id),
        (RequestSigner, "sign", sign),
        (BaseClient, "_make_request", direct_calls.make_request),
        *dynamodb_speed.replacements(),
        (lambda_eval_utils, "boto_client_for", client_for),
        (state_task_service_sqs, "boto_client_for", client_for),
    ]


@functools.cache
def freeze_garbage() -> None:
    """Exclude all present objects from garbage collection: they live as long as the session anyway."""
    gc.collect()
    gc.freeze()


@functools.cache
def tree(definition: str) -> ParserRuleContext:
    return parse(definition)[1]


def program(definition: str) -> tuple[EvalComponent, ParserRuleContext]:
    """A new program for each execution, because it counts retries. The syntax tree is shared."""
    return Preprocessor().visit(tree(definition)), tree(definition)


@functools.cache
def client_of(region: str, service: str) -> BaseClient:
    return boto_client.boto_client_for(region, service)


def client_for(region: str, service: str, state_credentials: Any = None) -> BaseClient:
    """The clients of Step Functions. moto ignores their credentials."""
    return client_of(region, service)


def value_of(serializer: ResponseSerializer, value: Any, key: str, shape: Any) -> Any:
    """The same result as moto's, which looks up each of ten DynamoDB types under eight names."""
    if type(value) is dict and shape.parent.name == "AttributeValue":
        return value.get(key)
    return get_value(serializer, value, key, shape)


def milliseconds() -> float:
    """A faster clock for SQS, which reads it twice for each message in a queue."""
    return round(1000 * time.time(), 3)


def urls(backend: BaseBackend) -> Any:
    """The URLs of a service and what answers them, which moto makes anew for each request."""
    if type(backend) not in urls_by_backend:
        urls_by_backend[type(backend)] = real_urls.__get__(backend)
    return urls_by_backend[type(backend)]


def request_id(headers: Any = None) -> str:
    """moto draws each of 52 characters."""
    made = uuid.uuid4().hex.upper()
    if isinstance(headers, dict):
        headers["x-amzn-requestid"] = made
    return made


def sign(signer: RequestSigner, operation: str, request: Any, *args: Any, **options: Any) -> None:
    """Name the key and the region of a request without a signature, which moto does not check.

    URLs are signed, and requests of S3: their headers say how the body is encoded.
    """
    if args or options or signer.signing_name == "s3":
        real_sign(signer, operation, request, *args, **options)
        return
    scope = f"testing/20000101/{signer.region_name}/{signer.signing_name}/aws4_request"
    request.headers["Authorization"] = f"AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host, Signature=0"
