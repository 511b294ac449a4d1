"""The typed configuration from cdk.json's context. A wrong value fails at synthesis, with the knob's name."""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from stacks.kinds.declarations import family_of, read_models

DAY_SECONDS = 86_400
# SQS deletes a message after this time (its default), so no job may run longer.
SQS_RETENTION_MINUTES = 4 * 24 * 60
# AWS keeps so many executions for functions without a reservation:
# https://docs.aws.amazon.com/lambda/latest/dg/configuration-concurrency.html
MIN_UNRESERVED = 100
MIN_PER_OWNER = 4
DISK_PER_BYTE = 1.37
QUEUES = ("indexing", "embedding", "notify", "webhooks")
RESERVABLE = ("long_poll", "search", "parsing")
RUNTIMES = ("python3.11", "python3.12", "python3.13", "python3.14", "provided.al2023")


class ConfigError(ValueError):
    """A knob in cdk.json or a `-c` override has a wrong value. The message begins with the knob's name."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """One field per knob. cdk.json has the defaults, docs/configuration.md the explanations."""

    name: str
    runtime: str
    architecture: str
    code_directory: str
    layers: bool
    removal_policy: str
    log_level: str
    log_retention_days: int

    api_throttle_rate: int
    api_throttle_burst: int
    open_throttle_rate: int
    open_throttle_burst: int
    link_throttle_rate: int
    link_throttle_burst: int
    api_log_role: bool
    authorizer_cache_seconds: int
    cors_origins: tuple[str, ...]
    max_inline_bytes: int
    max_upload_bytes: int
    max_document_bytes: int
    idempotency_hours: int
    wait_seconds_max: int
    link_hours: int

    embedding: str
    embedding_model: str
    embedding_dimensions: int
    embedding_parallel_calls: int

    models: dict[str, dict[str, str]]
    max_output_tokens: int
    openai_base_url: str
    openai_key_secret: str

    parse_timeout_seconds: int
    parse_memory_mb: int
    max_characters: int
    chunk_size: int
    chunk_overlap: int
    chunks_per_batch: int
    texts_per_batch: int
    tokens_per_batch: int
    summary_part_tokens: int
    agent_context_tokens: int
    agent_answer_tokens: int
    fine_tune_models: tuple[str, ...]
    fine_tune_min_examples: int
    dataset_memory_mb: int
    dataset_disk_mb: int
    dataset_max_rows: int
    dataset_train_rows: int
    dataset_train_seconds: int
    job_deadline_minutes: int

    account_concurrency: int
    indexing_concurrency: int
    embedding_concurrency: int
    notify_concurrency: int
    webhooks_concurrency: int
    long_poll_reserved_concurrency: int
    search_reserved_concurrency: int
    parsing_reserved_concurrency: int

    max_open_jobs: int
    max_running_jobs: int
    max_model_calls_per_owner: int
    max_holds_per_job: int
    max_holds_per_owner: int
    max_uploads_per_day: int
    max_tickets_per_day: int

    webhook_schedule_seconds: tuple[int, ...]
    webhook_timeout_seconds: int
    webhook_circuit_failures: int
    webhook_disable_after_hours: int
    max_webhooks: int
    webhook_allow_http: bool
    allow_private_cidrs: tuple[str, ...]
    own_hosts: tuple[str, ...]

    alert_email: str
    job_retention_days: int
    delivery_retention_days: int
    file_retention_days: int

    def __post_init__(self) -> None:
        for check in _CHECKS:
            check(self)

    @property
    def queue_workers(self) -> int:
        """The most workers of all queues at a time."""
        return sum(getattr(self, f"{queue}_concurrency") for queue in QUEUES)

    @property
    def can_reserve(self) -> bool:
        """Whether the account is large enough to reserve concurrency."""
        return self.account_concurrency > MIN_UNRESERVED

    @property
    def reserved_concurrency(self) -> int:
        """What is reserved in all. Three functions parse: documents have two, and summaries one."""
        parsers = 3 * self.parsing_reserved_concurrency
        return self.long_poll_reserved_concurrency + self.search_reserved_concurrency + parsers

    @property
    def calls_openai(self) -> bool:
        """Whether a model has the provider `openai`, whose client is large and deployed only then."""
        return any(name.startswith("openai/") for name in self.models)

    def per_owner(self, limit: int) -> int:
        """The limit of executions that one owner may cause at a time, or less in a small account.

        One owner gets at most half of what the workers of the queues leave.
        """
        return min(limit, max(MIN_PER_OWNER, (self.account_concurrency - self.queue_workers) // 2))

    def calls_per_owner(self, limit: int) -> int:
        """The limit of calls of models that one owner may have at a time; of 0: all workers but one.

        Returns 0 if one owner may use all workers. Then no calls are counted.
        """
        limit = limit or self.embedding_concurrency - 1
        return limit if limit < self.embedding_concurrency else 0

    @classmethod
    def from_context(cls, get: Callable[[str], Any]) -> Config:
        """Read every knob by `get` (the CDK node's `try_get_context`). Raises ConfigError."""
        return cls(**{field.name: _read(field.name, str(field.type), get(field.name)) for field in fields(cls)})


def _read(key: str, annotation: str, value: Any) -> Any:
    if value is None:
        raise ConfigError(f"{key}: missing; cdk.json must give it a value")
    if annotation != "str" and isinstance(value, str):  # `-c key=value` is always text
        value = _from_text(key, annotation, value)
    if annotation.startswith("tuple"):
        return _read_list(key, annotation, value)
    if annotation.startswith("dict"):
        if not isinstance(value, dict):
            raise ConfigError(f"{key}: expected a JSON object, got {value!r}")
        return value
    expected: Callable[[Any], Any] = {"str": str, "int": int, "bool": bool}[annotation]
    if type(value) is not expected and not (expected is int and isinstance(value, float) and value.is_integer()):
        raise ConfigError(f"{key}: expected {annotation}, got {value!r}")
    return expected(value)


def _from_text(key: str, annotation: str, value: str) -> Any:
    try:
        return json.loads(value)
    except ValueError:
        if annotation.startswith("tuple"):
            return [part for part in value.split(",") if part]
        if annotation.startswith("dict"):
            raise ConfigError(f"{key}: expected a JSON object, got {value!r}") from None
        raise ConfigError(f"{key}: expected {annotation}, got {value!r}") from None


def _read_list(key: str, annotation: str, value: Any) -> tuple[Any, ...]:
    item = annotation.removeprefix("tuple[").split(",")[0]
    values = value if isinstance(value, list) else [value]
    return tuple(_read(f"{key}[{i}]", item, v) for i, v in enumerate(values))


def _one_of(key: str, *allowed: str) -> Callable[[Config], None]:
    def check(config: Config) -> None:
        if getattr(config, key) not in allowed:
            raise ConfigError(f"{key}: {getattr(config, key)!r} is not one of {', '.join(allowed)}")

    return check


def _between(key: str, low: int, high: int) -> Callable[[Config], None]:
    def check(config: Config) -> None:
        if not low <= getattr(config, key) <= high:
            raise ConfigError(f"{key}: {getattr(config, key)} is not between {low} and {high}")

    return check


def _name_begins_names_of_stacks(config: Config) -> None:
    """Of 128 characters; log groups, and what CloudFormation calls the functions, begin with it too."""
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9-]{0,31}", config.name):
        raise ConfigError(
            f"name: {config.name!r} begins the names of stacks; use 1 to 32 letters, digits and -, a letter first"
        )


