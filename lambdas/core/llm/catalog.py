"""The models that a deployment may call, with their rate limits. The knob `models` in cdk.json lists them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

PROVIDERS = ("bedrock", "openai")
PERIODS = {"s": 1, "m": 60, "h": 3600}
_RATE = re.compile(r"([1-9][0-9]{0,11})/([smh])")


@dataclass(frozen=True, slots=True)
class Rate:
    """At most `limit` in any half-open window of `seconds`."""

    limit: int
    seconds: int

    @classmethod
    def parse(cls, text: str) -> Rate:
        """Read `100/m`. Raises ValueError."""
        match = _RATE.fullmatch(text)
        if match is None:
            raise ValueError(f"expected a rate such as 100/m, 10/s or 5000/h, got {text!r}")
        return cls(int(match[1]), PERIODS[match[2]])


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A model. `name` is `<provider>/<id>`. `requests`, `tokens`: rate limits, None for no limit."""

    name: str
    requests: Rate | None = None
    tokens: Rate | None = None

    @property
    def provider(self) -> str:
        return self.name.partition("/")[0]

    @property
    def id(self) -> str:
        """The provider's id."""
        return self.name.partition("/")[2]

    @property
    def is_limited(self) -> bool:
        return self.requests is not None or self.tokens is not None

    def fits(self, tokens: int) -> bool:
        """Whether a request of so many tokens can ever run. They are those of the input, and `max_tokens`."""
        return self.tokens is None or tokens <= self.tokens.limit


def read_models(text: str) -> Mapping[str, Model]:
    """Models by name, from the JSON `{"<provider>/<id>": {"requests"?: "100/m", "tokens"?: "200000/m"}}`.

    The first is the default. Raises ValueError, which names what is wrong.
    """
    listed = json.loads(text)
    if not isinstance(listed, dict) or not listed:
        raise ValueError(
            'expected an object with at least one model, such as {"bedrock/amazon.nova-lite-v1:0": {}}'
        )
    return {name: _model(name, limits) for name, limits in listed.items()}


def _model(name: str, limits: object) -> Model:
    provider, slash, model = name.partition("/")
    if provider not in PROVIDERS or not slash or not model:
        raise ValueError(f"{name!r}: expected <provider>/<id> with the provider {' or '.join(PROVIDERS)}")
    if not isinstance(limits, dict) or set(limits) - {"requests", "tokens"}:
        raise ValueError(
            f'{name!r}: expected {{"requests": "100/m", "tokens": "200000/m"}} or less, got {limits!r}'
        )
    try:
        return Model(name=name, **{key: Rate.parse(rate) for key, rate in limits.items()})
    except (ValueError, TypeError) as error:
        raise ValueError(f"{name!r}: {error}") from None
