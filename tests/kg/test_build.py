from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from gfm.config import IndexConfig
from gfm.errors import InputError
from gfm.kg.build import BuiltGraph, build_graph
from gfm.kg.readers import read_documents, read_openie
from gfm.types import Document, Extraction
from tests.fakes import HashEncoder

PLAIN = IndexConfig(title_edges=False, synonym_threshold=1.1)
TITLES = IndexConfig(title_edges=True, synonym_threshold=1.1)


class AngleEncoder(HashEncoder):
    """Embeds a name as a unit vector at the angle (degrees) that a table gives."""

    def __init__(self, angles: dict[str, float]) -> None:
        super().__init__(2, "angles")
        self.angles = angles

    def encode(self, texts: Sequence[str], *, progress: bool = False) -> Tensor:
        angles = torch.tensor([self.angles[text] for text in texts]).deg2rad()
        return torch.stack([angles.cos(), angles.sin()], dim=1)


def documents(*titles: str) -> list[Document]:
    return [Document(title, f"text of {title}") for title in titles]


def build(titles: Sequence[str], *extractions: Extraction, config: IndexConfig = PLAIN) -> BuiltGraph:
    return build_graph(documents(*titles), extractions, HashEncoder(), config)


def mentioned(built: BuiltGraph, document: int) -> set[str]:
    return {built.graph.entity_names[i] for i in built.mentions[:, [document]].tocoo().row}


def test_spellings_with_one_key_are_one_entity_shown_in_the_most_frequent() -> None:
    built = build(
        ["A"],
        Extraction("A", ("NEW YORK", "new york", "New  York"), (("New York", "in", "USA"), ("New York", "has", "usa"))),
    )
    assert built.graph.entity_names == ["New York", "USA", "A"]
    assert built.counts["merged_spellings"] == 4


def test_among_equally_frequent_spellings_the_first_seen_wins() -> None:
    assert build(["A"], Extraction("A", ("b c", "B C"), ())).graph.entity_names[0] == "b c"


def test_a_repeated_triple_is_kept_once() -> None:
    triple = ("x", "likes", "y")
    built = build(["A", "B"], Extraction("A", (), (triple, triple)), Extraction("B", (), (("X", "likes ", "Y"),)))
    assert list(built.graph.triples()) == [triple]


def test_a_document_mentions_its_entities_those_of_its_triples_and_its_title() -> None:
    built = build(["A", "B"], Extraction("A", ("x",), (("y", "r", "z"),)), Extraction("B", ("x",), ()))
    assert mentioned(built, 0) == {"x", "y", "z", "A"}
    assert mentioned(built, 1) == {"x", "B"}
    assert built.mentions.dtype == np.float32
    assert set(built.mentions.data) == {1.0}


def test_a_document_without_extraction_has_its_title_alone() -> None:
    built = build(["Lonely"])
    assert mentioned(built, 0) == {"Lonely"}
    assert built.graph.num_edges == 0


@pytest.mark.parametrize(
    ("title", "entity", "meant"),
    [
        ("Publix (2)", "publix", "publix"),
        ("Hello Love (song)", "Hello Love", "Hello Love"),
        ("Hello Love (song)", "Hello Love (Song)", "Hello Love (Song)"),
        ("Hello Love (song)", "Love", "Hello Love (song)"),
        ("(song)", "Love", "(song)"),
    ],
)
def test_a_title_means_its_entity_with_or_without_the_parenthetical(title: str, entity: str, meant: str) -> None:
    built = build([title], Extraction(title, (entity,), ()))
    assert meant in mentioned(built, 0)
    assert built.graph.num_entities == (1 if entity == meant else 2)


@pytest.mark.parametrize("titles", [["Publix", "Publix (2)"], ["Publix (2)", "Publix"]])
def test_a_parenthetical_means_the_plain_title_whichever_comes_first(titles: list[str]) -> None:
    assert build(titles).graph.entity_names == ["Publix"]


def test_a_title_edge_joins_what_no_triple_of_the_document_joins() -> None:
    built = build(
        ["A", "B"],
        Extraction("A", ("x", "y", "z"), (("A", "r", "x"), ("y", "r", "A"))),
        Extraction("B", ("x", "y"), ()),
        config=TITLES,
    )
    edges = [triple for triple in built.graph.triples() if triple[1] == "mentions"]
    assert edges == [("A", "mentions", "z"), ("B", "mentions", "x"), ("B", "mentions", "y")]
    assert built.counts["title_triples"] == 3


def test_without_title_edges_there_are_none() -> None:
    assert build(["A"], Extraction("A", ("x",), ())).graph.num_edges == 0


def test_blank_names_and_relations_are_skipped_and_counted() -> None:
    built = build(["A"], Extraction("A", (" ", "x"), (("x", " ", "y"), ("", "r", "y"), ("x", "r", "y"))))
    assert list(built.graph.triples()) == [("x", "r", "y")]
    assert built.counts["skipped_blank_names"] == 3


def test_an_extraction_of_an_unknown_passage_is_refused_by_title() -> None:
    with pytest.raises(InputError, match="'Nowhere'"):
        build(["A"], Extraction("Nowhere", ("x",), ()))


@pytest.mark.parametrize("titles", [["A", "A"], ["A", "B", "A"]])
def test_a_title_given_twice_is_refused(titles: list[str]) -> None:
    with pytest.raises(InputError, match="two documents have the title 'A'"):
        build(titles)


def test_a_blank_title_is_refused() -> None:
    with pytest.raises(InputError, match="blank title"):
        build(["A", " "])


def test_synonyms_become_one_edge_per_unordered_pair() -> None:
    encoder = AngleEncoder({"car": 0, "auto": 10, "tree": 90, "T": 180})
    config = IndexConfig(title_edges=False, synonym_threshold=0.9)
    built = build_graph(documents("T"), [Extraction("T", ("tree", "car", "auto"), ())], encoder, config)
    assert list(built.graph.triples()) == [("car", "synonym of", "auto")]
    assert torch.equal(built.entity_embeddings, encoder.encode(list(built.graph.entity_names)))


def test_a_synonym_edge_does_not_repeat_an_extracted_one() -> None:
    encoder = AngleEncoder({"car": 0, "auto": 10, "T": 180})
    extraction = Extraction("T", (), (("car", "synonym of", "auto"),))
    built = build_graph(documents("T"), [extraction], encoder, IndexConfig(title_edges=False, synonym_threshold=0.9))
    assert list(built.graph.triples()) == [("car", "synonym of", "auto")]


def test_the_musique_sample_gives_a_connected_graph_of_every_document(shared_data: Path) -> None:
    folder = shared_data / "qa" / "musique100"
    found, _ = read_openie(folder / "openie_gpt35.jsonl")
    config = IndexConfig(synonym_cap=0)
    built = build_graph(read_documents(folder), found, HashEncoder(), config)
    names = {name for e in found for name in (*e.entities, *(n for h, _, t in e.triples for n in (h, t)))}
    assert 15_000 < built.graph.num_entities < len(names) + built.mentions.shape[1]
    assert built.mentions.shape[1] == 1890
    assert built.mentions.sum(axis=0).min() >= 1
    degree = torch.bincount(built.graph.edge_index.ravel(), minlength=built.graph.num_entities)
    assert int((degree == 0).sum()) == 0
