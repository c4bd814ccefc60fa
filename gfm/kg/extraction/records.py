"""Extractions that exist already: OpenIE records of another program."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple

from gfm.errors import InputError
from gfm.kg.extraction.base import Failure, content_key
from gfm.types import Document, Extraction


class RecordsExtractor:
    """Gives every document its record; a document without one has an empty extraction.

    Args:
        extractions: records; several of one passage are joined in their order.
    """

    name = "records"

    def __init__(self, extractions: Iterable[Extraction]) -> None:
        self._records: dict[str, Extraction] = {}
        for extraction in extractions:
            known = self._records.get(extraction.passage)
            self._records[extraction.passage] = extraction if known is None else _joined(known, extraction)

    def check(self, titles: Collection[str]) -> None:
        """Refuses records of passages that are not among the titles.

        Raises:
            InputError: the first such passage.
        """
        for passage in self._records:
            if passage not in titles:
                raise InputError(
                    f"extraction names the passage {passage!r}, which no document has as title; "
                    "add the document or drop the extraction"
                )

    def key(self, document: Document) -> str:
        """Changes with the document and with its record."""
        record = self._records.get(document.title)
        return content_key("records", document.title, document.text, "" if record is None else _canonical(record))

    def extract(self, documents: Sequence[Document]) -> Iterator[Extraction | Failure]:
        """Yields the records of the documents."""
        for document in documents:
            yield self._records.get(document.title) or Extraction(document.title, (), ())

    def totals(self) -> Mapping[str, float]:
        """Nothing is counted."""
        return {}


def _canonical(record: Extraction) -> str:
    return json.dumps(astuple(record), ensure_ascii=True)


def _joined(first: Extraction, second: Extraction) -> Extraction:
    """Two records of one passage as one; what only one of them says of its items is blank for the other's."""

    def filled(texts: tuple[str, ...], items: Sequence[object]) -> tuple[str, ...]:
        return texts or ("",) * len(items)

    return Extraction(
        first.passage,
        first.entities + second.entities,
        first.triples + second.triples,
        filled(first.types, first.entities) + filled(second.types, second.entities),
        filled(first.sentences, first.triples) + filled(second.sentences, second.triples),
        first.aliases + second.aliases,
    )
