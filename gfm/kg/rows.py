"""Rows of the index's tables: documents and extractions as Arrow, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from gfm.errors import InputError
from gfm.kg.extraction.base import Failure, content_key
from gfm.types import Document, Extraction

_STRING = pa.string()
_STRINGS = pa.list_(_STRING)
_TRIPLE = pa.struct([("head", _STRING), ("relation", _STRING), ("tail", _STRING), ("sentence", _STRING)])
_ALIAS = pa.struct([("alias", _STRING), ("name", _STRING)])
DOCUMENTS = pa.schema([("title", _STRING), ("text", _STRING), ("content", _STRING), ("extraction", _STRING)])
EXTRACTIONS = pa.schema(
    [
        ("key", _STRING),
        ("entities", _STRINGS),
        ("types", _STRINGS),
        ("triples", pa.list_(_TRIPLE)),
        ("aliases", pa.list_(_ALIAS)),
        ("error", _STRING),
    ]
)


class StoredDocument(NamedTuple):
    """A document with the hash of its content and the key of its extraction ("" for none)."""

    document: Document
    content: str
    extraction: str


def content_of(document: Document) -> str:
    """The content hash of a document: it tells whether anything about it has changed."""
    return content_key(document.title, document.text)


def document_rows(documents: Sequence[StoredDocument]) -> pa.Table:
    """The rows of the table `documents`."""
    columns = zip(*((d.document.title, d.document.text, d.content, d.extraction) for d in documents), strict=True)
    return columns_table(list(map(list, columns)) or [[]] * len(DOCUMENTS), DOCUMENTS)


def documents_of(rows: pa.Table) -> list[StoredDocument]:
    """The documents that rows of the table `documents` hold."""
    columns = [rows[name].to_pylist() for name in DOCUMENTS.names]
    return [StoredDocument(Document(t, x), c, e) for t, x, c, e in zip(*columns, strict=True)]


def extraction_rows(results: Sequence[tuple[str, Extraction | Failure]]) -> pa.Table:
    """The rows of the table `extractions`: results under their keys."""
    return rows_table([_extraction_row(key, result) for key, result in results], EXTRACTIONS)


def extraction_of(passage: str, row: dict[str, Any]) -> Extraction:
    """The extraction that a row of the table `extractions` holds, as that of a passage."""
    return Extraction(
        passage,
        tuple(row["entities"]),
        tuple((t["head"], t["relation"], t["tail"]) for t in row["triples"]),
        tuple(row["types"]),
        tuple(t["sentence"] for t in row["triples"]),
        tuple((a["alias"], a["name"]) for a in row["aliases"]),
    )


def rows_table(rows: list[dict[str, Any]], schema: pa.Schema) -> pa.Table:
    """A table of rows.

    Raises:
        InputError: a text is no Unicode.
    """
    return columns_table([[row[name] for row in rows] for name in schema.names], schema)


def columns_table(columns: list[list[Any]], schema: pa.Schema) -> pa.Table:
    """A table of columns.

    Raises:
        InputError: a text is no Unicode.
    """
    try:
        arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    except UnicodeEncodeError as error:
        text = error.object[max(0, error.start - 20) : error.end + 20]
        raise InputError(f"text {text!r} holds half of a surrogate pair, which is no Unicode; repair it") from error
    return pa.Table.from_arrays(arrays, schema=schema)


def _extraction_row(key: str, result: Extraction | Failure) -> dict[str, Any]:
    if isinstance(result, Failure):
        return {"key": key, "entities": [], "types": [], "triples": [], "aliases": [], "error": result.reason}
    sentences = result.sentences or ("",) * len(result.triples)
    return {
        "key": key,
        "entities": list(result.entities),
        "types": list(result.types),
        "triples": [
            dict(zip(_TRIPLE.names, (*triple, sentence), strict=True))
            for triple, sentence in zip(result.triples, sentences, strict=True)
        ],
        "aliases": [{"alias": alias, "name": name} for alias, name in result.aliases],
        "error": None,
    }
