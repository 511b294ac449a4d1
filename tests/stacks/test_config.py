"""The typed configuration: every knob is a field, and an error names the knob with the wrong value."""

from __future__ import annotations

import ast
import json
import re
from dataclasses import FrozenInstanceError, fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stacks.config import Config, ConfigError
from tests.stacks.rules import LEFT_FOR_THE_API, SMALLEST_ACCOUNT

ROOT = Path(__file__).parents[2]
CONTEXT = json.loads((ROOT / "cdk.json").read_text())["context"]
KNOBS = {key: value for key, value in CONTEXT.items() if ":" not in key}
INTEGERS = sorted(field.name for field in fields(Config) if field.type == "int")
BOOLEANS = sorted(field.name for field in fields(Config) if field.type == "bool")
LISTS = sorted(field.name for field in fields(Config) if str(field.type).startswith("tuple"))
TEXTS = sorted(field.name for field in fields(Config) if field.type == "str")
MAPPINGS = sorted(field.name for field in fields(Config) if str(field.type).startswith("dict"))
QUEUES = ("indexing", "embedding", "notify", "webhooks")
RESERVED = [f"{name}_reserved_concurrency" for name in ("long_poll", "search", "parsing")]


def config(**changes: Any) -> Config:
    return Config.from_context((KNOBS | changes).get)


