"""The index folder: a graph, its documents and their embeddings, opened by memory map."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from torch import Tensor

from gfm.config import IndexConfig
from gfm.errors import InputError
from gfm.kg.build import Encoder
from gfm.kg.graph import KnowledgeGraph
from gfm.kg.index_writer import FORMAT, write_index
from gfm.kg.storage import MANIFEST, bytes_on_disk, damaged, open_array, open_table, read_json
from gfm.types import INVERSE_TEXT, Document, Extraction

if TYPE_CHECKING:
    from lancedb.table import Table

_VERSION = re.compile(r"[0-9a-f]{32}")


class KGIndex:
    """An index on disk at one version. Make one with `build` or `open`.

    Layout of the folder: `index.json` names the version and is replaced last; `lance/` holds the truth
    (documents, and the extractions or the given triples) as LanceDB tables, read at the table versions
    that `index.json` names; `arrays/<version>/` holds what is derived. A write that dies therefore leaves
    the previous version in force.

    With V entities, R direct relations, D documents and embeddings of length `dim`:

    Attributes:
        path: the folder.
        graph: the knowledge graph.
        titles: D titles, by document id.
        mentions: `(V, D)` float32 CSR of 0 and 1: the entity occurs in the document.
        entity_document_counts: `(V,)` int64, documents that mention each entity.
        entity_embeddings: `(V, dim)` float32.
        relation_embeddings: `(2R, dim)` float32 of `graph.relation_texts()`.
        document_embeddings: `(D, dim)` float32 of title and text.

    Embeddings are tensors over copy-on-write memory maps: pages load when touched, and no write to them
    reaches the disk.
    """

    def __init__(self, path: Path, manifest: Mapping[str, Any]) -> None:
        self.path = path
        self._manifest = manifest
        self.version: str = manifest["version"]
        self.encoder_name: str = manifest["encoder"]["name"]
        self.encoder_fingerprint: str = manifest["encoder"]["fingerprint"]
        counts = manifest["counts"]
        self._shape = {key: int(counts[key]) for key in ("entities", "relations", "triples", "documents", "mentions")}
        dim = int(manifest["encoder"]["dim"])
        self.graph = self._open_graph()
        self.titles = self._names("titles", self._shape["documents"])
        self.mentions = self._open_mentions()
        self.entity_document_counts: NDArray[np.int64] = np.diff(self.mentions.indptr).astype(np.int64)
        self.entity_embeddings = self._tensor("entity_embeddings", (self._shape["entities"], dim))
        self.relation_embeddings = self._tensor("relation_embeddings", (2 * self._shape["relations"], dim))
        self.document_embeddings = self._tensor("document_embeddings", (self._shape["documents"], dim))

    @classmethod
    def build(
        cls,
        out: str | Path,
        encoder: Encoder,
        *,
        documents: Sequence[Document] = (),
        extractions: Iterable[Extraction] | None = None,
        graph: KnowledgeGraph | None = None,
        mentions: Iterable[tuple[str, str]] | None = None,
        config: IndexConfig | None = None,
        reader_counts: Mapping[str, int] | None = None,
        progress: bool = False,
    ) -> KGIndex:
        """Builds an index, or a new version of one, and opens it.

        Args:
            out: a new folder, or that of an index, which stays in force until the new version is complete.
            encoder: embeds names, relations and documents; its fingerprint is stored.
            documents: passages with unique titles.
            extractions: what was found in them; the graph is then built by `build_graph`.
            graph: a given graph, stored as it is; excludes `extractions`.
            mentions: `(entity name, title)` pairs for a given graph.
            config: how extractions become a graph.
            reader_counts: counts of the reader (for example malformed triples) to show in `info`.
            progress: show bars on stderr.

        Raises:
            InputError: nothing to index, a name that does not fit, or an `out` that is not ours to write.
        """
        root = Path(out)
        write_index(
            root,
            encoder,
            documents=documents,
            extractions=extractions,
            graph=graph,
            mentions=mentions,
            config=config or IndexConfig(),
            reader_counts=reader_counts or {},
            progress=progress,
        )
        return cls.open(root)

    @classmethod
    def open(cls, path: str | Path) -> KGIndex:
        """Opens the version that `index.json` names; texts and embeddings stay on disk until used.

        Raises:
            InputError: no index there, a newer format, or a missing or damaged file.
        """
        root = Path(path)
        manifest = _read_manifest(root)
        try:
            return cls(root, manifest)
        except InputError:
            # A rebuild may have removed the arrays between our two reads: then index.json names others.
            newer = _read_manifest(root)
            if newer["version"] == manifest["version"]:
                raise
            return cls(root, newer)
        except (KeyError, TypeError) as error:
            raise damaged(root / MANIFEST, f"unexpected contents: {error!r}") from error

    def documents(self, ids: Sequence[int]) -> list[Document]:
        """Reads the documents of the given ids, in that order, and no others.

        Raises:
            InputError: an id is not in `[0, D)`.
        """
        wanted = [int(i) for i in ids]
        bad = next((i for i in wanted if not 0 <= i < len(self.titles)), None)
        if bad is not None:
            raise InputError(f"document id {bad} is not in the index; ids run from 0 to {len(self.titles) - 1}")
        if not wanted:
            return []
        rows = self._documents_table.take_offsets(sorted(set(wanted))).select(["row", "title", "text"]).to_arrow()
        found = {row["row"]: Document(row["title"], row["text"]) for row in rows.to_pylist()}
        return [found[i] for i in wanted]

    def all_documents(self) -> list[Document]:
        """Reads every document, by id."""
        return self.documents(range(len(self.titles)))

    def check_encoder(self, encoder: Encoder) -> None:
        """Refuses an encoder that did not build this index, for its vectors mean something else.

        Raises:
            InputError: the fingerprints differ; the message has both names and fingerprints.
        """
        if encoder.fingerprint != self.encoder_fingerprint:
            raise InputError(
                f"index {str(self.path)!r} was built with encoder {self.encoder_name!r} "
                f"(fingerprint {self.encoder_fingerprint}) but {encoder.name!r} (fingerprint {encoder.fingerprint}) "
                "was given; use the same encoder or build the index again"
            )

    def relations_read_as(self, inverse_text: str, encoder: Encoder) -> Tensor:
        """Relation embeddings `(2R, dim)` for a model that reads inverses as `inverse_text` and the relation's name."""
        if inverse_text == INVERSE_TEXT:
            return self.relation_embeddings
        direct = self.graph.num_relations
        inverse = encoder.encode(self.graph.relation_texts(inverse_text)[direct:])
        return torch.cat([self.relation_embeddings[:direct], inverse])

    def info(self) -> dict[str, Any]:
        """What `gfm index info` shows: counts, degrees, size, encoder and version, ready for JSON."""
        degree = np.bincount(self.graph.edge_index.numpy().ravel(), minlength=self.graph.num_entities)
        return {
            "path": str(self.path),
            "version": self.version,
            "format": self._manifest["format"],
            "created": self._manifest["created"],
            "source": self._manifest["source"],
            "encoder": dict(self._manifest["encoder"]),
            "config": dict(self._manifest["config"]),
            **self._manifest["counts"],
            "degree_mean": float(degree.mean()),
            "degree_median": float(np.median(degree)),
            "degree_max": int(degree.max()),
            "isolated_entities": int((degree == 0).sum()),
            "documents_without_mention": len(self.titles) - len(np.unique(self.mentions.indices)),
            "bytes_on_disk": bytes_on_disk(self.path),
        }

    @cached_property
    def _documents_table(self) -> Table:
        return open_table(self.path / "lance", "documents", int(self._manifest["tables"]["documents"]))

    def _open_graph(self) -> KnowledgeGraph:
        triples = self._shape["triples"]
        has_types = bool(self._manifest["entity_types"])
        return KnowledgeGraph(
            entity_names=self._names("entities", self._shape["entities"]),
            relation_names=self._names("relations", self._shape["relations"]),
            edge_index=self._tensor("edge_index", (2, triples)),
            edge_type=self._tensor("edge_type", (triples,)),
            entity_types=self._names("entity_types", self._shape["entities"]) if has_types else None,
        )

    def _open_mentions(self) -> csr_matrix:
        indptr = self._array("mention_indptr", (self._shape["entities"] + 1,))
        indices = self._array("mention_indices", (self._shape["mentions"],))
        data = np.ones(len(indices), dtype=np.float32)
        try:
            return csr_matrix((data, indices, indptr), shape=(self._shape["entities"], self._shape["documents"]))
        except ValueError as error:
            raise damaged(self._file("mention_indices.npy"), error) from error

    def _file(self, name: str) -> Path:
        return self.path / "arrays" / self.version / name

    def _names(self, name: str, count: int) -> list[str]:
        path = self._file(f"{name}.json")
        names = read_json(path)
        if not isinstance(names, list) or len(names) != count:
            raise damaged(path, f"it does not hold the {count} names that {MANIFEST} counts")
        return names

    def _array(self, name: str, shape: tuple[int, ...]) -> NDArray[Any]:
        path = self._file(f"{name}.npy")
        array = open_array(path)
        if array.shape != shape:
            raise damaged(path, f"its shape is {array.shape}, {MANIFEST} says {shape}")
        return array

    def _tensor(self, name: str, shape: tuple[int, ...]) -> Tensor:
        return torch.from_numpy(np.asarray(self._array(name, shape)))

    def __repr__(self) -> str:
        return f"KGIndex({str(self.path)!r}, {self.graph!r}, {len(self.titles)} documents)"


def _read_manifest(root: Path) -> dict[str, Any]:
    path = root / MANIFEST
    if not path.is_file():
        raise InputError(f"{str(root)!r} is not an index (it has no {MANIFEST}); make one with `gfm index build`")
    manifest = read_json(path)
    if not isinstance(manifest, dict) or not isinstance(manifest.get("format"), int):
        raise damaged(path, "it names no format")
    if manifest["format"] > FORMAT:
        raise InputError(
            f"index {str(root)!r} has format {manifest['format']}, this gfm reads up to {FORMAT}; upgrade gfm"
        )
    # The version becomes a folder name: nothing but the form that we write may pass.
    if not _VERSION.fullmatch(str(manifest.get("version"))):
        raise damaged(path, f"its version {manifest.get('version')!r} is not 32 hex digits")
    return manifest
