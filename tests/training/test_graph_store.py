"""Graphs on disk and in memory: made once, opened by memory map, at most so many at a time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from gfm.errors import InputError
from gfm.training.graph_store import GraphStore, store_graph
from gfm.training.graphs import CompletionGraph
from gfm.training.sampling import Batch
from pretrain.module import batches_from
from tests.training.graphs import completion_graph


def made(calls: list[int]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    calls.append(1)
    return {"entities": 3}, {"train": torch.tensor([[0, 0, 1]]), "none": torch.empty(0, 3)}


def test_a_graph_is_made_once_and_comes_back(tmp_path: Path) -> None:
    calls: list[int] = []
    for _ in range(2):
        stored = store_graph(tmp_path / "graphs" / "abc", lambda: made(calls))
    assert len(calls) == 1 and stored.facts == {"entities": 3}
    assert stored.array("train").tolist() == [[0, 0, 1]] and stored.array("none").shape == (0, 3)


def test_a_graph_that_fails_to_be_made_leaves_nothing_behind(tmp_path: Path) -> None:
    def fails() -> tuple[dict[str, Any], dict[str, Tensor]]:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        store_graph(tmp_path / "abc", fails)
    assert store_graph(tmp_path / "abc", lambda: made([])).facts == {"entities": 3}


@pytest.mark.parametrize("name", ["train.npy", "graph.json", "SHA256SUMS", "more.npy"])
@pytest.mark.parametrize("damage", ["gone", "cut", "folder"])
def test_a_damaged_graph_is_made_anew(tmp_path: Path, name: str, damage: str) -> None:
    folder = store_graph(tmp_path / "abc", lambda: made([])).folder
    content = (folder / name).read_bytes() if (folder / name).exists() else b"more"
    (folder / name).unlink(missing_ok=True)
    if damage == "folder":
        (folder / name).mkdir()
    elif damage == "cut" or name == "more.npy":
        (folder / name).write_bytes(content[: len(content) // 2])
    with pytest.warns(UserWarning, match="abc.*is damaged and is made anew"):
        stored = store_graph(folder, lambda: made([]))
    assert stored.facts == {"entities": 3} and stored.array("train").tolist() == [[0, 0, 1]]
    assert not stored.has("more")


def test_a_file_where_a_graph_belongs_and_a_half_made_one_are_removed(tmp_path: Path) -> None:
    (tmp_path / "abc").write_text("no folder")
    (tmp_path / "abc.partial").write_text("no folder")
    with pytest.warns(UserWarning, match="made anew"):
        assert store_graph(tmp_path / "abc", lambda: made([])).facts == {"entities": 3}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["abc", "abc.lock"]


def test_a_cache_that_cannot_be_written_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(InputError, match=r"cannot hold prepared graphs.*GFM_CACHE"):
        store_graph(tmp_path / "file" / "abc", lambda: made([]))


def test_processes_that_want_the_same_graph_wait_for_the_one_that_makes_it(tmp_path: Path) -> None:
    calls: list[int] = []
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: store_graph(tmp_path / "abc", lambda: made(calls)).facts, range(8)))
    assert len(calls) == 1 and found == [{"entities": 3}] * 8


def test_a_store_opens_what_is_needed_and_lets_go_of_the_rest() -> None:
    opened: list[int] = []

    def opener(number: int) -> CompletionGraph:
        opened.append(number)
        return completion_graph([(0, 0, 1)], 2, 1, name=str(number))

    store = GraphStore([lambda n=n: opener(n) for n in range(4)], limit=1)  # type: ignore[misc]
    assert len(store) == 4
    assert [store[number].name for number in (0, 0, 1, 2, 0)] == ["0", "0", "1", "2", "0"]
    assert opened == [0, 1, 2]  # two beside the limit, for graphs that are read ahead
    assert [store[number].name for number in (3, 1, 2, 0)] == ["3", "1", "2", "0"]
    assert opened == [0, 1, 2, 3, 0]


def test_what_is_read_ahead_is_there_when_its_turn_comes() -> None:
    opened: list[int] = []

    def opener(number: int) -> CompletionGraph:
        opened.append(number)
        return completion_graph([(0, 0, 1)], 2, 1, name=str(number))

    class Sampler:
        def batches(self, start: int) -> Iterator[Batch]:
            yield from (Batch(step, graph, torch.tensor([0])) for step, graph in enumerate([0, 1, 2, 2, 3, 4, 0, 1, 0]))

    store = GraphStore([lambda n=n: opener(n) for n in range(5)], limit=1)  # type: ignore[misc]
    stream = batches_from(Sampler(), store, 0)  # type: ignore[arg-type]
    batch = next(stream)
    for fetched in stream:  # the engine fetches a batch before it trains on the one before
        assert store[batch.graph].name == str(batch.graph)
        batch = fetched
    assert opened == [0, 1, 2, 3, 4, 0, 1]


def test_reading_ahead_happens_in_the_background() -> None:
    gate = threading.Event()

    def slow() -> CompletionGraph:
        assert gate.wait(10)
        return completion_graph([(0, 0, 1)], 2, 1, name="slow")

    store = GraphStore([slow])
    store.read_ahead(0)  # returns although the graph is not there
    gate.set()
    assert store[0].name == "slow"


def test_an_error_while_reading_reaches_the_one_who_asks() -> None:
    def broken() -> CompletionGraph:
        raise OSError("disk gone")

    store = GraphStore([broken])
    store.read_ahead(0)
    with pytest.raises(OSError, match="disk gone"):
        store[0]
