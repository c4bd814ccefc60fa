"""How fast this machine streams memory: the bound that no propagation kernel can pass."""

from __future__ import annotations

import time
from typing import Any

import numba
import numpy as np
import torch

GB = 1e9


@numba.njit(parallel=True, fastmath=True, cache=True)
def _total(source: np.ndarray) -> np.float32:
    total = np.float32(0)
    for i in numba.prange(len(source)):
        total += source[i]
    return total


@numba.njit(parallel=True, cache=True)
def _copy(source: np.ndarray, target: np.ndarray) -> None:
    for i in numba.prange(len(source)):
        target[i] = source[i]


def bandwidth(repeats: int, megabytes: int = 1024, device: str = "cpu") -> dict[str, Any]:
    """Reads and copies an array far larger than the caches, with all threads; best of `repeats`.

    Returns:
        `read_gb_per_s`, `copy_gb_per_s` (read and written bytes together) and the larger of both as `gb_per_s`.
    """
    source = torch.ones(megabytes * 250_000, device=device)
    target = torch.zeros_like(source)
    if device == "cuda":
        read = _best(lambda: source.sum(), repeats, True)
        copy = _best(lambda: target.copy_(source), repeats, True)
    else:
        a, b = source.numpy(), target.numpy()
        read, copy = _best(lambda: _total(a), repeats), _best(lambda: _copy(a, b), repeats)
    size = source.numel() * source.element_size() / GB
    rates = {"read_gb_per_s": size / read, "copy_gb_per_s": 2 * size / copy}
    return rates | {"gb_per_s": max(rates.values())}


def bound_seconds(
    entities: int, edges: int, edge_types: int, dim: int, rate: float, batch: int = 1, width: int = 4
) -> dict[str, float]:
    """Seconds to move the bytes that one propagation must move at `rate` GB/s, every gathered row read once an edge.

    Forward reads a state and a relation row per edge and writes the sums. Backward does the same for the gradient of
    states, and reads a state and a gradient row per edge for that of relations, which it writes.
    """
    state, relation = batch * dim * width, dim * width
    forward = edges * (state + relation) + entities * state
    backward = forward + edges * 2 * state + edge_types * relation
    return {"forward_bound_seconds": forward / rate / 1e9, "backward_bound_seconds": backward / rate / 1e9}


def _best(call: Any, repeats: int, synchronize: bool = False) -> float:
    seconds = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        call()
        if synchronize:
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    return min(seconds[1:])
