"""`ops keys create|ls|revoke`: API keys. A key's token is printed once and cannot be read again."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from core.auth import SCOPES, KeyStore
from core.aws import clients
from ops import stack

ENDS = """This ends:
- the key, within authorizer_cache_seconds (5 minutes by default)
- links to all jobs of the owner (/follow/…), within a minute
- tickets of the owner for WebSockets, at once; open WebSockets, within 5 minutes
- links to large results, within 5 minutes; URLs for uploads, within an hour
Other keys of the owner stay valid. They get new links and tickets."""


def add_commands(commands: Any) -> None:
    keys = commands.add_parser("keys", help="make, list and revoke API keys").add_subparsers(required=True)
    new = keys.add_parser("create", help="make a key and print it, once")
    new.add_argument("--owner", required=True, help="whose jobs it may see and make: 1 to 64 of a-z, 0-9 and -")
    new.add_argument("--scope", action="append", choices=SCOPES, help="may be repeated (default: all)")
    new.add_argument("--note", default="", help="what it is for")
    new.set_defaults(run=create)
    keys.add_parser("ls", help="list keys, without their secrets").set_defaults(run=ls)
    old = keys.add_parser("revoke", help="revoke a key, and end all links and tickets of its owner")
    old.add_argument("key_id")
    old.set_defaults(run=revoke)


def _store(options: argparse.Namespace) -> KeyStore:
    return KeyStore(clients.dynamodb(), stack.outputs(options.stack)["KeysTable"])


def create(options: argparse.Namespace) -> int:
    """The token alone goes to standard output, so that a script can take it."""
    token, key = _store(options).create(
        owner=options.owner, scopes=tuple(options.scope or SCOPES), note=options.note
    )
    print(token)
    print(f"key {key.key_id} of {key.owner}: {', '.join(key.scopes)}. Shown once; keep it safe.", file=sys.stderr)
    return 0


def ls(options: argparse.Namespace) -> int:
    for key in sorted(_store(options).list(), key=lambda key: key.created_at):
        state = f"revoked {key.revoked_at}" if key.revoked_at else "active"
        print(f"{key.key_id}  {key.owner}  {','.join(key.scopes)}  {key.created_at}  {state}  {key.note}".rstrip())
    return 0


def revoke(options: argparse.Namespace) -> int:
    key = _store(options).revoke(options.key_id)
    if key is None:
        print(f"there is no key {options.key_id}", file=sys.stderr)
        return 1
    print(f"revoked {key.key_id} of {key.owner}. {ENDS}", file=sys.stderr)
    return 0
