"""Which layout a folder or file has, and what an index is built from."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from gfm.errors import InputError
from gfm.kg.graph import KnowledgeGraph
from gfm.kg.readers import OpenIEReport, read_documents, read_gfmrag, read_openie, read_triples
from gfm.types import Document, Extraction

TABLES, OLD_GRAPH = "nodes.csv", "kg.txt"


@dataclass(frozen=True)
class Source:
    """What an index is built from: documents with extractions, or a given graph with documents and mentions."""

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


def read_source(path: str | Path, records: str | Path | None = None) -> Source:
    """Reads a raw question-answering layout with OpenIE records, GFM-RAG's files, or plain triples.

    Args:
        path: a folder (`raw/documents.json`, `nodes.csv` or `kg.txt`, also below `processed/stage1`; or `graph.tsv` /
            `train.tsv`), or a `.tsv` / `.csv` file of triples.
        records: OpenIE records as JSONL; by default the only `openie*.jsonl` in the folder.

    Raises:
        InputError: nothing there, no layout fits, or the records cannot be told.
    """
    path = Path(path)
    source = _read(path, records)
    if records is not None and source.extractions is None:
        raise InputError(
            f"--records {str(records)!r} does not go with {str(path)!r}, which holds a graph; leave it out"
        )
    return source


def _read(path: Path, records: str | Path | None) -> Source:
    if path.is_file():
        return Source("triples", graph=read_triples(path))
    if not path.is_dir():
        raise InputError(f"source {str(path)!r} does not exist; give a folder or a .tsv / .csv file of triples")
    for folder in (path, path / "processed" / "stage1"):
        if (folder / TABLES).is_file() or (folder / OLD_GRAPH).is_file():
            data = read_gfmrag(folder)
            return Source("gfmrag", data.documents, graph=data.graph, mentions=data.mentions)
    if any((path / name).is_file() for name in ("raw/documents.json", "documents.json")):
        extractions, report = read_openie(records or _only_records(path))
        return Source("raw", read_documents(path), extractions, report=report)
    for name in ("graph.tsv", "train.tsv"):
        if (path / name).is_file():
            return Source("triples", graph=read_triples(path / name))
    raise InputError(
        f"source {str(path)!r} has no layout known here; it needs raw/documents.json with openie*.jsonl, nodes.csv "
        "with relations.csv and edges.csv, kg.txt with document2entities.json, or graph.tsv"
    )


def _only_records(folder: Path) -> Path:
    found = sorted(folder.glob("openie*.jsonl"))
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(file.name for file in found)
        raise InputError(f"source {str(folder)!r} has several record files ({names}); name one with --records")
    raise InputError(
        f"source {str(folder)!r} has no openie*.jsonl; give the extraction of its documents with --records FILE"
    )