def refused(**changes: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        config(**changes)
    return str(caught.value)


def test_every_knob_is_a_field_and_every_field_a_knob() -> None:
    """cdk.json and `Config` have the same names."""
    assert sorted(KNOBS) == sorted(field.name for field in fields(Config))
    assert sorted([*INTEGERS, *BOOLEANS, *LISTS, *TEXTS, *MAPPINGS]) == sorted(KNOBS)


def test_defaults_are_those_of_cdk_json() -> None:
    """Without overrides, every field has its value from cdk.json."""
    read = {field.name: getattr(config(), field.name) for field in fields(Config)}
    assert {key: list(v) if isinstance(v, tuple) else v for key, v in read.items()} == KNOBS


def test_every_knob_is_documented_with_its_default() -> None:
    """The first table of docs/configuration.md has every knob with its default and an explanation."""
    table = (ROOT / "docs/configuration.md").read_text().partition("\n## ")[0]
    documented: dict[str, Any] = {}
    for row in re.findall(r"^\| `.*$", table, re.MULTILINE):
        keys, values, words = (cell.strip() for cell in row.strip("|").split("|"))
        names, defaults = re.findall(r"`(.+?)`", keys), re.findall(r"`(.+?)`", values)
        assert words, names
        documented |= dict(zip(names, defaults if len(defaults) > 1 else defaults * len(names), strict=True))
    texts = {key: value if isinstance(value, str) and value else json.dumps(value) for key, value in KNOBS.items()}
    assert documented == texts


def test_every_limit_of_an_owner_is_in_one_table() -> None:
    """docs/operations.md lists what is limited in number, with its default."""
    sizes = {"max_inline_bytes", "max_upload_bytes", "max_document_bytes", "max_characters", "max_output_tokens"}
    section = (ROOT / "docs/operations.md").read_text().partition("## Limits of an owner")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(max_\w+)` \| .+? \| `(\d+)` \| .+ \|$", section, re.MULTILINE)
    limits = {key for key in KNOBS if key.startswith("max_")} - sizes
    assert dict(rows) == {key: str(KNOBS[key]) for key in limits}


@pytest.mark.parametrize("name", ["", "1st", "a_b", "a b", "-a", "a" * 33, "naïve"])
def test_name_begins_names_of_stacks(name: str) -> None:
    """CloudFormation takes letters, digits and hyphens, and a letter first."""
    assert refused(name=name).startswith(f"name: {name!r} ")
    assert config(name="Recado-2").name == "Recado-2"


def test_every_knob_is_used() -> None:
    """The stacks read each field."""
    read = {
        node.attr
        for path in (ROOT / "stacks").rglob("*.py")
        if path.name != "config.py"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and "config" in ast.unparse(node.value)
    }
    assert set(KNOBS) <= read


def test_configuration_is_immutable() -> None:
    """A field cannot be set."""
    with pytest.raises(FrozenInstanceError):
        config().chunk_size = 5  # type: ignore[misc]


@pytest.mark.parametrize("key", sorted(KNOBS))
def test_missing_value_is_refused(key: str) -> None:
    """There is no default in the code, and the error names the knob."""
    assert refused(**{key: None}) == f"{key}: missing; cdk.json must give it a value"


@pytest.mark.parametrize("key", INTEGERS)
@pytest.mark.parametrize("value", ["many", "1.5", 1.5, True, [1], {}, "", "null"])
def test_numbers_must_be_whole(key: str, value: Any) -> None:
    """Texts, fractions, booleans and lists are refused, from the file and from `-c`."""
    assert refused(**{key: value}).startswith(f"{key}: expected int, got ")


@pytest.mark.parametrize("key", BOOLEANS)
@pytest.mark.parametrize("value", ["yes", "1", 1, 0, [True], "True", ""])
def test_booleans_must_be_true_or_false(key: str, value: Any) -> None:
    """Only JSON's `true` and `false` are booleans."""
    assert refused(**{key: value}).startswith(f"{key}: expected bool, got ")


@pytest.mark.parametrize("key", TEXTS)
@pytest.mark.parametrize("value", [1, False, ["x"], {}])
def test_texts_must_be_texts(key: str, value: Any) -> None:
    """Other JSON types are refused for a text."""
    assert refused(**{key: value}).startswith(f"{key}: expected str, got ")


@pytest.mark.parametrize("key", LISTS)
def test_wrong_item_is_named_by_its_index(key: str) -> None:
    """The error has the index of the item with the wrong type."""
    assert refused(**{key: [*KNOBS[key], {}]}).startswith(f"{key}[{len(KNOBS[key])}]: expected ")


BOUNDS = {
    "log_retention_days": (1, 3653),
    "wait_seconds_max": (1, 25),
    "link_hours": (1, 2160),
    "max_inline_bytes": (1, 262_144),
    "max_upload_bytes": (1, 7_800_000_000),
    "max_document_bytes": (1, 524_288_000),
    "authorizer_cache_seconds": (0, 3600),
    "api_throttle_rate": (1, 10_000),
    "api_throttle_burst": (1, 10_000),
    "open_throttle_rate": (1, 10_000),
    "open_throttle_burst": (1, 10_000),
    "link_throttle_rate": (1, 10_000),
    "link_throttle_burst": (1, 10_000),
    "idempotency_hours": (1, 2160),
    "embedding_dimensions": (1, 4096),
    "embedding_parallel_calls": (1, 10),
    "max_output_tokens": (1, 128_000),
    "chunk_size": (20, 20_000),
    "chunk_overlap": (0, 10_000),
    "chunks_per_batch": (1, 500),
    "texts_per_batch": (1, 2000),
    "tokens_per_batch": (1, 2_000_000),
    "summary_part_tokens": (200, 100_000),
    "agent_context_tokens": (200, 100_000),
    "agent_answer_tokens": (16, 16_000),
    "fine_tune_min_examples": (1, 10_000),
    "dataset_memory_mb": (1769, 10_240),
    "dataset_disk_mb": (512, 10_240),
    "dataset_max_rows": (50, 100_000_000),
    "dataset_train_rows": (1000, 20_000_000),
    "dataset_train_seconds": (10, 600),
    "account_concurrency": (10, 100_000),
    "indexing_concurrency": (2, 1000),
    "embedding_concurrency": (2, 1000),
    "notify_concurrency": (2, 1000),
    "webhooks_concurrency": (2, 1000),
    "job_deadline_minutes": (5, 5760),
    "parse_timeout_seconds": (1, 600),
    "parse_memory_mb": (256, 8_000),
    "max_characters": (1, 100_000_000),
    "webhook_timeout_seconds": (1, 30),
    "webhook_circuit_failures": (2, 1000),
    "webhook_disable_after_hours": (1, 720),
    "max_webhooks": (1, 1000),
    "long_poll_reserved_concurrency": (0, 10_000),
    "search_reserved_concurrency": (0, 10_000),
    "parsing_reserved_concurrency": (0, 10_000),
    "max_open_jobs": (1, 10_000),
    "max_running_jobs": (1, 1000),
    "max_model_calls_per_owner": (0, 1000),
    "max_holds_per_job": (1, 1000),
    "max_holds_per_owner": (1, 1000),
    "max_uploads_per_day": (1, 1_000_000),
    "max_tickets_per_day": (1, 1_000_000),
    "job_retention_days": (1, 3650),
    "delivery_retention_days": (1, 3650),
    "file_retention_days": (1, 3650),
}
# Other knobs that a bound needs.
WITH: dict[tuple[str, int], dict[str, Any]] = {
    ("chunk_size", 20): {"chunk_overlap": 0},
    ("chunk_overlap", 10_000): {"chunk_size": 20_000},
    ("delivery_retention_days", 1): {"webhook_schedule_seconds": [0, 60]},
    **{(key, 10_000): {"account_concurrency": 100_000} for key in RESERVED},
    **{(f"{queue}_concurrency", 1000): {"account_concurrency": 1008} for queue in QUEUES},
    ("dataset_disk_mb", 512): {"max_upload_bytes": 390_000_000},
}


def test_every_number_has_bounds() -> None:
    """Every number has a lower and an upper bound."""
    assert sorted(BOUNDS) == INTEGERS


@pytest.mark.parametrize("key", BOUNDS)
def test_bounds_of_numbers(key: str) -> None:
    """The bounds are accepted, one beyond is refused, and the error gives both bounds."""
    low, high = BOUNDS[key]
    for value in (low, high):
        assert getattr(config(**{key: value}, **WITH.get((key, value), {})), key) == value
    for value in (low - 1, high + 1):
        assert refused(**{key: value}) == f"{key}: {value} is not between {low} and {high}"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("runtime", "nodejs22.x"),
        ("runtime", "python3.10"),
        ("architecture", "arm"),
        ("removal_policy", "snapshot"),
        ("embedding", "openai"),
        ("log_level", "info"),
        ("log_level", "TRACE"),
    ],
)
def test_choices(key: str, value: str) -> None:
    """An unknown value is refused, and the error lists the known values."""
    message = refused(**{key: value})
    assert message.startswith(f"{key}: {value!r} is not one of ")
    assert str(KNOBS[key]) in message


@pytest.mark.parametrize(
    ("key", "changes"),
    [
        ("chunk_overlap", {"chunk_overlap": 1000}),
        ("chunk_overlap", {"chunk_size": 100}),
        ("chunk_overlap", {"chunk_overlap": 1001}),
        ("webhook_schedule_seconds", {"webhook_schedule_seconds": []}),
        ("webhook_schedule_seconds", {"webhook_schedule_seconds": [5, -1]}),
        ("webhook_schedule_seconds", {"webhook_schedule_seconds": [0, 15 * 86_400]}),
        ("webhook_schedule_seconds", {"delivery_retention_days": 6}),
        ("allow_private_cidrs", {"allow_private_cidrs": ["10.0.0.0/33"]}),
        ("allow_private_cidrs", {"allow_private_cidrs": ["10.0.0.1/8"]}),
        ("allow_private_cidrs", {"allow_private_cidrs": ["localhost"]}),
        ("models", {"models": {}}),
        ("models", {"models": ["bedrock/amazon.nova-lite-v1:0"]}),
        ("models", {"models": {"amazon.nova-lite-v1:0": {}}}),
        ("models", {"models": {"bedrock/": {}}}),
        ("models", {"models": {"bedrock/a": {"requests": 100}}}),
        ("models", {"models": {"bedrock/a": {"requests": "100/day"}}}),
        ("models", {"models": {"bedrock/a": {"tokens": "0/m"}}}),
        ("models", {"models": {"bedrock/a": {"request": "1/m"}}}),
        ("models", {"models": "none"}),
        ("openai_base_url", {"models": {"openai/gpt-4o-mini": {}}}),
        ("openai_base_url", {"models": {"openai/a": {}}, "openai_base_url": "api.openai.com"}),
        ("openai_base_url", {"models": {"openai/a": {}}, "openai_base_url": "https://user@host/v1"}),
        ("cors_origins", {"cors_origins": ["app.example.com"]}),
        ("cors_origins", {"cors_origins": ["https://app.example.com/"]}),
        ("cors_origins", {"cors_origins": ["https://a.example' + 'x"]}),
        ("cors_origins", {"cors_origins": [""]}),
        ("alert_email", {"alert_email": "nobody"}),
        ("alert_email", {"alert_email": "a@b c@d"}),
        ("job_retention_days", {"job_retention_days": 1, "job_deadline_minutes": 1440}),
        ("file_retention_days", {"file_retention_days": 2, "job_deadline_minutes": 2880}),
        *(("account_concurrency", {f"{queue}_concurrency": 3}) for queue in QUEUES),
        ("account_concurrency", {"account_concurrency": 1007, "embedding_concurrency": 1000}),
    ],
)
def test_values_that_cannot_work_are_refused(key: str, changes: dict[str, Any]) -> None:
    """A value of the right type that cannot work is refused, and the error names the knob to change."""
    assert refused(**changes).startswith(f"{key}: ")


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("chunk_size", "500", 500),
        ("chunk_size", " 500 ", 500),
        ("chunk_size", "500.0", 500),
        ("layers", "false", False),
        ("webhook_allow_http", "true", True),
        ("cors_origins", "https://a.example,https://b.example", ("https://a.example", "https://b.example")),
        ("cors_origins", '["https://a.example"]', ("https://a.example",)),
        ("cors_origins", "*", ("*",)),
        ("cors_origins", "", ()),
        ("cors_origins", "[]", ()),
        ("allow_private_cidrs", "127.0.0.0/8", ("127.0.0.0/8",)),
        ("allow_private_cidrs", "127.0.0.0/8,::1/128", ("127.0.0.0/8", "::1/128")),
        ("webhook_schedule_seconds", "0,5,30", (0, 5, 30)),
        ("webhook_schedule_seconds", "[0, 5]", (0, 5)),
        ("webhook_schedule_seconds", "7", (7,)),
        ("alert_email", "ops@example.com", "ops@example.com"),
        ("models", '{"bedrock/a": {"requests": "5/s"}}', {"bedrock/a": {"requests": "5/s"}}),
        ("alert_email", "", ""),
        ("embedding_model", "123", "123"),
        ("runtime", "provided.al2023", "provided.al2023"),
    ],
)
def test_overrides_are_parsed_from_text(key: str, text: str, value: Any) -> None:
    """`-c key=value` is always text, from which numbers, booleans and lists are parsed."""
    assert getattr(config(**{key: text}), key) == value


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("webhook_schedule_seconds", "0,soon"),
        ("webhook_schedule_seconds", "1.5"),
        ("allow_private_cidrs", '{"a": 1}'),
        ("cors_origins", "[1]"),
    ],
)
def test_wrong_list_as_override_is_refused(key: str, text: str) -> None:
    """A list from `-c` is checked item by item, as a list from the file is."""
    assert refused(**{key: text}).startswith(key)


def test_client_of_openai() -> None:
    """The client of OpenAI-compatible servers is deployed if a model needs it."""
    assert not config().calls_openai
    models = {"bedrock/a": {}, "openai/b": {}}
    assert config(models=models, openai_base_url="https://api.openai.com/v1").calls_openai


@given(size=st.integers(20, 20_000), overlap=st.integers(0, 10_000))
def test_the_overlap_is_always_smaller_than_the_chunk(size: int, overlap: int) -> None:
    """An overlap is accepted exactly if it is smaller than the chunk size."""
    changes = {"chunk_size": size, "chunk_overlap": overlap}
    if overlap < size:
        assert config(**changes).chunk_overlap == overlap
    else:
        assert refused(**changes).startswith("chunk_overlap: ")


@given(schedule=st.lists(st.integers(0, 400_000), min_size=1), days=st.integers(1, 3650))
def test_deliveries_are_kept_until_their_last_attempt(schedule: list[int], days: int) -> None:
    """A schedule is accepted exactly if twice its length is shorter than the retention."""
    changes: dict[str, Any] = {"webhook_schedule_seconds": schedule, "delivery_retention_days": days}
    if 2 * sum(schedule) < days * 86_400:
        assert config(**changes).webhook_schedule_seconds == tuple(schedule)
    else:
        assert refused(**changes).startswith(f"webhook_schedule_seconds: {sum(schedule)} s in all ")


@given(workers=st.lists(st.integers(2, 20), min_size=4, max_size=4), account=st.integers(10, 90))
def test_workers_leave_room_for_the_api(workers: list[int], account: int) -> None:
    """The limit is accepted exactly if all workers, the publisher and one function of the API fit in it."""
    changes = {f"{queue}_concurrency": number for queue, number in zip(QUEUES, workers, strict=True)}
    needed = sum(workers) + 1 + LEFT_FOR_THE_API
    if needed <= account:
        assert config(**changes, account_concurrency=account).account_concurrency == account
    else:
        message = refused(**changes, account_concurrency=account)
        assert message.startswith(f"account_concurrency: the account runs {account} functions at a time")
        assert f"+ 2 for the publisher and the API are {needed}; " in message
        assert all(f"{key} {number}" in message for key, number in changes.items())


@given(st.integers(10, 2000), st.integers(0, 500), st.integers(0, 500), st.integers(0, 500))
def test_reservations_leave_what_aws_keeps(account: int, long_poll: int, search: int, parsing: int) -> None:
    """They are accepted exactly if 100 of the account's executions stay unreserved; parsing counts three times."""
    changes = dict(zip(RESERVED, (long_poll, search, parsing), strict=True)) | {"account_concurrency": account}
    reserved = long_poll + search + 3 * parsing
    if not reserved or account - reserved >= 100:
        assert config(**changes).reserved_concurrency == reserved
    else:
        message = refused(**changes)
        assert message.startswith(next(f"{key}: {reserved} are reserved" for key in RESERVED if changes[key]))
        assert f"an account of {account} " in message


@given(st.integers(10, 5000), st.integers(1, 1000), st.integers(1, 1000))
def test_share_of_one_owner(account: int, held: int, running: int) -> None:
    """An owner gets at most half of what the queues leave of a small account, but four, and never more than its
    limit.
    """
    made = config(account_concurrency=account, max_holds_per_owner=held, max_running_jobs=running)
    for limit in (held, running):
        share = made.per_owner(limit)
        assert share == limit or (share < limit and share == max(4, (account - 8) // 2))


@given(st.integers(2, 1000), st.integers(0, 1000))
def test_model_calls_of_one_owner(workers: int, limit: int) -> None:
    """By default one owner's calls of models leave one worker free. A limit that leaves none is none."""
    found = config(account_concurrency=workers + 8, embedding_concurrency=workers).calls_per_owner(limit)
    assert found == (workers - 1 if limit == 0 else limit if limit < workers else 0)


def test_default_account_concurrency_is_the_smallest() -> None:
    """The default is the limit of a new account, which test_messaging.py uses too."""
    assert config().account_concurrency == SMALLEST_ACCOUNT


def test_default_webhook_schedule() -> None:
    """It has ten attempts within 75 h 35 min 5 s, before an endpoint may be disabled."""
    schedule = config().webhook_schedule_seconds
    assert (len(schedule), sum(schedule)) == (10, 75 * 3600 + 35 * 60 + 5)
    assert sum(schedule) < config().webhook_disable_after_hours * 3600


def test_whole_floats_are_integers() -> None:
    """The CDK passes numbers as floats, so 500.0 is read as 500."""
    value = config(chunk_size=500.0).chunk_size
    assert (value, type(value)) == (500, int)


def test_uploads_fit_the_disk() -> None:
    """An upload that the functions of a dataset cannot hold beside its table is refused at synthesis."""
    assert config(dataset_disk_mb=512, max_upload_bytes=391_876_578).max_upload_bytes == 391_876_578
    assert refused(dataset_disk_mb=512, max_upload_bytes=391_876_579).startswith(
        "max_upload_bytes: 391876579 do not"
    )
