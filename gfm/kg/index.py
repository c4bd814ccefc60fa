"""The index folder: a graph, its documents and their embeddings, opened by memory map."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
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
from gfm.kg.manifest import arrays_folder, other_encoder, read_manifest, tables_location
from gfm.kg.name_table import NameTable
from gfm.kg.storage import MANIFEST, bytes_on_disk, damaged, open_array, read_json
from gfm.kg.tables import Tables
from gfm.kg.vector_search import EXACT_UP_TO, VectorSearch, compare_all
from gfm.kg.vectors import ENTITY
from gfm.types import INVERSE_TEXT, Document, Extraction

if TYPE_CHECKING:
    from gfm.kg.extraction.base import Extractor


class KGIndex:
    """An index on disk at one version. Make one with `build` or `open`.

    Layout of the folder: `index.json` names the version and is replaced last; `lance/` (or the URI that it
    names) holds the truth as LanceDB tables: documents, extractions or given triples, embeddings;
    `arrays/<version>/` holds what is derived from them, which is all that a reader opens. A write that dies
    therefore leaves the previous version in force, and a reader goes on while a writer works.

    With V entities, R direct relations, D documents and embeddings of length `dim`:

    Attributes:
        path: the folder.
        graph: the knowledge graph.
        titles: D titles, by document id, sorted.
        mentions: `(V, D)` float32 CSR of 0 and 1: the entity occurs in the document.
        entity_document_counts: `(V,)` int64, documents that mention each entity.
        entity_embeddings: `(V, dim)` float32.
        relation_embeddings: `(2R, dim)` float32 of `graph.relation_texts()`.
        document_embeddings: `(D, dim)` float32 of title and text.
        name_table: finds entities by name or alias.
        aliases: `(alias, entity)`: other names that documents give to entities.
        document_nodes: `(D,)` int64, the entity that stands for each document; None in a graph without them.

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
        self.name_table, self.aliases = self._open_names()
        nodes = bool(manifest["config"]["document_nodes"]) and manifest["source"] == "extractions"
        self.document_nodes = self._array("document_nodes", (self._shape["documents"],)) if nodes else None
        self._text_offsets = self._array("text_offsets", (self._shape["documents"] + 1,))
        self._texts = self._array("texts", (int(self._text_offsets[-1]),))

    @classmethod
    def build(
        cls,
        out: str | Path,
        encoder: Encoder,
        *,
        documents: Sequence[Document] = (),
        extractor: Extractor | None = None,
        extractions: Iterable[Extraction] | None = None,
        graph: KnowledgeGraph | None = None,
        mentions: Iterable[tuple[str, str]] | None = None,
        config: IndexConfig | None = None,
        reader_counts: Mapping[str, int] | None = None,
        progress: bool = False,
    ) -> KGIndex:
        """Builds an index, or a new version of one, and opens it; `gfm.kg.writer` has the updates.

        Args:
            out: a new folder, or that of an index, which stays in force until the new version is complete.
            encoder: embeds names, relations and documents; its fingerprint is stored.
            documents: passages with unique titles.
            extractor: finds entities and triples in them.
            extractions: what was found in them, in place of an extractor.
            graph: a given graph, stored as it is; excludes both.
            mentions: `(entity name, title)` pairs for a given graph.
            config: how extractions become a graph.
            reader_counts: counts of the reader (for example malformed triples) to show in `info`.
            progress: show bars on stderr.

        Raises:
            InputError: nothing to index, a name that does not fit, or an `out` that is not ours to write.
        """
        from gfm.kg.extraction.records import RecordsExtractor
        from gfm.kg.given import GivenGraph
        from gfm.kg.writer import BuildOptions, build_index, index_graph

        root, options = Path(out), BuildOptions(config or IndexConfig(), {}, reader_counts or {}, None, progress)
        if graph is not None:
            if extractions is not None or extractor is not None:
                raise InputError("both extractions and a graph were given; the graph of an index has one source")
            index_graph(root, GivenGraph(graph, list(mentions or ())), documents, encoder, options)
            return cls.open(root)
        if mentions is not None:
            raise InputError("mentions were given without a graph; extractions bring their own")
        if extractions is not None:
            records = RecordsExtractor(extractions)
            records.check({document.title for document in documents})
            extractor = records
        build_index(root, documents, extractor, encoder, options)
        return cls.open(root)

    @classmethod
    def open(cls, path: str | Path) -> KGIndex:
        """Opens the version that `index.json` names; texts and embeddings stay on disk until used.

        Raises:
            InputError: no index there, a newer format, or a missing or damaged file.
        """
        root = Path(path)
        manifest = read_manifest(root)
        try:
            return cls(root, manifest)
        except InputError:
            # A rebuild may have removed the arrays between our two reads: then index.json names others.
            newer = read_manifest(root)
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
        spans = ((i, int(self._text_offsets[i]), int(self._text_offsets[i + 1])) for i in wanted)
        return [Document(self.titles[i], self._texts[a:b].tobytes().decode("utf-8")) for i, a, b in spans]

    def all_documents(self) -> list[Document]:
        """Reads every document, by id."""
        return self.documents(range(len(self.titles)))

    def check_encoder(self, encoder: Encoder) -> None:
        """Refuses an encoder that did not build this index, for its vectors mean something else.

        Raises:
            InputError: the fingerprints differ; the message has both names and fingerprints.
        """
        if encoder.fingerprint != self.encoder_fingerprint:
            raise other_encoder(self.path, self._manifest, encoder)

    def relations_read_as(self, inverse_text: str, encoder: Encoder) -> Tensor:
        """Relation embeddings `(2R, dim)` for a model that reads inverses as `inverse_text` and the relation's name."""
        if inverse_text == INVERSE_TEXT:
            return self.relation_embeddings
        direct = self.graph.num_relations
        inverse = encoder.encode(self.graph.relation_texts(inverse_text)[direct:])
        return torch.cat([self.relation_embeddings[:direct], inverse])

    def nearest_entities(self, vector: Tensor, k: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The k entities whose embeddings are nearest to a unit vector `(dim,)`, with their cosines, best first."""
        return self._search(vector, k)

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
            "tables": tables_location(self.path, self._manifest),
            "config": dict(self._manifest["config"]),
            "extraction": dict(self._manifest["extraction"]),
            **self._manifest["counts"],
            **({"totals": self._manifest["totals"]} if self._manifest["totals"] else {}),
            "degree_mean": round(float(degree.mean()), 2),
            "degree_median": float(np.median(degree)),
            "degree_max": int(degree.max()),
            "isolated_entities": int((degree == 0).sum()),
            "documents_without_mention": len(self.titles) - len(np.unique(self.mentions.indices)),
            "bytes_on_disk": bytes_on_disk(self.path),
            "seconds": dict(self._manifest["seconds"]),
        }

    @cached_property
    def _search(self) -> Callable[[Tensor, int], tuple[NDArray[np.int64], NDArray[np.float32]]]:
        if self.graph.num_entities <= EXACT_UP_TO:
            return partial(compare_all, self.entity_embeddings)
        table = Tables(tables_location(self.path, self._manifest), self.encoder_fingerprint).vector_table(ENTITY)
        return VectorSearch(table, self.graph.entity_names, self.name_table, self.entity_embeddings)

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

    def _open_names(self) -> tuple[NameTable, list[tuple[str, int]]]:
        aliases = [(alias, int(entity)) for alias, entity in read_json(self._file("aliases.json"))]
        folder = arrays_folder(self.path, self._manifest)
        arrays = {file.stem.removeprefix("names_"): open_array(file) for file in folder.glob("names_*.npy")}
        try:
            return NameTable.from_arrays(arrays), aliases
        except (KeyError, ValueError) as error:
            raise damaged(self._file("names_*.npy"), error) from error

    def _file(self, name: str) -> Path:
        return arrays_folder(self.path, self._manifest) / name

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
