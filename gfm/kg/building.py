"""From a source on disk to an index: reads, chooses extractor and encoder by the settings, writes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from gfm.config import BuildConfig, ExtractionConfig, LLMConfig, SpacyConfig
from gfm.errors import InputError
from gfm.kg.changes import Changes
from gfm.kg.extraction.base import Extractor, Failure
from gfm.kg.given import GivenGraph
from gfm.kg.manifest import read_manifest
from gfm.kg.sources import Source, read_source
from gfm.kg.writer import BuildOptions, add_documents, build_index, index_graph, update_documents
from gfm.text import encoder as encoders
from gfm.types import Document, Extraction


class Built(NamedTuple):
    """What was read and what it changed; a given graph changes as a whole."""

    source: Source
    changes: Changes | None


def build_from(
    path: Path,
    out: Path,
    cfg: BuildConfig,
    *,
    records: Path | None = None,
    tables: str | None = None,
    progress: bool = False,
) -> Built:
    """Builds an index in `out` from the documents or the graph at `path`.

    Args:
        path: see `gfm.kg.sources.read_source`.
        out: a new folder, or an index to bring up to date with the source.
        cfg: settings; an index keeps them.
        records: OpenIE records in place of an extraction.
        tables: URI for the tables.
        progress: show bars on stderr.

    Raises:
        InputError: the source cannot be read, or as `gfm.kg.writer.build_index`.
    """
    chosen = cfg.extraction.extractor
    source = read_source(path, records, extract=chosen not in (None, "records"))
    encoder = encoders.TextEncoder(cfg.encoder.name, device=cfg.encoder.device, dtype=cfg.encoder.dtype)
    if source.graph is not None:
        if chosen is not None:
            raise InputError(f"extraction.extractor is {chosen!r} but {str(path)!r} holds a graph; leave it out")
        options = BuildOptions(cfg.graph, {}, {}, tables, progress)
        index_graph(out, GivenGraph(source.graph, source.mentions or ()), source.documents, encoder, options)
        return Built(source, None)
    extraction = cfg.extraction
    extraction.extractor = chosen or ("spacy" if source.extractions is None else "records")
    extractor = make_extractor(extraction, source, path, every=True)
    options = BuildOptions(cfg.graph, _kept(extraction), source.reader_counts(), tables, progress)
    return Built(source, build_index(out, source.documents, _Meanwhile(extractor, encoder), encoder, options))


def change_from(
    index: Path, path: Path, *, records: Path | None = None, may_replace: bool, progress: bool = False
) -> Built:
    """Adds the documents at `path` to an index, extracted as its other documents were.

    Args:
        index: its folder.
        path: documents, not a graph.
        records: their OpenIE records, for an index that was built from records.
        may_replace: documents with the same titles may be replaced.
        progress: show bars on stderr.
    """
    settings = read_manifest(index)["extraction"]
    extraction = ExtractionConfig(
        settings.get("extractor"), SpacyConfig(**settings.get("spacy", {})), LLMConfig(**settings.get("llm", {}))
    )
    if records is not None and extraction.extractor != "records":
        raise InputError(
            f"index {str(index)!r} was extracted by {extraction.extractor!r}; leave out --records, or build it again "
            "from records"
        )
    source = read_source(path, records, extract=extraction.extractor not in (None, "records"))
    if source.graph is not None:
        raise InputError(f"source {str(path)!r} holds a graph; give documents, or build an index from it")
    write = update_documents if may_replace else add_documents
    encoder = encoder_of(index)
    extractor = _Meanwhile(make_extractor(extraction, source, path, every=False), encoder)
    return Built(source, write(index, source.documents, extractor, encoder, progress=progress))


def make_extractor(cfg: ExtractionConfig, source: Source, path: Path, *, every: bool) -> Extractor:
    """The extractor that the settings name.

    Args:
        cfg: with an `extractor`.
        source: its records serve the extractor `records`.
        path: where the source came from, for messages.
        every: every record must belong to a document of the source.
    """
    if cfg.extractor == "spacy":
        from gfm.kg.extraction.spacy_extractor import SpacyExtractor

        return SpacyExtractor(cfg.spacy)
    if cfg.extractor == "llm":
        from gfm.kg.extraction.llm_extractor import LLMExtractor

        return LLMExtractor(cfg.llm)
    if source.extractions is None:
        raise InputError(
            f"source {str(path)!r} has no openie*.jsonl; give the extraction of its documents with --records FILE"
        )
    from gfm.kg.extraction.records import RecordsExtractor

    records = RecordsExtractor(source.extractions)
    if every:
        records.check({document.title for document in source.documents})
    return records


def encoder_of(index: Path) -> encoders.TextEncoder:
    """The encoder that an index was built with; nothing is loaded before it has something to embed."""
    return encoders.TextEncoder(read_manifest(index)["encoder"]["name"])


class _Meanwhile:
    """An extractor during whose work the encoder is loaded: whoever extracts a document will embed it."""

    def __init__(self, extractor: Extractor, encoder: encoders.TextEncoder) -> None:
        self.name, self.key, self.totals = extractor.name, extractor.key, extractor.totals
        self._extractor, self._encoder = extractor, encoder

    def extract(self, documents: Sequence[Document]) -> Iterator[Extraction | Failure]:
        self._encoder.prepare()
        return self._extractor.extract(documents)


def _kept(extraction: ExtractionConfig) -> dict[str, Any]:
    """The settings that a later update needs: those of the extractor that was used."""
    name = extraction.extractor
    return {"extractor": name, **({name: asdict(extraction)[name]} if name in ("spacy", "llm") else {})}
