"""Settings of an index: how documents become a graph."""

from __future__ import annotations

from dataclasses import dataclass

from gfm.config.checks import within


@dataclass
class IndexConfig:
    """How documents and their extractions become a graph."""

    title_edges: bool = True
    synonym_threshold: float = 0.85
    synonym_cap: int = 10

    def __post_init__(self) -> None:
        within("synonym_threshold", self.synonym_threshold, -1)  # above 1 links none
        within("synonym_cap", self.synonym_cap, 0)
