"""What a sender talks to while it is measured: a receiver and a stand-in for AWS, each in a process of its own.

Both are plain asyncio protocols that parse no more of a request than they need, so that their share of the machine
is small and the same for everything that is measured beside each other.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import re
import sys
import time
import uuid
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from functools import cache, partial
from multiprocessing.connection import Connection
from typing import Any

Item = dict[str, Any]
Respond = Callable[["Exchange", bytes, bytes], None]

_LENGTH = re.compile(rb"\r\ncontent-length: *([0-9]+)", re.IGNORECASE)
_WEBHOOK_ID = re.compile(rb"\r\nwebhook-id: *([^\r]*)", re.IGNORECASE)
_TARGET = re.compile(rb"\r\nx-amz-target: *[^.\r]*\.([A-Za-z]+)", re.IGNORECASE)


@dataclass(frozen=True)
class Running:
    """A server on 127.0.0.1. `ask` sends a command to its process and returns the answer."""

    port: int
    pipe: Connection

    def ask(self, *command: Any) -> Any:
        self.pipe.send(command)
        return self.pipe.recv()


@contextmanager
def running(server: Callable[[], tuple[Respond, Callable[..., Any]]]) -> Iterator[Running]:
    """`server` is called in the new process and gives what answers requests and what answers commands."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_run, args=(server, theirs), daemon=True)
    process.start()
    try:
        yield Running(ours.recv(), ours)
    finally:
        process.terminate()
        process.join()


class Exchange(asyncio.Protocol):
    """HTTP/1.1 with kept connections: head and body of each request go to `respond`, which writes the answer."""

    def __init__(self, respond: Respond) -> None:
        self._respond, self._received = respond, b""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        while (end := self._received.find(b"\r\n\r\n")) >= 0:
            head = self._received[: end + 2]
            length = _LENGTH.search(head)
            whole = end + 4 + (int(length[1]) if length else 0)
            if len(self._received) < whole:
                return
            body, self._received = self._received[end + 4 : whole], self._received[whole:]
            self._respond(self, head, body)

    def answer(self, body: bytes, status: bytes = b"200 OK", type_: bytes = b"application/json") -> None:
        head = b"HTTP/1.1 %b\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n" % (status, type_, len(body))
        if not self.transport.is_closing():
            self.transport.write(head + body)


def _run(server: Callable[[], tuple[Respond, Callable[..., Any]]], pipe: Connection) -> None:
    asyncio.run(_serve(server, pipe))


async def _serve(server: Callable[[], tuple[Respond, Callable[..., Any]]], pipe: Connection) -> None:
    loop = asyncio.get_running_loop()
    respond, command = server()
    listening = await loop.create_server(lambda: Exchange(respond), "127.0.0.1", 0, backlog=1024)
    loop.add_reader(pipe.fileno(), _obey, pipe, command)
    pipe.send(listening.sockets[0].getsockname()[1])
    await listening.serve_forever()


def _obey(pipe: Connection, command: Callable[..., Any]) -> None:
    """Whoever gives the commands may be gone: then this process has no one to work for."""
    try:
        pipe.send(command(*pipe.recv()))
    except (EOFError, ConnectionError):
        sys.exit()


def receiver() -> tuple[Respond, Callable[..., Any]]:
    """Answers 200 after the latency that the last `reset` set. `taken` gives [(webhook-id, monotonic time)]."""
    arrivals: list[tuple[str, float]] = []
    latency = 0.0

    def respond(exchange: Exchange, head: bytes, _: bytes) -> None:
        found = _WEBHOOK_ID.search(head)
        arrivals.append((found[1].decode() if found else "", time.monotonic()))
        if latency:
            asyncio.get_running_loop().call_later(latency, exchange.answer, b"{}")
        else:
            exchange.answer(b"{}")

    def command(name: str, *arguments: float) -> Any:
        nonlocal latency
        if name == "taken":
            return list(arrivals)
        (latency,) = arguments
        return arrivals.clear()

    return respond, command


def aws() -> tuple[Respond, Callable[..., Any]]:
    """DynamoDB and SQS as far as a sender uses them, and KMS that encrypts nothing. Conditions are taken to hold.

    `load` puts items in, `calls` counts the calls by name since the last time it was asked. What a queue has
    handed out is gone: nothing here takes so long that it would come again.
    """
    tables: Tables = {}
    queues: Queues = defaultdict(deque)
    calls: dict[str, int] = {}

    def respond(exchange: Exchange, head: bytes, body: bytes) -> None:
        found = _TARGET.search(head)
        name = found[1].decode() if found else "?"
        calls[name] = calls.get(name, 0) + 1
        request = json.loads(body or b"{}")
        if name == "ReceiveMessage":
            _receive_or_wait(exchange, queues, request, until=time.monotonic() + request["WaitTimeSeconds"])
        elif name in _QUEUE_OPERATIONS:
            _give(exchange, _QUEUE_OPERATIONS[name](queues, request))
        else:
            _give(exchange, _OPERATIONS.get(name, _nothing)(tables, request))

    def command(name: str, *arguments: Any) -> Any:
        if name == "load":
            table, items = arguments
            tables.setdefault(table, {}).update({_key(item): item for item in items})
            return len(tables[table])
        counted = dict(calls)
        calls.clear()
        return counted

    return respond, command


