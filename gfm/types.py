"""Plain records that every part of the library exchanges: frozen, typed, free of behaviour."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

INVERSE_TEXT = "inverse of "
"""What stands before a relation's name where its inverse is embedded."""


class NamedEncoder(Protocol):
    """Which sentence encoder it is: what an index or a checkpoint writes down of the one that made it."""

    @property
    def name(self) -> str:
        """How the user named the model."""

    @property
    def fingerprint(self) -> str:
        """Hash of the model's contents."""

    @property
    def dim(self) -> int:
        """Length of an embedding."""


@dataclass(frozen=True)
class Document:
    """A passage of a corpus; the title is its identity within one index."""

    title: str
    text: str


@dataclass(frozen=True)
class Extraction:
    """What an extractor found in one document, by name.

    Attributes:
        passage: the document's title.
        entities: names as the text writes them.
        triples: `(head, relation, tail)`.
        types: one per entity ("" where unknown), or empty.
        sentences: for each triple the sentence it stands in ("" where unknown), or empty.
        aliases: `(alias, name)`: another way in which the document calls one of its entities.
    """

    passage: str
    entities: tuple[str, ...]
    triples: tuple[tuple[str, str, str], ...]
    types: tuple[str, ...] = ()
    sentences: tuple[str, ...] = ()
    aliases: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Question:
    """A question with what is known about its answer; only `id` and `question` are always there."""

    id: str
    question: str
    answer: str = ""
    answer_aliases: tuple[str, ...] = ()
    supporting_documents: tuple[str, ...] = ()
    num_hops: int | None = None


@dataclass(frozen=True)
class Seed:
    """An entity where propagation starts. `reason` is `"exact"`, `"normalised"`, `"alias"` or `"similar"`."""

    entity: int
    name: str
    reason: str
    score: float


@dataclass(frozen=True)
class SelectedEntity:
    """An entity of the retrieved subgraph with its gate in [0, 1] (noise-free Eq. 11)."""

    entity: int
    name: str
    type: str
    gate: float


@dataclass(frozen=True)
class Edge:
    """A direct triple of the retrieved subgraph, by name."""

    head: str
    relation: str
    tail: str


@dataclass(frozen=True)
class ScoredDocument:
    """A document with its ranking value (Eq. 20; higher is better, no unit)."""

    title: str
    text: str
    score: float


@dataclass(frozen=True)
class Path:
    """A simple relational path (Eq. 21).

    `forward[i]` says whether hop `i` runs along its triple (`entities[i]` is the head) or against it.
    `entity_ids` are graph ids in the same order as `entities`.
    """

    entities: tuple[str, ...]
    relations: tuple[str, ...]
    forward: tuple[bool, ...]
    score: float
    entity_ids: tuple[int, ...] = ()
    entity_types: tuple[str, ...] = ()

    def text(self) -> str:
        """The path in one line: `A --r--> B <--s-- C`."""
        parts = [self.entities[0]]
        for relation, forward, entity in zip(self.relations, self.forward, self.entities[1:], strict=True):
            parts += [f"--{relation}-->" if forward else f"<--{relation}--", entity]
        return " ".join(parts)


@dataclass(frozen=True)
class Prompt:
    """A path-aware prompt. `tokens` is counted by the counter that built it."""

    system: str
    user: str
    tokens: int
    documents: tuple[str, ...] = ()
    num_paths: int = 0

    @property
    def messages(self) -> list[dict[str, str]]:
        """The prompt as chat messages."""
        return [{"role": "system", "content": self.system}, {"role": "user", "content": self.user}]


@dataclass(frozen=True)
class Retrieval:
    """Evidence for one question: seeds, subgraph, documents and paths, best first.

    Attributes:
        entities: the selected set `V_q`, by falling gate.
        edges: the direct triples induced by `entities`.
        timings: seconds per step.
        notes: one line for everything the caller should know (for example seeds by similarity only).
    """

    question: str
    seeds: tuple[Seed, ...]
    entities: tuple[SelectedEntity, ...]
    edges: tuple[Edge, ...]
    documents: tuple[ScoredDocument, ...]
    paths: tuple[Path, ...]
    timings: dict[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def prompt(self, budget_tokens: int = 4000) -> Prompt:
        """Renders the evidence as a path-aware prompt of at most `budget_tokens` tokens."""
        # The one reference upwards in the library: a convenience whose logic lives with generation.
        from gfm.generation.prompt import build_prompt

        return build_prompt(self, budget_tokens)

    def to_dict(self) -> dict[str, Any]:
        """The retrieval as plain lists and dicts, ready for JSON."""
        return asdict(self)