def _models_are_models(config: Config) -> None:
    try:
        read_models(json.dumps(config.models))
    except ValueError as error:
        raise ConfigError(f"models: {error}") from None


def _fine_tune_models_are_known(config: Config) -> None:
    for model in config.fine_tune_models:
        try:
            family_of(model)
        except ValueError as error:
            raise ConfigError(f"fine_tune_models: {error}") from None


def _base_url_is_a_url(config: Config) -> None:
    if config.calls_openai and not re.fullmatch(r"https?://[^\s/?#@]+(/[^\s?#]*)?", config.openai_base_url):
        raise ConfigError(
            "openai_base_url: models of the provider openai need the URL of their server, such as "
            f"https://api.openai.com/v1, got {config.openai_base_url!r}"
        )


def _overlap_is_smaller_than_chunk(config: Config) -> None:
    if config.chunk_overlap >= config.chunk_size:
        raise ConfigError(
            f"chunk_overlap: {config.chunk_overlap} must be smaller than chunk_size ({config.chunk_size})"
        )


def _schedule_fits_the_retention(config: Config) -> None:
    """A receiver may double each wait (`Retry-After`), and a delivery must be kept until its last attempt."""
    schedule, days = config.webhook_schedule_seconds, config.delivery_retention_days
    if not schedule or any(wait < 0 for wait in schedule):
        raise ConfigError(f"webhook_schedule_seconds: expected waits of 0 s or more, got {list(schedule)}")
    if 2 * sum(schedule) >= days * DAY_SECONDS:
        raise ConfigError(
            f"webhook_schedule_seconds: {sum(schedule)} s in all is not less than half of "
            f"delivery_retention_days ({days})"
        )


