"""What functions need to call the language models of the knob `models`."""

from __future__ import annotations

import json
import re

from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_

from stacks.config import Config
from stacks.kinds.declarations import Model, read_models

# https://docs.aws.amazon.com/bedrock/latest/userguide/inference-profiles-support.html
_PROFILE = re.compile(r"(?:us|eu|apac|jp|au|ca|us-gov|global)\.(.+)")


def allow_calls(function: lambda_.Function, config: Config) -> None:
    """Give the function the settings and permissions for calling every model."""
    function.add_environment("MODELS", json.dumps(config.models))
    limit = str(config.calls_per_owner(config.max_model_calls_per_owner))
    function.add_environment("MAX_MODEL_CALLS_PER_OWNER", limit)
    function.add_environment("OPENAI_BASE_URL", config.openai_base_url)
    function.add_environment("OPENAI_KEY_SECRET", config.openai_key_secret)
    stack = Stack.of(function)
    resources = [arn for model in _models(config) if model.provider == "bedrock" for arn in _arns(model.id, stack)]
    if resources:
        actions = ["bedrock:InvokeModel", "bedrock:InvokeModelWithResponseStream"]
        function.add_to_role_policy(iam.PolicyStatement(actions=actions, resources=resources))
    if config.openai_key_secret:
        function.add_to_role_policy(
            iam.PolicyStatement(
                actions=["secretsmanager:GetSecretValue"], resources=[_secret_arn(config.openai_key_secret, stack)]
            )
        )


def _models(config: Config) -> list[Model]:
    return list(read_models(json.dumps(config.models)).values())


def _arns(model: str, stack: Stack) -> list[str]:
    """A model, an ARN, or an inference profile with the models that it routes to, which are in several regions."""
    if model.startswith("arn:"):
        return [model]
    profile = _PROFILE.fullmatch(model)
    if profile is None:
        return [f"arn:{stack.partition}:bedrock:{stack.region}::foundation-model/{model}"]
    return [
        f"arn:{stack.partition}:bedrock:{stack.region}:{stack.account}:inference-profile/{model}",
        f"arn:{stack.partition}:bedrock:*::foundation-model/{profile[1]}",
    ]


def _secret_arn(secret: str, stack: Stack) -> str:
    """A secret's ARN ends with six characters that AWS chooses."""
    if secret.startswith("arn:"):
        return secret
    return f"arn:{stack.partition}:secretsmanager:{stack.region}:{stack.account}:secret:{secret}-??????"
