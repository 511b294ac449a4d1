"""Results of tasks, for the state machine that waits for their tokens.

Tokens that are used, timed out or unknown are ignored: the state machine no longer waits for the task. One that
may not be answered is an error: whoever gets it ends the job, since nobody else will.
https://docs.aws.amazon.com/step-functions/latest/apireference/API_SendTaskSuccess.html
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from botocore.exceptions import ClientError

from core.aws import errors as aws_errors
from core.errors import RecadoError

_INVALID_TOKEN = {"TaskTimedOut", "TaskDoesNotExist", "InvalidToken"}
_NO_PERMISSION = {"AccessDeniedException", "AccessDenied"}
EXECUTION_LOST = ("execution_lost", "The execution of this job was lost. Retry the job.")
"""(code, message) of a job whose execution cannot be reached."""


class TokenRefused(RecadoError):
    """The role may not answer this token: its state machine was replaced, or the role lacks it."""


def send_success(states: Any, token: str) -> None:
    """`states` is a client of Step Functions."""
    with _ignoring_invalid_tokens():
        states.send_task_success(taskToken=token, output="{}")


def send_failure(states: Any, token: str, *, error: str, message: str) -> None:
    """Report an error as Lambda does: its class name, and a cause in JSON."""
    cause = json.dumps({"errorMessage": message, "errorType": error})
    with _ignoring_invalid_tokens():
        states.send_task_failure(taskToken=token, error=error, cause=cause)


@contextmanager
def _ignoring_invalid_tokens() -> Iterator[None]:
    try:
        yield
    except ClientError as error:
        if aws_errors.code(error) in _NO_PERMISSION:
            raise TokenRefused("no permission to answer a task token") from error
        if aws_errors.code(error) not in _INVALID_TOKEN:
            raise
