"""Readers and writers for graphs, documents, questions and extractions that lie in files."""

from __future__ import annotations

from gfm.kg.readers.documents import read_document_files
from gfm.kg.readers.gfmrag import GfmRagData, read_gfmrag, write_gfmrag
from gfm.kg.readers.openie import OpenIEReport, read_openie
from gfm.kg.readers.qa import read_documents, read_questions
from gfm.kg.readers.triples import read_rows, read_triples, write_triples

__all__ = [
    "GfmRagData",
    "OpenIEReport",
    "read_document_files",
    "read_documents",
    "read_gfmrag",
    "read_openie",
    "read_questions",
    "read_rows",
    "read_triples",
    "write_gfmrag",
    "write_triples",
]
