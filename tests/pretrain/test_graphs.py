"""The stage's graphs: prepared once, domains per graph or entity, clear errors for what cannot be trained on."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from gfm.config import GraphConfig, PretrainConfig
from gfm.errors import InputError
from pretrain.data import domain_means, open_graph, prepare_graph
from pretrain.graphs import open_graphs
from tests.fakes import HashEncoder

ENCODER = HashEncoder()


class Counting(HashEncoder):
    """Counts the texts that it embeds."""

    texts = 0

    def encode(self, texts, *, progress=False):
        Counting.texts += len(texts)
        return super().encode(texts)


def folder(tmp_path: Path, name: str = "kg", **files: str) -> Path:
    path = tmp_path / name
    path.mkdir(parents=True, exist_ok=True)
    for stem, text in ({"train": "a\tr\tb\nb\ts\tc\n"} | files).items():
        (path / f"{stem}.tsv").write_text(text, encoding="utf-8")
    return path


def test_splits_share_one_numbering_and_only_train_is_the_graph(tmp_path: Path) -> None:
    path = folder(tmp_path, valid="c\tr\ta\n", test="a\tt\td\n")
    graph = open_graph(prepare_graph(GraphConfig(str(path)), ENCODER, False), "kg", "valid")
    assert (graph.num_entities, graph.num_relations) == (4, 3)
    assert (len(graph.train), len(graph.known), len(graph.held_out)) == (2, 4, 1)
    assert graph.relation_embeddings.shape == (6, ENCODER.dim)


def test_a_prepared_graph_is_found_again_until_a_file_changes(tmp_path: Path) -> None:
    path, encoder = folder(tmp_path), Counting()
    first = prepare_graph(GraphConfig(str(path)), encoder, False)
    done = Counting.texts
    assert prepare_graph(GraphConfig(str(path)), encoder, False).folder == first.folder and Counting.texts == done
    folder(tmp_path, train="a\tr\tb\n")
    assert prepare_graph(GraphConfig(str(path)), encoder, False).folder != first.folder and Counting.texts > done


def test_domains_are_the_graphs_or_an_entitys_own_and_means_are_over_names(tmp_path: Path) -> None:
    one = folder(tmp_path, "one", entity_domains="c\tlaw\n\n")
    two = folder(tmp_path, "two", train="x\tr\ty\n")
    stored = [
        prepare_graph(GraphConfig(str(path), domain=domain), ENCODER, True)
        for path, domain in ((one, "art"), (two, "law"))
    ]
    names, means = domain_means(stored)
    assert names == ["art", "law"]
    want = torch.stack([ENCODER.encode(["a", "b"]).mean(0), ENCODER.encode(["c", "x", "y"]).mean(0)])
    torch.testing.assert_close(means, want)
    graph = open_graph(stored[0], "one", "valid", None, {"art": 0, "law": 1})
    assert graph.entity_domain is not None and graph.entity_domain.tolist() == [0, 0, 1]


@pytest.mark.parametrize("line", ["nobody\tlaw", "c", "c\t", "\tlaw"])
def test_a_line_that_names_no_entity_or_no_domain_is_refused_with_its_number(tmp_path: Path, line: str) -> None:
    path = folder(tmp_path, entity_domains=f"a\tlaw\n{line}\n")
    with pytest.raises(InputError, match=r"entity_domains\.tsv, line 2: "):
        prepare_graph(GraphConfig(str(path), domain="art"), ENCODER, True)


def test_a_folder_without_triples_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no train\.tsv"):
        prepare_graph(GraphConfig(str(tmp_path)), ENCODER, False)
    with pytest.raises(InputError, match="holds no triple"):
        prepare_graph(GraphConfig(str(folder(tmp_path, train=""))), ENCODER, False)


def test_two_graphs_of_one_name_are_refused(tmp_path: Path) -> None:
    path = str(folder(tmp_path))
    with pytest.raises(InputError, match="two graphs are called 'kg'"):
        open_graphs(PretrainConfig(graphs=[GraphConfig(path), GraphConfig(path)]), ENCODER, 8)


def test_phase_two_with_one_domain_is_refused(tmp_path: Path) -> None:
    cfg = PretrainConfig(phase=2, checkpoint="x", graphs=[GraphConfig(str(folder(tmp_path)), domain="art")])
    with pytest.raises(InputError, match="all graphs have domain 'art'"):
        open_graphs(cfg, ENCODER, 8)


def test_graphs_without_weight_are_refused(tmp_path: Path) -> None:
    cfg = PretrainConfig(graphs=[GraphConfig(str(folder(tmp_path)), weight=0)])
    with pytest.raises(InputError, match="weight"):
        open_graphs(cfg, ENCODER, 8)


def test_only_graphs_with_something_to_rank_are_ranked(tmp_path: Path) -> None:
    with_valid, without = folder(tmp_path, "a", valid="c\tr\ta\n"), folder(tmp_path, "b", train="x\tr\ty\n")
    unseen = folder(tmp_path, "c", test="a\tr\tc\n")
    cfg = PretrainConfig(
        graphs=[GraphConfig(str(with_valid)), GraphConfig(str(without))], evaluate=[GraphConfig(str(unseen))]
    )
    graphs = open_graphs(cfg, ENCODER, 8)
    assert graphs.labels == ["val/a", "val/b", "test/c"]
    assert (graphs.ranked, graphs.ranked_in_training) == ([0, 2], [0])
    assert [graphs.store[number].name for number in range(3)] == graphs.labels


def test_what_the_arrays_depend_on_decides_which_are_found(tmp_path: Path) -> None:
    one, two = folder(tmp_path, "one"), folder(tmp_path, "two")
    plain = prepare_graph(GraphConfig(str(one)), ENCODER, False)
    assert prepare_graph(GraphConfig(str(two)), ENCODER, False).folder == plain.folder
    half = HashEncoder()
    half.dtype = "bfloat16"
    assert prepare_graph(GraphConfig(str(one)), half, False).folder != plain.folder
    other = prepare_graph(GraphConfig(str(one)), ENCODER, False, "inverse_")
    assert torch.equal(other.array("relation_embeddings")[-1], ENCODER.encode(["inverse_s"])[0])
    domains = [prepare_graph(GraphConfig(str(path)), ENCODER, True).facts["domains"] for path in (one, two)]
    assert domains == [["one"], ["two"]]  # of equal files, by their folders' names
