"""Which triples make a batch, and which entities are its negatives: pure functions of the seed and the step.

Nothing here has a state that a resumed run would have to restore, and the ranks of a distributed run agree on every
batch without a word.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

_DRAWS = 1024  # graphs are drawn this many steps at a time

# What a stream of random numbers is for; two streams with the same numbers would be correlated.
_GRAPHS, _ORDER, _QUERIES = range(3)


class Batch(NamedTuple):
    """One batch of one graph.

    Attributes:
        step: how many batches came before it.
        graph: the graph's number.
        chosen: which of the graph's training triples `(N,)`.
    """

    step: int
    graph: int
    chosen: Tensor


def generator_for(*key: int) -> torch.Generator:
    """A random generator that depends on nothing but the key."""
    state = np.random.SeedSequence(key).generate_state(2, np.uint32)
    return torch.Generator().manual_seed(int(state[0]) << 31 | int(state[1]) >> 1)


class CompletionSampler:
    """An endless stream of batches, one graph each.

    A graph is drawn with probability proportional to `weight * size ** (1 / temperature)`: 1 follows the sizes, a
    large temperature treats all graphs alike. Within a graph every triple is seen once before any is seen again.

    Args:
        sizes: training triples of each graph.
        weights: of the graphs, by configuration.
        batch_size: triples of a batch; a graph with fewer gives some of them twice, so that all ranks have a share.
        temperature: above 0.
        seed: decides everything.
    """

    def __init__(
        self, sizes: Sequence[int], weights: Sequence[float], batch_size: int, temperature: float, seed: int
    ) -> None:
        self.sizes, self.batch_size, self.seed = list(sizes), batch_size, seed
        self._orders: dict[int, tuple[int, Tensor]] = {}
        size = np.asarray(sizes, dtype=np.float64)
        # Relative to the largest: a low temperature would overflow.
        self.share = torch.from_numpy(np.asarray(weights) * (size / size.max()) ** (1 / temperature))

    def batches(self, start: int = 0) -> Iterator[Batch]:
        """Batches from step `start` on, the same whether those before it were taken or not."""
        seen = np.zeros(len(self.sizes), dtype=np.int64)
        for step, graph in self._graphs():
            if step >= start:
                yield Batch(step, graph, self._pick(graph, int(seen[graph])))
            seen[graph] += 1

    def _graphs(self) -> Iterator[tuple[int, int]]:
        block = 0
        while True:
            generator = generator_for(self.seed, _GRAPHS, block)
            drawn = torch.multinomial(self.share, _DRAWS, replacement=True, generator=generator)
            yield from enumerate(drawn.tolist(), block * _DRAWS)
            block += 1

    def _pick(self, graph: int, number: int) -> Tensor:
        """The triples of a graph's batch `number`: a stretch of its epochs laid end to end."""
        total = self.sizes[graph]
        first, parts, needed = number * self.batch_size, [], self.batch_size
        while needed:
            epoch, offset = divmod(first, total)
            part = self._order(graph, epoch)[offset : offset + needed]
            parts.append(part)
            first, needed = first + len(part), needed - len(part)
        return torch.cat(parts)

    def _order(self, graph: int, epoch: int) -> Tensor:
        """The order of a graph's triples in one epoch; the last one of each graph is kept."""
        if self._orders.get(graph, (None,))[0] != epoch:
            order = torch.randperm(self.sizes[graph], generator=generator_for(self.seed, _ORDER, graph, epoch))
            self._orders[graph] = epoch, order
        return self._orders[graph][1]


def query_generators(seed: int, step: int, positions: Sequence[int]) -> list[torch.Generator]:
    """One generator for each triple of a batch, by its place in the whole batch, whichever rank it falls to."""
    return [generator_for(seed, _QUERIES, step, position) for position in positions]


def draw_rows(
    draw: Callable[[torch.Generator | None], Tensor], count: int, generators: Sequence[torch.Generator] | None
) -> Tensor:
    """Stacks `count` draws; the generators serve the rows in turn, the global one where there are none."""
    return torch.stack([draw(generators[row % len(generators)] if generators else None) for row in range(count)])


def sample_negatives(allowed: Tensor, count: int, generators: Sequence[torch.Generator] | None = None) -> Tensor:
    """Keeps at most `count` random True entries in each row of `allowed (Q, V)`; 0 keeps all.

    Args:
        allowed: which entities are strict negatives of each query.
        count: how many to keep.
        generators: one for each row, or for several rows in turn (tail queries, then head queries); the global one
            without.
    """
    if count <= 0 or count >= allowed.size(1) or not len(allowed):
        return allowed
    draw = draw_rows(lambda generator: torch.rand(allowed.size(1), generator=generator), len(allowed), generators)
    draw = draw.to(allowed.device).masked_fill(~allowed, -1.0)
    kept = torch.zeros_like(allowed).scatter_(1, draw.topk(count, dim=1).indices, True)
    return kept & allowed
