"""Commands for documents: search, documents."""

from __future__ import annotations

import argparse
from typing import Any

from recado._cli.arguments import add_command, open_client, parse_metadata
from recado._cli.exit_codes import OK
from recado._cli.output import Output
from recado.models import Hit

MAX_SHOWN_CHARACTERS = 400


def add_commands(commands: Any) -> None:
    command = add_command(commands, "search", search, "find the chunks that match a question, in any language")
    command.add_argument("query")
    command.add_argument("-k", "--top-k", type=int, default=5, metavar="N", help="number of chunks (default: 5)")
    command.add_argument("--document", action="append", metavar="NAME", help="only this document; can be repeated")
    command.add_argument(
        "--metadata", action="append", metavar="NAME=VALUE", help="only documents with this metadata"
    )
    command = add_command(commands, "documents", documents, "list the searchable documents")
    command.add_argument("--delete", metavar="NAME", help="delete this document")


def search(options: argparse.Namespace, output: Output) -> int:
    with open_client(options) as client:
        hits = client.search(
            options.query,
            top_k=options.top_k,
            document_ids=options.document or (),
            metadata=parse_metadata(options.metadata),
        )
    for number, hit in enumerate(hits, 1):
        if output.as_json:
            output.json(hit.raw)
        elif not output.is_for_people:
            output.fields(f"{hit.score:.4f}", hit.document_id, hit.start, hit.end, hit.heading, hit.text)
        else:
            _show_hit(number, hit, output)
    if not hits:
        output.note("No matches. Run `recado documents` to list the searchable documents.")
    return OK


def _show_hit(number: int, hit: Hit, output: Output) -> None:
    text = " ".join(hit.text.split())
    excerpt = text if len(text) <= MAX_SHOWN_CHARACTERS else text[:MAX_SHOWN_CHARACTERS].rstrip() + " …"
    name, score = f"{number}. {hit.document_id}", f"  {hit.score:.3f}"
    heading = f"  {hit.heading}" if hit.heading else ""
    output.print((name, "bold"), (score, "cyan"), (heading, "dim"))
    output.print(f"{excerpt}\n")


def documents(options: argparse.Namespace, output: Output) -> int:
    with open_client(options) as client:
        if options.delete:
            client.delete_document(options.delete)
            output.note(f"{options.delete} is deleted.")
            return OK
        found = client.documents()
    rows = [(d.document_id, d.chunks, d.characters, d.media_type, output.moment(d.indexed_at)) for d in found]
    headings = ("document", "chunks", "characters", "type", "indexed")
    output.records(found, headings, rows, right=("chunks", "characters"))
    return OK
