"""Where answers come from: llama.cpp, another server of OpenAI's protocol, or a fake.

An upstream gets the body of `POST /v1/chat/completions` and yields the chunks of its streamed answer.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import re
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from local.model.events import Caller, CallerGone, ProviderError
from local.model.tools import RESULT

SMALL_MODEL = "smollm2-135m-instruct"
SILENCE_SECONDS = 600
CONNECT_SECONDS = 2  # for `status`, which must be quick
LOAD_SECONDS = 30
LOADING = "the model is being loaded"


class Upstream(Protocol):
    """`model`: the only one that it has; None if it has others."""

    @property
    def model(self) -> str | None: ...

    def chunks(self, body: dict[str, Any], caller: Caller) -> Iterator[dict[str, Any]]:
        """Raises ProviderError, and CallerGone."""

    def status(self) -> str:
        """`ok`, or what is missing."""


class HttpUpstream:
    """A server of OpenAI's protocol at `url`, which ends with /v1 or the like."""

    def __init__(self, url: Callable[[], str], *, model: str | None = None, name: str = "", key: str = "") -> None:
        self.model, self._url, self._name, self._key = model, url, name, key

    def status(self) -> str:
        connection = _connection(self._url(), CONNECT_SECONDS)
        try:
            connection.connect()
            return "ok"
        except OSError as error:
            return f"nothing answers at {self._url()} ({error})"
        finally:
            connection.close()

    def chunks(self, body: dict[str, Any], caller: Caller) -> Iterator[dict[str, Any]]:
        if self._name:
            body = {**body, "model": self._name}
        connection = _connection(self._url())
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self._key or 'none'}"}
        try:
            connection.request("POST", _path(self._url()), json.dumps(body), headers)
            stream = connection.sock
            caller.on_leave(lambda: _shut_down(stream))
            with connection.getresponse() as response:
                if response.status != 200:
                    raise _error(response)
                yield from _chunks(response)
        except (OSError, http.client.HTTPException) as error:
            if caller.is_gone:
                raise CallerGone from None
            raise unavailable(f"the model's server failed: {error or type(error).__name__}") from None
        finally:
            connection.close()


class Llama(HttpUpstream):
    """llama.cpp in a child process. Requests wait until the model is loaded."""

    def __init__(self, python: Path, model_file: Path) -> None:
        super().__init__(self._wait, model=SMALL_MODEL)
        self._loaded, self._address = threading.Event(), ""
        threading.Thread(target=self._run, args=(python, model_file), daemon=True).start()

    def status(self) -> str:
        if not self._loaded.is_set():
            return LOADING
        return "ok" if self._address else "the model has ended, or `make setup` could not install it"

    def chunks(self, body: dict[str, Any], caller: Caller) -> Iterator[dict[str, Any]]:
        return super().chunks({**body, "verbose": True}, caller)  # says which kind of stop it was

    def _run(self, python: Path, model_file: Path) -> None:
        command = [str(python), "-P", str(Path(__file__).with_name("llama.py")), str(model_file)]
        # The open standard input is what keeps it alive: it ends with this process, however this one ends.
        try:
            with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
                assert process.stdout is not None
                self._address = process.stdout.readline().strip()
                self._loaded.set()
                process.stdout.read()
        except OSError as error:
            print(f"The model does not start: {error}", flush=True)
        self._address = ""
        self._loaded.set()

    def _wait(self) -> str:
        self._loaded.wait(LOAD_SECONDS)
        if not self._address:
            raise unavailable(self.status())
        return f"{self._address}/v1"


