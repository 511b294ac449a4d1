"""The logger. Log ids, sizes and codes. Never log texts, prompts, payloads or secrets."""

from __future__ import annotations

from aws_lambda_powertools import Logger

logger = Logger()
