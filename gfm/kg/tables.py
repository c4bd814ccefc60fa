"""The LanceDB tables of an index: the one truth that everything else is derived from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from gfm.errors import InputError
from gfm.kg.extraction.base import Failure, content_key
from gfm.kg.rows import EXTRACTIONS, StoredDocument, document_rows, documents_of, extraction_of, extraction_rows
from gfm.types import Extraction

if TYPE_CHECKING:
    from lancedb.table import Table

_DELETED_AT_ONCE = 500  # hashes in one SQL predicate
_MANY_PIECES = 100
_PINNED = {"documents", "entities", "relations", "triples", "mentions"}  # a manifest names their version
_AT_ONCE = timedelta(milliseconds=1)  # LanceDB warns of zero, for readers of old versions; an index has none


class Tables:
    """Reads and appends; nothing here decides which version of the index is in force.

    - `documents` changes with every write; an index reads it at the version that its manifest names.
    - `extractions` and the vector tables are keyed by content and only grow, so what an interrupted run has written
      is found by the next one. They are read at their latest version. `keep_only` takes out what nothing uses.

    Args:
        location: a folder, or the URI of an object store.
        encoder_fingerprint: whose vectors; those of several encoders lie side by side.
    """

    def __init__(self, location: str, encoder_fingerprint: str) -> None:
        import lancedb

        self.location = location
        self._suffix = content_key(encoder_fingerprint)[:16]
        with _readable(location):
            self._database = lancedb.connect(location)
            self._names = set(self._database.list_tables().tables)

    def has_documents(self) -> bool:
        """Whether an index has ever written here."""
        return "documents" in self._names

    def documents(self, version: int) -> list[StoredDocument]:
        """Every document of a version, in no particular order.

        Raises:
            InputError: the table or the version is not there.
        """
        with _readable(f"{self.location}/documents.lance"):
            table = self._database.open_table("documents")
            table.checkout(version)
            rows = table.to_arrow()
        return documents_of(rows)

    def write_documents(self, version: int | None, wanted: Sequence[StoredDocument]) -> int:
        """Turns the documents of `version` (None: nothing) into `wanted` and returns the new version."""
        rows = document_rows(wanted)
        if version is None or "documents" not in self._names:
            with _writable(self.location):
                return int(self._created("documents", rows).version)
        table = self._database.open_table("documents")
        with _writable(self.location):
            if int(table.version) != version:  # a writer died between this table and the manifest
                table.checkout(version)
                table.restore()
            old = table.search().select(["content", "extraction"]).to_arrow()
            was = set(zip(old["content"].to_pylist(), old["extraction"].to_pylist(), strict=True))
            now = {(d.content, d.extraction) for d in wanted}
            _delete(table, {content for content, _ in was - now})
            new = pa.array([(d.content, d.extraction) not in was for d in wanted], pa.bool_())
            if (added := rows.filter(new)).num_rows:
                table.add(added)
        return int(table.version)

    def extraction_keys(self) -> set[str]:
        """Keys of the extractions that succeeded."""
        if "extractions" not in self._names:
            return set()
        rows = self._read("extractions", EXTRACTIONS).select(["key", "error"])
        return set(rows.filter(pc.is_null(rows["error"]))["key"].to_pylist())

    def add_extractions(self, results: Sequence[tuple[str, Extraction | Failure]]) -> None:
        """Appends results under their keys; a failure counts as missing until a result follows."""
        self._append("extractions", extraction_rows(results))

    def extractions(self, documents: Sequence[StoredDocument]) -> tuple[list[Extraction], list[Failure]]:
        """What was extracted from the documents, in their order, and what failed the last time it was tried."""
        rows = self._read("extractions", EXTRACTIONS)
        succeeded = rows.filter(pc.is_null(rows["error"]))
        place = pc.index_in(pa.array([d.extraction for d in documents], pa.string()), succeeded["key"].combine_chunks())
        found = succeeded.take(place.drop_null())
        owners = [d.document.title for d, at in zip(documents, place.to_pylist(), strict=True) if at is not None]
        missing = {d.extraction: d.document.title for d, at in zip(documents, place, strict=True) if not at.is_valid}
        failed = rows.filter(pc.is_valid(rows["error"])).select(["key", "error"]).to_pylist()
        reasons = {row["key"]: row["error"] for row in failed}
        failures = [Failure(title, reasons[key]) for key, title in missing.items() if key in reasons]
        return [extraction_of(title, row) for title, row in zip(owners, found.to_pylist(), strict=True)], failures

    def vectors(self, kind: str, keys: Sequence[str]) -> tuple[NDArray[np.float32] | None, NDArray[np.bool_]]:
        """Stored vectors `(N, dim)` of the keys, and which of them are there; None where the table is empty."""
        name = self._vector_table(kind)
        if name not in self._names:
            return None, np.zeros(len(keys), dtype=bool)
        with _readable(f"{self.location}/{name}.lance"):
            rows = self._database.open_table(name).to_arrow().combine_chunks()
        place = pc.index_in(pa.array(keys, pa.string()), rows["key"].combine_chunks())
        known = np.asarray(pc.is_valid(place))
        dim = rows.schema.field("vector").type.list_size
        flat = rows["vector"].combine_chunks().flatten().to_numpy(zero_copy_only=False).reshape(-1, dim)
        vectors = np.zeros((len(keys), dim), dtype=np.float32)
        vectors[known] = flat[np.asarray(place.drop_null(), dtype=np.int64)]
        return vectors, known

    def add_vectors(self, kind: str, keys: Sequence[str], vectors: NDArray[np.float32]) -> None:
        """Appends vectors `(N, dim)` under their keys."""
        dim = vectors.shape[1]
        column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel(), pa.float32()), dim)
        schema = pa.schema([("key", pa.string()), ("vector", pa.list_(pa.float32(), dim))])
        self._append(self._vector_table(kind), pa.table([pa.array(keys, pa.string()), column], schema=schema))

    def vector_table(self, kind: str) -> Table:
        """The LanceDB table of vectors of a kind, for searches in it."""
        with _readable(self.location):
            return self._database.open_table(self._vector_table(kind))

    def overwrite(self, tables: Mapping[str, pa.Table]) -> dict[str, int]:
        """Writes whole tables, as a given graph has them, and returns their versions."""
        with _writable(self.location):
            return {name: int(self._created(name, rows).version) for name, rows in tables.items()}

    def version_of(self, name: str, version: int) -> pa.Table:
        """A whole table at a version."""
        with _readable(f"{self.location}/{name}.lance"):
            table = self._database.open_table(name)
            table.checkout(version)
            return table.to_arrow()

    def drop_except(self, names: Iterable[str], kinds: Iterable[str]) -> None:
        """Drops the tables of another source and the vectors of other encoders."""
        kept = {*names, *map(self._vector_table, kinds)}
        with _writable(self.location):
            for name in sorted(self._names - kept):
                self._database.drop_table(name)
                self._names.discard(name)

    def keep_only(self, used: Mapping[str, Iterable[str]]) -> dict[str, int]:
        """Takes out the rows that nothing uses and joins the pieces of every table; old versions stay readable.

        Args:
            used: keys in use, by `"extractions"` or kind of vector.

        Returns:
            The new version of every table.
        """
        with _writable(self.location):
            for name, keys in used.items():
                self._filter(name if name == "extractions" else self._vector_table(name), keys)
            versions = {}
            for name in sorted(self._names):
                table = self._database.open_table(name)
                table.optimize()
                versions[name] = int(table.version)
            return versions

    def forget_old_versions(self) -> None:
        """Removes every version but the latest, which the manifest must name by now."""
        with _writable(self.location):
            for name in sorted(self._names):
                self._database.open_table(name).optimize(cleanup_older_than=_AT_ONCE, delete_unverified=True)

    def tidy(self) -> None:
        """Joins the pieces that many small writes have left; only of tables that are read at their latest version."""
        with _writable(self.location):
            for name in sorted(self._names - _PINNED):
                table = self._database.open_table(name)
                stats: Any = table.stats()
                if stats["fragment_stats"]["num_fragments"] > _MANY_PIECES:
                    table.optimize(cleanup_older_than=timedelta(days=1))

    def _filter(self, name: str, keys: Iterable[str]) -> None:
        if name not in self._names:
            return
        rows = self._database.open_table(name).to_arrow()
        kept = rows.filter(pc.is_in(rows["key"], value_set=pa.array(sorted(keys), pa.string())))
        if kept.num_rows < rows.num_rows:
            self._created(name, kept)

    def _vector_table(self, kind: str) -> str:
        return f"{kind}_vectors_{self._suffix}"

    def _read(self, name: str, schema: pa.Schema) -> pa.Table:
        if name not in self._names:
            return schema.empty_table()
        with _readable(f"{self.location}/{name}.lance"):
            return self._database.open_table(name).to_arrow()

    def _append(self, name: str, rows: pa.Table) -> None:
        if not rows.num_rows:
            return
        with _writable(self.location):
            if name in self._names and (table := self._database.open_table(name)).schema.equals(rows.schema):
                table.add(rows)
            else:  # absent, or of an older format
                self._created(name, rows)

    def _created(self, name: str, rows: pa.Table) -> Table:
        mode = "overwrite" if name in self._names else "create"
        table = self._database.create_table(name, data=rows, mode=mode)
        self._names.add(name)
        return table


def _delete(table: Table, contents: set[str]) -> None:
    """Deletes documents by content hash: hex digits need no quoting, titles would."""
    ordered = sorted(contents)
    for start in range(0, len(ordered), _DELETED_AT_ONCE):
        listed = ", ".join(f"'{content}'" for content in ordered[start : start + _DELETED_AT_ONCE])
        table.delete(f"content IN ({listed})")


@contextmanager
def _readable(place: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, RuntimeError) as error:
        reason = str(error).strip().split("\n")[0]
        raise InputError(f"index table {place!r} cannot be read ({reason}); build the index again") from error


@contextmanager
def _writable(place: str) -> Iterator[None]:
    try:
        yield
    except (OSError, RuntimeError) as error:
        reason = str(error).strip().split("\n")[0]
        raise InputError(
            f"index tables in {place!r} cannot be written ({reason}); what was written before is kept: make room or "
            "mend the access, and run the same command again"
        ) from error
