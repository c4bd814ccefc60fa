"""Training graphs as folders of arrays that open by memory map, and how many of them are held at once."""

from __future__ import annotations

import json
import tempfile
import warnings
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock
from torch import Tensor

from gfm.errors import InputError
from gfm.files import is_sealed, remove, replace_folder, seal
from gfm.training.graphs import CompletionGraph

FORMAT = 3
_FACTS = "graph.json"
AHEAD = 2
"""Graphs beyond those in use: the next batch's, and that of the batch that Lightning fetches before it is due."""


class StoredGraph:
    """A prepared graph on disk.

    Args:
        folder: written by `store_graph`.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.facts: dict[str, Any] = json.loads((folder / _FACTS).read_text(encoding="utf-8"))

    def has(self, name: str) -> bool:
        """Whether there is such an array."""
        return (self.folder / f"{name}.npy").is_file()

    def array(self, name: str) -> Tensor:
        """An array, read from the disk as it is used."""
        # Copy on write: torch wants memory that it may write to, and nobody writes.
        return torch.from_numpy(np.load(self.folder / f"{name}.npy", mmap_mode="c", allow_pickle=False))


def store_graph(folder: Path, make: Callable[[], tuple[dict[str, Any], dict[str, Tensor]]]) -> StoredGraph:
    """Opens the prepared graph in `folder`, which it makes at first, and anew where a file of it is damaged.

    Processes that want the same one wait for the first.

    Args:
        folder: its name has to change with whatever the graph is made of.
        make: returns facts for JSON and arrays by name.

    Raises:
        InputError: the folder above cannot be written to.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder.parent):
            pass
    except OSError as error:
        raise InputError(
            f"{str(folder.parent)!r} cannot hold prepared graphs ({error.strerror}); set GFM_CACHE to a folder that can"
        ) from error
    with FileLock(f"{folder}.lock"):
        if not is_sealed(folder):
            if folder.exists():
                warnings.warn(f"the prepared graph {str(folder)!r} is damaged and is made anew", stacklevel=2)
            partial = folder.with_name(f"{folder.name}.partial")
            remove(partial)
            partial.mkdir()
            facts, arrays = make()
            for name, array in arrays.items():
                np.save(partial / f"{name}.npy", array.cpu().numpy(), allow_pickle=False)
            (partial / _FACTS).write_text(json.dumps(facts), encoding="utf-8")
            seal(partial)
            replace_folder(partial, folder)
    return StoredGraph(folder)


class GraphStore:
    """The graphs of a run on its device: opened when first needed, at most `limit` of them at a time.

    Args:
        openers: one function for each graph, by number.
        device: where they go, once each time they are opened.
        limit: graphs held at once, besides those that are read ahead; 0 holds all.
    """

    def __init__(
        self, openers: Sequence[Callable[[], CompletionGraph]], device: torch.device | str = "cpu", limit: int = 0
    ) -> None:
        self.openers, self.device, self.limit = openers, torch.device(device), limit
        self._held: OrderedDict[int, Future[CompletionGraph]] = OrderedDict()
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="graph")

    def __len__(self) -> int:
        return len(self.openers)

    def __getitem__(self, number: int) -> CompletionGraph:
        """The graph; waits where it is still being read."""
        if number not in self._held:
            self.read_ahead(number)
        return self._held[number].result()

    def read_ahead(self, number: int) -> None:
        """Begins to read a graph in the background, unless it is there; those asked for longest ago make room."""
        if number not in self._held:
            self._held[number] = self._reader.submit(self._open, number)
        self._held.move_to_end(number)
        while self.limit and len(self._held) > self.limit + AHEAD:
            self._held.popitem(last=False)

    def _open(self, number: int) -> CompletionGraph:
        graph = self.openers[number]().to(self.device)
        graph.prepare()
        return graph