Tables = dict[str, dict[tuple[str, str], Item]]
Queues = defaultdict[str, "deque[str]"]


def _key(item: Item) -> tuple[str, str]:
    return item["pk"]["S"], item["sk"]["S"]


def _get(tables: Tables, request: Item) -> Item:
    item = tables.get(request["TableName"], {}).get(_key(request["Key"]))
    return {"Item": item} if item else {}


def _batch_get(tables: Tables, request: Item) -> Item:
    found = {
        table: [item for key in wanted["Keys"] if (item := tables.get(table, {}).get(_key(key)))]
        for table, wanted in request["RequestItems"].items()
    }
    return {"Responses": found, "UnprocessedKeys": {}}


def _put(tables: Tables, request: Item) -> Item:
    tables.setdefault(request["TableName"], {})[_key(request["Item"])] = request["Item"]
    return {}


def _update(tables: Tables, request: Item) -> Item:
    table = tables.setdefault(request["TableName"], {})
    item = table.setdefault(_key(request["Key"]), dict(request["Key"]))
    names = tuple(sorted(request.get("ExpressionAttributeNames", {}).items()))
    for apply in _compiled(request.get("UpdateExpression", ""), names):
        apply(item, request.get("ExpressionAttributeValues", {}))
    return {"Attributes": item} if request.get("ReturnValues") == "ALL_NEW" else {}


def _transact(tables: Tables, request: Item) -> Item:
    writes = {"Put": _put, "Update": _update, "Delete": _delete, "ConditionCheck": _nothing}
    for action in request["TransactItems"]:
        for kind, details in action.items():
            writes[kind](tables, details)
    return {}


def _delete(tables: Tables, request: Item) -> Item:
    tables.setdefault(request["TableName"], {}).pop(_key(request["Key"]), None)
    return {}


def _query(tables: Tables, request: Item) -> Item:
    """One page of what stands between two places of an index."""
    index, values, limit = request["IndexName"], request["ExpressionAttributeValues"], request.get("Limit", 1000)
    names = ("pk", "sk", f"{index}pk", f"{index}sk")
    after = request.get("ExclusiveStartKey")

    def place(item: Item) -> tuple[str, str]:
        return item[f"{index}sk"]["S"], item["pk"]["S"]

    found = [
        {name: item[name] for name in names}
        for item in tables.get(request["TableName"], {}).values()
        if item.get(f"{index}pk") == values[":pk"]
        and values[":low"]["S"] <= item[f"{index}sk"]["S"] <= values[":high"]["S"]
        and (after is None or place(item) > place(after))
    ]
    found.sort(key=place)
    more = {"LastEvaluatedKey": found[limit - 1]} if len(found) > limit else {}
    return {"Items": found[:limit], "Count": len(found[:limit]), "ScannedCount": len(found[:limit])} | more


def _batch_write(tables: Tables, request: Item) -> Item:
    for table, writes in request["RequestItems"].items():
        for write in writes:
            _put(tables, {"TableName": table, "Item": write["PutRequest"]["Item"]})
    return {"UnprocessedItems": {}}


def _send(queues: Queues, request: Item) -> Item:
    add = queues[request["QueueUrl"]].append
    if delay := request.get("DelaySeconds"):
        asyncio.get_running_loop().call_later(delay, add, request["MessageBody"])
    else:
        add(request["MessageBody"])
    return {"MessageId": "1"}


def _send_batch(queues: Queues, request: Item) -> Item:
    for entry in request["Entries"]:
        _send(queues, entry | {"QueueUrl": request["QueueUrl"]})
    return {"Successful": [{"Id": entry["Id"], "MessageId": "1"} for entry in request["Entries"]], "Failed": []}


def _give(exchange: Exchange, answer: Item) -> None:
    exchange.answer(json.dumps(answer).encode(), type_=b"application/x-amz-json-1.0")


def _receive_or_wait(exchange: Exchange, queues: Queues, request: Item, *, until: float) -> None:
    """Long polling: the answer waits for a message, until a time of `time.monotonic`."""
    answer = _receive(queues, request)
    if answer["Messages"] or time.monotonic() >= until:
        _give(exchange, answer)
    else:
        again = partial(_receive_or_wait, exchange, queues, request, until=until)
        asyncio.get_running_loop().call_later(0.005, again)


