"""Which layout a folder or file has, and what an index is built from."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from gfm.errors import InputError
from gfm.kg.graph import KnowledgeGraph
from gfm.kg.readers import (
    OpenIEReport,
    read_document_files,
    read_documents,
    read_gfmrag,
    read_openie,
    read_triples,
)
from gfm.types import Document, Extraction

TABLES, OLD_GRAPH = "nodes.csv", "kg.txt"
DOCUMENT_FILES = (".json", ".jsonl", ".txt", ".md")


@dataclass(frozen=True)
class Source:
    """What an index is built from: documents, with records of their extraction or without, or a given graph."""

    layout: str
    documents: list[Document] = field(default_factory=list)
    extractions: list[Extraction] | None = None
    graph: KnowledgeGraph | None = None
    mentions: list[tuple[str, str]] | None = None
    report: OpenIEReport | None = None

    def reader_counts(self) -> dict[str, int]:
        """How many items the reader could not use, for `KGIndex.build`."""
        if self.report is None:
            return {}
        return {
            "malformed_triples": self.report.malformed_triples,
            "malformed_entities": self.report.malformed_entities,
        }


def read_source(path: str | Path, records: str | Path | None = None, *, extract: bool = False) -> Source:
    """Reads documents, GFM-RAG's files, or plain triples, by what it finds.

    Args:
        path: a folder (`raw/documents.json`; `nodes.csv` or `kg.txt`, also below `processed/stage1`; `graph.tsv` or
            `train.tsv`; else its `.txt` and `.md` files), or a file: documents as `.json`, `.jsonl`, `.txt`, `.md`,
            triples as `.tsv`, `.csv`.
        records: OpenIE records of the documents as JSONL; by default the only `openie*.jsonl` in the folder.
        extract: the documents will be extracted anew, so records that lie beside them are left alone.

    Raises:
        InputError: nothing there, no layout fits, or the records cannot be told.
    """
    path = Path(path)
    source = _read(path)
    if source.graph is not None:
        if records is not None:
            raise InputError(
                f"--records {str(records)!r} does not go with {str(path)!r}, which holds a graph; leave it out"
            )
        return source
    if records is None and not extract:
        records = _only_records(path)
    if records is None:
        return source
    extractions, report = read_openie(records)
    return Source(source.layout, source.documents, extractions, report=report)


def _read(path: Path) -> Source:
    if path.is_file():
        if path.suffix.lower() in DOCUMENT_FILES:
            return Source("documents", read_document_files(path))
        return Source("triples", graph=read_triples(path))
    if not path.is_dir():
        raise InputError(f"source {str(path)!r} does not exist; give a folder, documents, or a file of triples")
    for folder in (path, path / "processed" / "stage1"):
        if (folder / TABLES).is_file() or (folder / OLD_GRAPH).is_file():
            data = read_gfmrag(folder)
            return Source("gfmrag", data.documents, graph=data.graph, mentions=data.mentions)
    if any((path / name).is_file() for name in ("raw/documents.json", "documents.json")):
        return Source("raw", read_documents(path))
    for name in ("graph.tsv", "train.tsv"):
        if (path / name).is_file():
            return Source("triples", graph=read_triples(path / name))
    documents = read_document_files(path)
    if documents:
        return Source("documents", documents)
    raise InputError(
        f"source {str(path)!r} has no layout known here; it needs raw/documents.json, .txt or .md files, nodes.csv "
        "with relations.csv and edges.csv, kg.txt with document2entities.json, or graph.tsv"
    )


def _only_records(path: Path) -> Path | None:
    found = sorted(path.glob("openie*.jsonl")) if path.is_dir() else []
    if len(found) > 1:
        names = ", ".join(file.name for file in found)
        raise InputError(f"source {str(path)!r} has several record files ({names}); name one with --records")
    return found[0] if found else None