def _uploads_fit_the_disk(config: Config) -> None:
    """A dataset is read into files, and converted beside them: measured, 1.0 and 0.37 times its size."""
    most = int(config.dataset_disk_mb * 1024**2 / DISK_PER_BYTE)
    if config.max_upload_bytes > most:
        raise ConfigError(
            f"max_upload_bytes: {config.max_upload_bytes} do not fit dataset_disk_mb ({config.dataset_disk_mb}), "
            f"which is enough for {most}"
        )


def _networks_are_networks(config: Config) -> None:
    for cidr in config.allow_private_cidrs:
        try:
            ipaddress.ip_network(cidr)
        except ValueError as error:
            raise ConfigError(f"allow_private_cidrs: {error}") from None


def _own_hosts_are_hosts(config: Config) -> None:
    for host in config.own_hosts:
        if not re.fullmatch(r"(?:[a-z0-9.-]+|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?", host):
            raise ConfigError(
                f"own_hosts: expected host or host:port in small letters, without a scheme or path, got {host!r}"
            )


def _origins_are_origins(config: Config) -> None:
    for origin in config.cors_origins:
        if not re.fullmatch(r"\*|https?://[A-Za-z0-9.:\[\]-]+", origin):
            raise ConfigError(f"cors_origins: expected https://host without a path, or *, got {origin!r}")


def _email_is_an_address(config: Config) -> None:
    if config.alert_email and not re.fullmatch(r"[^@\s]+@[^@\s]+", config.alert_email):
        raise ConfigError(f"alert_email: expected an address, or nothing, got {config.alert_email!r}")


def _data_outlives_the_job(config: Config) -> None:
    for key in ("job_retention_days", "file_retention_days"):
        if getattr(config, key) * 24 * 60 <= config.job_deadline_minutes:
            raise ConfigError(f"{key}: {getattr(config, key)} is not longer than job_deadline_minutes")


def _account_can_reserve(config: Config) -> None:
    most = max(0, config.account_concurrency - MIN_UNRESERVED)
    for name in RESERVABLE:
        key = f"{name}_reserved_concurrency"
        if getattr(config, key) and config.reserved_concurrency > most:
            raise ConfigError(
                f"{key}: {config.reserved_concurrency} are reserved in all (parsing counts three times), but "
                f"AWS lets an account of {config.account_concurrency} reserve {most}: {MIN_UNRESERVED} stay "
                "unreserved. Reserve less, or raise the account's quota and set account_concurrency"
            )


def _work_leaves_room_for_the_api(config: Config) -> None:
    """The publisher and one function of the API run beside the workers of all queues, without reservations."""
    needed = config.queue_workers + 2 + config.reserved_concurrency
    if needed > config.account_concurrency:
        parts = " + ".join(f"{queue}_concurrency {getattr(config, f'{queue}_concurrency')}" for queue in QUEUES)
        parts += f" + {config.reserved_concurrency} reserved" if config.reserved_concurrency else ""
        raise ConfigError(
            f"account_concurrency: the account runs {config.account_concurrency} functions at a time, and "
            f"{parts} + 2 for the publisher and the API are {needed}; lower one of them, or set "
            "account_concurrency to the account's quota of concurrent executions (Service Quotas, AWS Lambda)"
        )


