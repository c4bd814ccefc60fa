"""What every extractor does, so that an index need not know which one it has."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from gfm.types import Document, Extraction


@dataclass(frozen=True)
class Failure:
    """A document that could not be extracted this time, and why; the next run tries it again."""

    passage: str
    reason: str


class Extractor(Protocol):
    """Turns documents into extractions.

    A document's extraction depends on its title and text and on the extractor's settings, on nothing else: not on
    the other documents, their order, or how many processes work. That makes an updated index equal to a rebuilt one.
    """

    name: str
    """`"spacy"`, `"llm"` or `"records"`."""

    def key(self, document: Document) -> str:
        """Under which the extraction is stored: it changes whenever the extraction might."""

    def extract(self, documents: Sequence[Document]) -> Iterator[Extraction | Failure]:
        """Yields one result for each document, as they come, in any order.

        Raises:
            InputError: nothing can be extracted at all (a model is missing, an endpoint refuses the key).
        """

    def totals(self) -> Mapping[str, float]:
        """What the extractions since its creation have cost, for example tokens; empty where nothing is counted."""


def content_key(*parts: str) -> str:
    """64 hex digits that tell texts apart, whatever they contain: each part is hashed with its length."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()
