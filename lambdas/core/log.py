"""The one logger. Ids, sizes and codes are logged; texts, prompts, payloads and secrets never."""

from __future__ import annotations

from aws_lambda_powertools import Logger

logger = Logger()
