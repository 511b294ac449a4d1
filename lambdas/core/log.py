"""The logger. Log ids, sizes and codes. Never log texts, prompts, payloads or secrets."""

from __future__ import annotations

from typing import Any

from aws_lambda_powertools import Logger

from core.errors import ModelFault

logger = Logger()


def log_exception(message: str, error: Exception, **facts: Any) -> None:
    """Log an error with its traceback; of a fault of a model only the code: its message may repeat the prompt."""
    if isinstance(error, ModelFault):
        logger.warning(message, reason=error.code, **facts)
    else:
        logger.exception(message, **facts)
