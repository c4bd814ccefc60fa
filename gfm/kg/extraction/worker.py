"""`python -m gfm.kg.extraction.worker MODULE:FUNCTION NAME`: one of the processes that extract documents.

Reads a JSON line for each batch of documents, writes one for its extractions, and ends when its parent does, however
that ends. JSON, and a program of its own instead of a copy of the parent's: nothing is unpickled, and a user's script
is not run a second time.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict
from importlib import import_module
from typing import Any, TextIO

from gfm.errors import InputError
from gfm.types import Document, Extraction

Extract = Callable[[Document], Extraction]
Load = Callable[[str], Extract]


def request(documents: Sequence[Document]) -> str:
    """The line that asks for the extractions of documents."""
    return json.dumps([[document.title, document.text] for document in documents]) + "\n"


def answer(line: str) -> list[Extraction]:
    """The extractions in a worker's line.

    Raises:
        InputError: the worker could not load what it extracts with.
    """
    value = json.loads(line)
    if isinstance(value, dict):
        raise InputError(value["error"])
    return [_extraction(row) for row in value]


def main() -> None:
    """Serves until stdin ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is told as well, and ends this process
    out = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="ascii")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a library prints is no answer
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(sys.stdin, lines), daemon=True).start()
    place, name = sys.argv[1:]
    module, _, function = place.partition(":")
    try:
        extract: Extract = getattr(import_module(module), function)(name)
    except InputError as error:
        _write(out, {"error": str(error)})
        return
    while True:
        _write(out, [asdict(extract(Document(title, text))) for title, text in json.loads(lines.get())])


def _read(requests: TextIO, lines: queue.SimpleQueue[str]) -> None:
    """Passes lines on; their end is the parent's, which may have been killed and could not tell."""
    for line in requests:
        lines.put(line)
    os._exit(0)


def _write(out: TextIO, value: Any) -> None:
    out.write(json.dumps(value) + "\n")
    out.flush()


def _extraction(row: dict[str, Any]) -> Extraction:
    triples = tuple((head, relation, tail) for head, relation, tail in row["triples"])
    aliases = tuple((alias, name) for alias, name in row["aliases"])
    sentences = tuple(row["sentences"])
    return Extraction(row["passage"], tuple(row["entities"]), triples, tuple(row["types"]), sentences, aliases)


if __name__ == "__main__":
    main()