class Fake:
    """Answers with the words of the prompt, over and over, or with JSON of the form that is asked for.

    The same request has the same answer. A word is a token.
    """

    model = None

    def __init__(self, *, words: int = 20, seconds_per_word: float = 0) -> None:
        self.words, self.seconds_per_word = words, seconds_per_word

    def status(self) -> str:
        return "ok"

    def set(self, options: Any) -> None:
        """Change `words` and `seconds_per_word`. Raises ValueError."""
        if not isinstance(options, dict) or set(options) - {"words", "seconds_per_word"}:
            raise ValueError("expected an object with words, seconds_per_word or both")
        self.words = options.get("words", self.words)
        self.seconds_per_word = options.get("seconds_per_word", self.seconds_per_word)

    def chunks(self, body: dict[str, Any], caller: Caller) -> Iterator[dict[str, Any]]:
        tokens, reason = self._answer(body)
        if self.seconds_per_word:
            caller.wait(self.seconds_per_word)
        for token in tokens:
            yield {"choices": [{"index": 0, "delta": {"content": token}, "finish_reason": None}]}
            if self.seconds_per_word:
                caller.wait(self.seconds_per_word)
        yield {
            "choices": [{"index": 0, "delta": {}, "finish_reason": reason[0]}],
            "__verbose": {"stop_type": reason[1]},
        }
        prompt = sum(len(message["content"].split()) for message in body["messages"])
        yield {"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": len(tokens)}}

    def _answer(self, body: dict[str, Any]) -> tuple[list[str], tuple[str, str]]:
        """The tokens, and OpenAI's and llama.cpp's name of the reason why there are no more."""
        prompt = body["messages"][-1]["content"]
        schema = body.get("response_format", {}).get("json_schema", {}).get("schema")
        if schema:
            if prompt.startswith(RESULT) and "oneOf" in schema:
                schema = schema["oneOf"][-1]  # an answer, where one is possible
            text = json.dumps(sample(schema, prompt))
        else:
            text = " ".join(itertools.islice(itertools.cycle(re.findall(r"\w+", prompt) or ["word"]), self.words))
        stops = [place for stop in _stops(body) if (place := text.find(stop)) >= 0]
        tokens = re.findall(r"\s*(?:\w+|[^\w\s])", text[: min(stops)] if stops else text)
        limit = body.get("max_tokens") or len(tokens)
        if limit < len(tokens):
            return tokens[:limit], ("length", "limit")
        return tokens, ("stop", "word" if stops else "eos")


def sample(schema: dict[str, Any], prompt: str) -> Any:
    """A value of a JSON schema. Of several forms it is the first: with tools, a call of the first tool."""
    if "const" in schema:
        return schema["const"]
    for forms in ("enum", "oneOf", "anyOf"):
        if forms in schema:
            chosen = schema[forms][0]
            return chosen if forms == "enum" else sample(chosen, prompt)
    match schema.get("type"):
        case "object":
            return {name: sample(member, prompt) for name, member in schema.get("properties", {}).items()}
        case "array":
            return [sample(schema.get("items", {}), prompt)]
        case "integer" | "number":
            return schema.get("minimum", 1)
        case "boolean":
            return True
    return " ".join(prompt.split()[:5])


def unavailable(message: str) -> ProviderError:
    return ProviderError(503, {"message": message, "type": "unavailable_error", "param": None, "code": None})


def _stops(body: dict[str, Any]) -> list[str]:
    stop = body.get("stop") or []
    return [stop] if isinstance(stop, str) else list(stop)


def _connection(url: str, timeout: float = SILENCE_SECONDS) -> http.client.HTTPConnection:
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    return kind(parts.hostname or "", parts.port, timeout=timeout)


def _path(url: str) -> str:
    return f"{urlsplit(url).path.rstrip('/')}/chat/completions"


def _shut_down(stream: socket.socket | None) -> None:
    """Wakes the thread that reads from it."""
    if stream is not None:
        with contextlib.suppress(OSError):
            stream.shutdown(socket.SHUT_RDWR)


def _chunks(response: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    for line in response:
        data = line.removeprefix(b"data:").strip() if line.startswith(b"data:") else b""
        if data == b"[DONE]":
            return
        if data:
            chunk = _object(data)
            if "error" in chunk:
                code = chunk["error"].get("code")
                raise ProviderError(code if isinstance(code, int) else 500, chunk["error"])
            yield chunk


def _error(response: http.client.HTTPResponse) -> ProviderError:
    error = _object(response.read()).get("error")
    if not isinstance(error, dict) or "message" not in error:
        error = {"message": f"the model's server answered {response.status}", "type": "server_error"}
    return ProviderError(response.status, error, retry_after=response.headers.get("Retry-After"))


def _object(data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
