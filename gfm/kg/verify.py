"""Checking an index against its tables, deriving it anew, and taking out what nothing uses."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gfm.config import IndexConfig
from gfm.errors import InputError
from gfm.files import broken_files
from gfm.kg.build import Encoder
from gfm.kg.commit import Write
from gfm.kg.derive import Derived, from_extractions, from_graph
from gfm.kg.extraction.base import Failure
from gfm.kg.given import given_mentions, read_given
from gfm.kg.manifest import arrays_folder, other_encoder, read_manifest, tables_location
from gfm.kg.rows import StoredDocument, content_of
from gfm.kg.storage import MANIFEST, bytes_on_disk, open_array, read_json, write_json, writing
from gfm.kg.tables import Tables
from gfm.kg.vector_search import EXACT_UP_TO, index_vectors
from gfm.kg.vectors import DOCUMENT, ENTITY, RELATION, Vectors
from gfm.progress import Stopwatch
from gfm.types import INVERSE_TEXT


def verify_index(root: Path, *, progress: bool = False) -> list[str]:
    """Checks that files are as they were written and equal what the tables give; returns what is wrong, a line each.

    Everything that an index derives is derived once more, from scratch, and compared: it takes about as long as a
    build without extraction and embedding.

    Raises:
        InputError: no index there, or one of another format.
    """
    manifest = read_manifest(root)
    folder = arrays_folder(root, manifest)
    try:
        broken = broken_files(folder)
    except (OSError, UnicodeDecodeError) as error:
        return [f"{folder}: its list of files cannot be read ({error})"]
    problems = [f"{folder / name}: missing, changed or foreign" for name in broken]
    try:
        tables = _tables(root, manifest)
        documents = _documents(tables, manifest)
        problems += [
            f"document {d.document.title!r}: its text is not what its hash says"
            for d in documents
            if content_of(d.document) != d.content
        ]
        derived, failures = _derive(tables, manifest, documents, None, progress)
    except InputError as error:
        return [*problems, str(error)]
    problems += [f"document {failure.passage!r} could not be extracted: {failure.reason}" for failure in failures]
    return problems + _differences(folder, derived, set(broken))


def repair_index(root: Path, encoder: Encoder, *, progress: bool = False) -> None:
    """Derives everything anew from the tables; embeds what is missing there.

    Raises:
        InputError: the tables themselves cannot be read: then only a build from the source helps.
    """
    manifest = read_manifest(root)
    if encoder.fingerprint != manifest["encoder"]["fingerprint"]:
        raise other_encoder(root, manifest, encoder)
    with writing(root):
        manifest = read_manifest(root)
        tables = _tables(root, manifest)
        documents = _documents(tables, manifest)
        derived, failures = _derive(tables, manifest, documents, encoder, progress)
        config = IndexConfig(**manifest["config"])
        write = Write(root, tables, manifest, encoder, config, manifest["location"], manifest["extraction"])
        write.totals = manifest["totals"]
        write.switch(derived, manifest["source"], manifest["tables"], failures)


def compact_index(root: Path) -> tuple[int, int]:
    """Takes out old versions and what no document uses: nothing of a deleted document is left on the disk.

    Returns:
        Bytes of the folder before and after.
    """
    read_manifest(root)
    with writing(root):
        manifest = read_manifest(root)
        before = bytes_on_disk(root)
        tables = _tables(root, manifest)
        documents = _documents(tables, manifest)
        folder = arrays_folder(root, manifest)
        relations = read_json(folder / "relations.json")
        used = {
            "extractions": {d.extraction for d in documents},
            ENTITY: set(read_json(folder / "entities.json")),
            RELATION: {*relations, *(f"{INVERSE_TEXT}{name}" for name in relations)},
            DOCUMENT: {d.content for d in documents},
        }
        versions = tables.keep_only(used)
        if manifest["counts"]["entities"] > EXACT_UP_TO:
            index_vectors(tables.vector_table(ENTITY))  # a table that was written anew has lost it
        manifest["tables"] = {name: versions[name] for name in manifest["tables"]}
        write_json(root / MANIFEST, manifest)  # before the versions that it named until now are gone
        tables.forget_old_versions()
        return before, bytes_on_disk(root)


def _tables(root: Path, manifest: Mapping[str, Any]) -> Tables:
    return Tables(tables_location(root, manifest), manifest["encoder"]["fingerprint"])


def _documents(tables: Tables, manifest: Mapping[str, Any]) -> list[StoredDocument]:
    return sorted(tables.documents(int(manifest["tables"]["documents"])), key=lambda d: d.document.title)


def _derive(
    tables: Tables,
    manifest: Mapping[str, Any],
    documents: list[StoredDocument],
    encoder: Encoder | None,
    progress: bool,
) -> tuple[Derived, list[Failure]]:
    vectors, dim, watch = Vectors(tables, encoder, progress=progress), int(manifest["encoder"]["dim"]), Stopwatch()
    if manifest["source"] == "graph":
        given = read_given(tables, manifest["tables"])
        mentions = given_mentions(given.graph, given.mentions, [d.document for d in documents])
        return from_graph(documents, given.graph, mentions, vectors, dim, watch=watch), []
    extractions, failures = tables.extractions(documents)
    config = IndexConfig(**manifest["config"])
    return from_extractions(documents, extractions, vectors, dim, config, watch=watch, progress=progress), failures


def _differences(folder: Path, derived: Derived, broken: set[str]) -> list[str]:
    """Files that hold something else than was derived; those in `broken` are known already."""
    differing = [
        f"{name}.npy"
        for name, array in derived.arrays.items()
        if f"{name}.npy" not in broken and not _same(open_array(folder / f"{name}.npy"), array)
    ]
    differing += [
        f"{name}.json"
        for name, value in derived.names.items()
        if f"{name}.json" not in broken and read_json(folder / f"{name}.json") != value
    ]
    return [f"{folder / name}: not what the tables give" for name in differing]


def _same(stored: NDArray[Any], derived: NDArray[Any]) -> bool:
    return stored.dtype == derived.dtype and np.array_equal(stored, derived)
