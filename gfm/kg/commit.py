"""One write of an index: extract, store, derive, and only then switch to the new version.

Killed at any moment, the version before stays in force, and what was extracted and embedded is found by the next run.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from gfm.config import IndexConfig
from gfm.errors import InputError
from gfm.files import broken_files
from gfm.kg.build import Encoder
from gfm.kg.derive import Derived, PreviousNearest, from_extractions
from gfm.kg.extraction.base import Extractor, Failure
from gfm.kg.manifest import FORMAT, arrays_folder
from gfm.kg.rows import StoredDocument
from gfm.kg.storage import MANIFEST, open_array, read_json, remove_old_files, write_arrays, write_json
from gfm.kg.synonyms import Nearest
from gfm.kg.tables import Tables
from gfm.kg.vector_search import EXACT_UP_TO, index_vectors
from gfm.kg.vectors import ENTITY, Vectors
from gfm.progress import Stopwatch, progress_bar
from gfm.types import Extraction

_RESULTS_PER_WRITE = 64
_SECONDS_PER_WRITE = 2.0  # what an interruption can cost of an extraction that is paid for


@dataclass
class Write:
    """A write under way: who holds the lock, what it writes with, and where the time goes.

    Attributes:
        root: the index folder.
        tables: its tables.
        manifest: of the version in force; None at the first build.
        location: URI of the tables; None for the folder's own.
        settings: of the extraction, for later updates.
        reader_counts: what the reader of the source could not use.
    """

    root: Path
    tables: Tables
    manifest: dict[str, Any] | None
    encoder: Encoder
    config: IndexConfig
    location: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    reader_counts: Mapping[str, int] = field(default_factory=dict)
    progress: bool = False
    watch: Stopwatch = field(default_factory=Stopwatch)
    totals: Mapping[str, float] = field(default_factory=dict)

    def extract(self, documents: Sequence[StoredDocument], extractor: Extractor) -> None:
        """Extracts the documents whose extraction is not stored, and stores each result soon after it comes."""
        known = self.tables.extraction_keys()
        # A key that is another extractor's says that this one has nothing to do with the document.
        missing = {
            d.document.title: d
            for d in documents
            if d.extraction not in known and d.extraction == extractor.key(d.document)
        }
        pending: list[tuple[str, Extraction | Failure]] = []
        written = time.monotonic()
        bar = progress_bar("extracting", len(missing), "documents", self.progress)
        results = extractor.extract([d.document for d in missing.values()]) if missing else iter(())
        with self.watch.stage("extraction"), bar as advance:
            try:
                for result in results:
                    pending.append((missing[result.passage].extraction, result))
                    advance(1)
                    if len(pending) >= _RESULTS_PER_WRITE or time.monotonic() - written > _SECONDS_PER_WRITE:
                        self.tables.add_extractions(pending)
                        pending, written = [], time.monotonic()
            finally:
                if hasattr(results, "close"):
                    results.close()
                self.tables.add_extractions(pending)
        self.totals = dict(extractor.totals())

    def commit(self, documents: Sequence[StoredDocument]) -> None:
        """Makes the documents, sorted by title, and their extractions the content of the index."""
        extractions, failures = self.tables.extractions(documents)
        derived = from_extractions(
            documents,
            extractions,
            Vectors(self.tables, self.encoder, progress=self.progress),
            self.encoder.dim,
            self.config,
            previous=self._previous(),
            watch=self.watch,
            progress=self.progress,
        )
        in_force = None if self.manifest is None else int(self.manifest["tables"]["documents"])
        version = self.tables.write_documents(in_force, documents)
        self.switch(derived, "extractions", {"documents": version}, failures)

    def switch(
        self, derived: Derived, source: str, tables: Mapping[str, int], failures: Sequence[Failure] = ()
    ) -> None:
        """Writes the arrays, then the manifest that names them; removes what the old one named."""
        version = uuid.uuid4().hex
        if derived.counts["entities"] > EXACT_UP_TO:
            with self.watch.stage("vector index"):
                index_vectors(self.tables.vector_table(ENTITY))
        with self.watch.stage("arrays"):
            write_arrays(self.root / "arrays" / version, derived.arrays, derived.names)
        manifest = {
            "format": FORMAT,
            "version": version,
            "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "source": source,
            "encoder": {"name": self.encoder.name, "fingerprint": self.encoder.fingerprint, "dim": self.encoder.dim},
            "location": self.location,
            "tables": dict(tables),
            "entity_types": "entity_types" in derived.names,
            "config": asdict(self.config),
            "extraction": dict(self.settings),
            "totals": dict(self.totals),
            "seconds": {stage: round(seconds, 3) for stage, seconds in self.watch.seconds.items()},
            "counts": {**self.reader_counts, **derived.counts, "failed_documents": len(failures)},
        }
        write_json(self.root / MANIFEST, manifest)
        remove_old_files(self.root, version)
        self.tables.tidy()

    def _previous(self) -> PreviousNearest | None:
        """The nearest names of the version in force, where they were found under the same settings."""
        manifest = self.manifest
        if manifest is None or manifest["source"] != "extractions":
            return None
        if manifest["encoder"]["fingerprint"] != self.encoder.fingerprint:
            return None
        if any(manifest["config"][key] != asdict(self.config)[key] for key in ("synonym_threshold", "synonym_cap")):
            return None
        folder = arrays_folder(self.root, manifest)
        files = ["entities.json", "nearest_neighbours.npy", "nearest_cosine.npy"]
        if (broken := _broken(folder, files)) is not None:
            raise InputError(
                f"index file {str(folder / broken)!r} is missing or not as it was written; mend the index with "
                "`gfm index verify --repair`"
            )
        arrays = (open_array(folder / name) for name in files[1:])
        return PreviousNearest(read_json(folder / files[0]), Nearest(*arrays))


def _broken(folder: Path, names: Iterable[str]) -> str | None:
    try:
        return next(iter(broken_files(folder, names)), None)
    except (OSError, UnicodeDecodeError):
        return "SHA256SUMS"
