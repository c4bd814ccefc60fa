"""Building and changing an index: which documents it holds afterwards. How they get there is `gfm.kg.commit`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gfm.config import IndexConfig
from gfm.errors import InputError
from gfm.kg.build import Encoder
from gfm.kg.changes import Changes, changes_between, unique_documents
from gfm.kg.commit import Write
from gfm.kg.derive import from_graph
from gfm.kg.extraction.base import Extractor
from gfm.kg.given import GivenGraph, given_mentions, tables_of
from gfm.kg.manifest import is_outdated, other_encoder, read_manifest, tables_location
from gfm.kg.rows import StoredDocument, content_of, document_rows
from gfm.kg.storage import MANIFEST, check_target, writing
from gfm.kg.tables import Tables
from gfm.kg.vectors import KINDS, Vectors
from gfm.types import Document

_SHOWN = 5


@dataclass(frozen=True)
class BuildOptions:
    """How an index is made; all of it but `progress` is kept with the index.

    Attributes:
        extraction: settings of the extractor, so that later updates can make the same one.
        location: URI of a LanceDB for the tables; None keeps them in the folder.
    """

    config: IndexConfig = field(default_factory=IndexConfig)
    extraction: Mapping[str, Any] = field(default_factory=dict)
    reader_counts: Mapping[str, int] = field(default_factory=dict)
    location: str | None = None
    progress: bool = False


def build_index(
    root: Path, documents: Sequence[Document], extractor: Extractor | None, encoder: Encoder, options: BuildOptions
) -> Changes:
    """Makes `documents` the content of an index: a new one, or the one in `root`.

    What an earlier or interrupted build has extracted and embedded is used again where nothing about it has changed.

    Raises:
        InputError: nothing to index, two texts under one title, a `root` that is not ours to write, another writer.
    """
    if not documents:
        raise InputError("there is nothing to index: no documents and no graph were given")
    unique, repeated = unique_documents(documents)
    wanted = _stored(unique, extractor)
    document_rows(wanted)  # refuses what no table can hold before anything is written
    with _first_or_next(root, encoder, options) as write:
        before = _documents_in_force(write)
        if extractor is not None:
            write.extract(wanted, extractor)
        write.commit(wanted)
        write.tables.drop_except(["documents", "extractions"], KINDS)
    return changes_between(before, {d.document.title: d for d in wanted}, unique, repeated)


def index_graph(
    root: Path, given: GivenGraph, documents: Sequence[Document], encoder: Encoder, options: BuildOptions
) -> None:
    """Indexes a given graph with its documents.

    Raises:
        InputError: no entities, a mention of what is not there, or as `build_index`.
    """
    graph, pairs = given.graph, list(dict.fromkeys(given.mentions))
    if graph.num_entities == 0:
        raise InputError("the graph has no entities; there is nothing to index")
    unique, _ = unique_documents(documents)
    wanted = _stored(unique, None)
    mentions = given_mentions(graph, pairs, unique)
    tables = {"documents": document_rows(wanted), **tables_of(graph, pairs)}
    with _first_or_next(root, encoder, options) as write:
        vectors = Vectors(write.tables, encoder, progress=options.progress)
        derived = from_graph(wanted, graph, mentions, vectors, encoder.dim, watch=write.watch)
        write.switch(derived, "graph", write.tables.overwrite(tables))
        write.tables.drop_except(tables, KINDS)


def add_documents(
    root: Path, documents: Sequence[Document], extractor: Extractor | None, encoder: Encoder, *, progress: bool = False
) -> Changes:
    """Adds documents to an index; those that it holds already, unchanged, stay.

    Raises:
        InputError: a title is there with another text, or the index cannot be changed (see `change`).
    """
    return _change(root, documents, extractor, encoder, may_replace=False, progress=progress)


def update_documents(
    root: Path, documents: Sequence[Document], extractor: Extractor | None, encoder: Encoder, *, progress: bool = False
) -> Changes:
    """Adds documents to an index, in place of those with the same titles."""
    return _change(root, documents, extractor, encoder, may_replace=True, progress=progress)


def delete_documents(root: Path, titles: Sequence[str], encoder: Encoder, *, progress: bool = False) -> Changes:
    """Takes documents out of an index; what they alone said leaves the graph.

    Raises:
        InputError: a title is not in the index, no document would be left, or the index cannot be changed.
    """
    with _next(root, encoder, progress) as write:
        before = _documents_in_force(write)
        unknown = [title for title in dict.fromkeys(titles) if title not in before]
        if unknown:
            raise InputError(f"the index has no document with the title {_listed(unknown)}; nothing was deleted")
        after = {title: d for title, d in before.items() if title not in set(titles)}
        if not after:
            raise InputError("no document would be left; remove the folder of the index instead")
        write.commit(list(after.values()))
    return changes_between(before, after, [], ())


def _change(
    root: Path,
    documents: Sequence[Document],
    extractor: Extractor | None,
    encoder: Encoder,
    *,
    may_replace: bool,
    progress: bool,
) -> Changes:
    if not documents:
        raise InputError("there are no documents to add")
    unique, repeated = unique_documents(documents)
    new = {d.document.title: d for d in _stored(unique, extractor)}
    document_rows(list(new.values()))  # refuses what no table can hold before anything is written
    with _next(root, encoder, progress) as write:
        before = _documents_in_force(write)
        other = [title for title, d in new.items() if title in before and before[title] != d]
        if other and not may_replace:
            raise InputError(
                f"the index has {len(other)} of these titles with another content ({_listed(other)}); replace them "
                "with `gfm index update`; nothing was added"
            )
        after = dict(sorted((before | new).items()))
        if extractor is not None:
            # All of them: what failed before is tried again.
            write.extract(list(after.values()) if after != before else list(new.values()), extractor)
        if after != before or write.manifest is None or write.manifest["counts"]["failed_documents"]:
            write.commit(list(after.values()))
    return changes_between(before, after, unique, repeated)


@contextmanager
def _first_or_next(root: Path, encoder: Encoder, options: BuildOptions) -> Iterator[Write]:
    check_target(root)
    began = root.exists()
    with writing(root):
        there = (root / MANIFEST).is_file() and not is_outdated(root)
        manifest = read_manifest(root) if there else None
        location = options.location
        if manifest is not None and location is None:
            location = manifest["location"]
        if manifest is not None and manifest["location"] != location:
            raise InputError(f"the tables of index {str(root)!r} lie in {manifest['location']!r}; name a new folder")
        tables = Tables(location or str(root / "lance"), encoder.fingerprint)
        if location and manifest is None and not began and tables.has_documents():
            raise InputError(f"{location!r} holds the tables of another index; name a place of its own")
        yield Write(
            root,
            tables,
            manifest,
            encoder,
            options.config,
            location,
            options.extraction,
            options.reader_counts,
            options.progress,
        )


@contextmanager
def _next(root: Path, encoder: Encoder, progress: bool) -> Iterator[Write]:
    read_manifest(root)  # before a lock file appears in a folder that is no index
    with writing(root):
        manifest = read_manifest(root)
        if manifest["source"] != "extractions":
            raise InputError(
                f"index {str(root)!r} was made of a given graph, which its documents do not determine; change the "
                "source and build it again"
            )
        if encoder.fingerprint != manifest["encoder"]["fingerprint"]:
            raise other_encoder(root, manifest, encoder)
        yield Write(
            root,
            Tables(tables_location(root, manifest), encoder.fingerprint),
            manifest,
            encoder,
            IndexConfig(**manifest["config"]),
            manifest["location"],
            manifest["extraction"],
            {},
            progress,
        )


def _documents_in_force(write: Write) -> dict[str, StoredDocument]:
    if write.manifest is None:
        return {}
    stored = write.tables.documents(int(write.manifest["tables"]["documents"]))
    return {d.document.title: d for d in sorted(stored, key=lambda d: d.document.title)}


def _stored(documents: Sequence[Document], extractor: Extractor | None) -> list[StoredDocument]:
    keys = [extractor.key(document) if extractor is not None else "" for document in documents]
    return [StoredDocument(d, content_of(d), key) for d, key in zip(documents, keys, strict=True)]


def _listed(titles: Sequence[str]) -> str:
    shown = ", ".join(repr(title) for title in titles[:_SHOWN])
    return shown if len(titles) <= _SHOWN else f"{shown} and {len(titles) - _SHOWN} more"