_CHECKS: tuple[Callable[[Config], None], ...] = (
    _name_begins_names_of_stacks,
    _one_of("runtime", *RUNTIMES),
    _one_of("architecture", "arm64", "x86_64"),
    _one_of("removal_policy", "retain", "destroy"),
    _one_of("embedding", "bedrock", "local"),
    _one_of("log_level", "DEBUG", "INFO", "WARNING", "ERROR"),
    _between("log_retention_days", 1, 3653),
    _between("wait_seconds_max", 1, 25),  # the gateway ends a request after 29 s
    _between("link_hours", 1, 24 * 90),
    _between("max_inline_bytes", 1, 262_144),
    _between("max_upload_bytes", 1, 7_800_000_000),
    _between("max_document_bytes", 1, 524_288_000),
    _between("authorizer_cache_seconds", 0, 3600),
    _between("api_throttle_rate", 1, 10_000),
    _between("api_throttle_burst", 1, 10_000),
    _between("open_throttle_rate", 1, 10_000),
    _between("open_throttle_burst", 1, 10_000),
    _between("link_throttle_rate", 1, 10_000),
    _between("link_throttle_burst", 1, 10_000),
    _between("idempotency_hours", 1, 24 * 90),
    _between("embedding_dimensions", 1, 4096),
    _between("embedding_parallel_calls", 1, 10),  # as many connections as a client keeps
    _between("max_output_tokens", 1, 128_000),
    _models_are_models,
    _base_url_is_a_url,
    _fine_tune_models_are_known,
    _between("chunk_size", 20, 20_000),
    _between("chunk_overlap", 0, 10_000),
    _between("chunks_per_batch", 1, 500),
    _between("texts_per_batch", 1, 2000),
    _between("tokens_per_batch", 1, 2_000_000),
    _between("summary_part_tokens", 200, 100_000),
    _between("agent_context_tokens", 200, 100_000),
    _between("agent_answer_tokens", 16, 16_000),
    _between("fine_tune_min_examples", 1, 10_000),
    _between("dataset_memory_mb", 1769, 10_240),
    _between("dataset_disk_mb", 512, 10_240),
    _between("dataset_max_rows", 50, 100_000_000),
    _between("dataset_train_rows", 1000, 20_000_000),
    _between("dataset_train_seconds", 10, 600),
    _between("account_concurrency", 10, 100_000),  # a new account has 10
    *(_between(f"{queue}_concurrency", 2, 1000) for queue in QUEUES),
    _between("job_deadline_minutes", 5, SQS_RETENTION_MINUTES),
    _between("parse_timeout_seconds", 1, 600),
    _between("parse_memory_mb", 256, 8_000),
    _between("max_characters", 1, 100_000_000),
    _between("webhook_timeout_seconds", 1, 30),
    _between("webhook_circuit_failures", 2, 1000),
    _between("webhook_disable_after_hours", 1, 24 * 30),
    _between("max_webhooks", 1, 1000),
    *(_between(f"{name}_reserved_concurrency", 0, 10_000) for name in RESERVABLE),
    _between("max_open_jobs", 1, 10_000),  # each submission counts the owner's open jobs
    _between("max_running_jobs", 1, 1000),
    _between("max_model_calls_per_owner", 0, 1000),
    _between("max_holds_per_job", 1, 1000),
    _between("max_holds_per_owner", 1, 1000),
    _between("max_uploads_per_day", 1, 1_000_000),
    _between("max_tickets_per_day", 1, 1_000_000),
    _between("job_retention_days", 1, 3650),
    _between("delivery_retention_days", 1, 3650),
    _between("file_retention_days", 1, 3650),
    _overlap_is_smaller_than_chunk,
    _schedule_fits_the_retention,
    _uploads_fit_the_disk,
    _networks_are_networks,
    _own_hosts_are_hosts,
    _origins_are_origins,
    _email_is_an_address,
    _data_outlives_the_job,
    _account_can_reserve,
    _work_leaves_room_for_the_api,
)
