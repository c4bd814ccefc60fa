"""Extraction without a language model: names and dependency paths, as spaCy parses them."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from gfm.config import SpacyConfig
from gfm.errors import InputError
from gfm.kg.extraction.base import Failure, content_key
from gfm.kg.extraction.mentions import mentions_of, topic_of
from gfm.kg.extraction.relations import relations_of
from gfm.kg.extraction.segments import segments
from gfm.kg.extraction.worker_pool import in_processes
from gfm.types import Document, Extraction

if TYPE_CHECKING:
    from spacy.language import Language

RULES = 1
"""Raised whenever the rules of extraction change, so that stored extractions are made again."""

_SEGMENT = 10_000  # characters parsed at once: bounds memory, and the damage of text without sentences
_SENTENCE = 500


class SpacyExtractor:
    """Names, noun phrases and relations from spaCy's English pipeline, offline and on the CPU.

    Documents are parsed one by one, so the extraction of one does not depend on those beside it, nor on the number of
    processes.

    Args:
        config: model and processes; nothing is loaded before the first document.
    """

    name = "spacy"

    def __init__(self, config: SpacyConfig | None = None) -> None:
        self._config = config or SpacyConfig()
        self._fingerprint = content_key(
            str(RULES), self._config.model, _installed("spacy"), _installed(self._config.model)
        )

    def key(self, document: Document) -> str:
        """Changes with the document, the rules, the model and spaCy's version."""
        return content_key("spacy", self._fingerprint, document.title, document.text)

    def extract(self, documents: Sequence[Document]) -> Iterator[Extraction | Failure]:
        """Yields the extractions as they are done."""
        _check_installed(self._config.model)
        if self._config.processes == 1:
            extract = load(self._config.model)
            for document in documents:
                yield extract(document)
        else:
            yield from in_processes(load, self._config.model, documents, self._config.processes)

    def totals(self) -> Mapping[str, float]:
        """It costs nothing."""
        return {}


def load(model: str) -> Callable[[Document], Extraction]:
    """Loads a model and returns what extracts a document with it."""
    try:
        with _without_torch(model):
            import spacy

            pipeline = spacy.load(model, exclude=["textcat"])
    except (OSError, ValueError, ImportError) as error:
        reason = str(error).strip().split("\n")[0]
        raise InputError(f"spaCy model {model!r} cannot be loaded ({reason}); install it or name another") from error
    return lambda document: extract_document(pipeline, document)


def extract_document(pipeline: Language, document: Document) -> Extraction:
    """What one document says, with the sentence of every triple."""
    topic = topic_of(document.title)
    kinds: dict[str, str] = {document.title: ""}
    triples: dict[tuple[str, str, str], str] = {}
    for segment in segments(document.text, _SEGMENT):
        for sentence in pipeline(segment).sents:
            mentions = mentions_of(sentence, topic)
            for mention in mentions:
                kinds[mention.name] = kinds.get(mention.name) or mention.kind
            text = " ".join(sentence.text.split())[:_SENTENCE]
            for head, relation, tail in relations_of(mentions):
                triples.setdefault((head.name, relation, tail.name), text)
    aliases = {alias: name for alias, name in topic.aliases.items() if name in kinds}
    return Extraction(
        document.title,
        tuple(kinds),
        tuple(triples),
        types=tuple(kinds.values()),
        sentences=tuple(triples.values()),
        aliases=tuple(aliases.items()),
    )


@contextmanager
def _without_torch(model: str) -> Iterator[None]:
    """Hides torch, which spaCy would load with itself, from models that do not use it.

    Of the two seconds after which a process can extract, torch takes more than one.
    """
    configs = list(_folder(model).rglob("config.cfg"))
    uses = any(
        word in file.read_text(encoding="utf-8").lower() for file in configs for word in ("torch", "transformer")
    )
    if "torch" in sys.modules or uses or not configs:
        yield
        return
    sys.modules["torch"] = None  # type: ignore[assignment]  # importing it now fails as if it were not installed
    try:
        yield
    finally:
        del sys.modules["torch"]


def _folder(model: str) -> Path:
    """Where a model's files are: a folder itself, or an installed package."""
    found = None if Path(model).is_dir() else importlib.util.find_spec(model)
    return Path(model) if found is None or found.origin is None else Path(found.origin).parent


def _installed(package: str) -> str:
    """The version of an installed package, without importing it; empty for a folder or what is not there."""
    try:
        return version(package.replace("_", "-"))
    except (PackageNotFoundError, ValueError):
        return ""


def _check_installed(model: str) -> None:
    if importlib.util.find_spec("spacy") is None:
        raise InputError('spaCy is not installed; run `pip install "gfm[offline]"`, or use --extractor llm')
    if not Path(model).is_dir() and (not model.isidentifier() or importlib.util.find_spec(model) is None):
        raise InputError(
            f'spaCy model {model!r} is not installed; run `pip install "gfm[offline]"`, or name an installed one as '
            "extraction.spacy.model"
        )