def _receive(queues: Queues, request: Item) -> Item:
    queue = queues[request["QueueUrl"]]
    bodies = [queue.popleft() for _ in range(min(len(queue), request["MaxNumberOfMessages"]))]
    return {
        "Messages": [
            {
                "MessageId": str(uuid.uuid4()),
                "ReceiptHandle": "x" * 100,
                "Body": body,
                "Attributes": {"ApproximateReceiveCount": "1"},
            }
            for body in bodies
        ]
    }


def _delete_batch(queues: Queues, request: Item) -> Item:
    return {"Successful": [{"Id": entry["Id"]} for entry in request["Entries"]], "Failed": []}


def _decrypt(tables: Tables, request: Item) -> Item:
    return {"KeyId": "key", "Plaintext": request["CiphertextBlob"]}


def _nothing(tables: Tables, request: Item) -> Item:
    return {}


_OPERATIONS: dict[str, Callable[[Tables, Item], Item]] = {
    "GetItem": _get,
    "BatchGetItem": _batch_get,
    "BatchWriteItem": _batch_write,
    "PutItem": _put,
    "UpdateItem": _update,
    "TransactWriteItems": _transact,
    "DeleteItem": _delete,
    "Query": _query,
    "Decrypt": _decrypt,
}

_QUEUE_OPERATIONS: dict[str, Callable[[Queues, Item], Item]] = {
    "SendMessage": _send,
    "SendMessageBatch": _send_batch,
    "DeleteMessageBatch": _delete_batch,
}

# Update expressions, as far as needed: SET with + - if_not_exists and list_append, REMOVE, and ADD of numbers.
Change = Callable[[Item, Item], None]
Value = Callable[[Item, Item], Any]
_TOKEN = re.compile(r"\s*([(),=+-]|[#:\w.]+)")


@cache
def _compiled(expression: str, names: tuple[tuple[str, str], ...]) -> list[Change]:
    tokens = _TOKEN.findall(expression)
    aliases, changes, clause, position = dict(names), [], "", 0
    while position < len(tokens):
        if tokens[position].upper() in ("SET", "REMOVE", "ADD"):
            clause = tokens[position].upper()
        elif tokens[position] != ",":
            path = [aliases.get(part, part) for part in tokens[position].split(".")]
            if clause == "REMOVE":
                changes.append(_removing(path))
            elif clause == "ADD":
                position += 1
                changes.append(_setting(path, _sum(_read(path), 1, _read([tokens[position]]))))
            else:
                value, position = _value(tokens, position + 2, aliases)
                changes.append(_setting(path, value))
                continue
        position += 1
    return changes


def _value(tokens: list[str], position: int, aliases: dict[str, str]) -> tuple[Value, int]:
    value, position = _operand(tokens, position, aliases)
    while position < len(tokens) and tokens[position] in "+-":
        sign = 1 if tokens[position] == "+" else -1
        right, position = _operand(tokens, position + 1, aliases)
        value = _sum(value, sign, right)
    return value, position


def _operand(tokens: list[str], position: int, aliases: dict[str, str]) -> tuple[Value, int]:
    name = tokens[position]
    if name in ("if_not_exists", "list_append"):
        first, position = _value(tokens, position + 2, aliases)
        second, position = _value(tokens, position + 1, aliases)
        combined = _either(first, second) if name == "if_not_exists" else _joined(first, second)
        return combined, position + 1
    return _read([aliases.get(part, part) for part in name.split(".")]), position + 1


def _read(path: list[str]) -> Value:
    def read(item: Item, values: Item) -> Any:
        if path[0].startswith(":"):
            return values[path[0]]
        parent = _parent(item, path)
        return None if parent is None else parent.get(path[-1])

    return read


def _sum(left: Value, sign: int, right: Value) -> Value:
    def add(item: Item, values: Item) -> Any:
        first = left(item, values) or {"N": "0"}
        return {"N": str(Decimal(first["N"]) + sign * Decimal(right(item, values)["N"]))}

    return add


def _either(first: Value, second: Value) -> Value:
    return lambda item, values: found if (found := first(item, values)) is not None else second(item, values)


def _joined(first: Value, second: Value) -> Value:
    return lambda item, values: {"L": first(item, values)["L"] + second(item, values)["L"]}


def _parent(item: Item, path: list[str]) -> Item | None:
    for name in path[:-1]:
        item = item.get(name, {}).get("M")
        if item is None:
            return None
    return item


def _setting(path: list[str], value: Value) -> Change:
    def change(item: Item, values: Item) -> None:
        parent = _parent(item, path)
        if parent is not None:
            parent[path[-1]] = value(item, values)

    return change


def _removing(path: list[str]) -> Change:
    def change(item: Item, values: Item) -> None:
        parent = _parent(item, path)
        if parent is not None:
            parent.pop(path[-1], None)

    return change
