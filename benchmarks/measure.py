"""Seconds and bytes of one case, inside its own process."""

from __future__ import annotations

import ctypes
import gc
import resource
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

Step = Callable[[int], dict[str, float]]
"""One repeat: its number in, what it measured by name out (seconds, counts)."""

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
GB = 1e9


class Stopwatch:
    """Seconds between laps; on a GPU a lap waits until all queued work is done."""

    def __init__(self, device: str = "cpu") -> None:
        self.device, self.last = device, 0.0
        self.restart()

    def restart(self) -> None:
        """Starts the next lap now: what lay between is not counted."""
        if self.device == "cuda":
            torch.cuda.synchronize()
        self.last = time.perf_counter()

    def lap(self) -> float:
        """Seconds since the last lap or restart."""
        before = self.last
        self.restart()
        return self.last - before


class PeakMemory:
    """The most memory that the process comes to hold above what it holds when this is made.

    On Linux the kernel's high-water mark is set back first, and freed memory that the allocator still holds is
    returned, since reusing it would otherwise cost nothing. Elsewhere the mark cannot be set back: the peak is then a
    lower bound, and `resettable` is False.
    """

    def __init__(self, device: str = "cpu") -> None:
        self.device = device
        gc.collect()
        if device == "cuda":
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            self.base = torch.cuda.memory_allocated()
            return
        if sys.platform == "linux":
            ctypes.CDLL(None).malloc_trim(0)
        self.before = high_water()
        self.resettable = CLEAR.exists()
        if self.resettable:
            CLEAR.write_text("5")
            self.base = _status("VmRSS")
        else:
            self.base = self.before

    def above(self) -> int:
        """Bytes of the peak above the start."""
        if self.device == "cuda":
            return int(torch.cuda.max_memory_allocated()) - self.base
        return max(0, high_water() - self.base)

    def of_process(self) -> int:
        """Bytes of the peak in all, the time before this was made included."""
        return high_water() if self.device == "cuda" else max(self.before, high_water())


def high_water() -> int:
    """Bytes of the process's peak resident memory since it started, or since the mark was last set back."""
    if STATUS.exists():
        return _status("VmHWM")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def measure(
    prepare: Callable[..., Step],
    full: dict[str, Any],
    small: dict[str, Any],
    repeats: int,
    warmups: int = 1,
    device: str = "cpu",
) -> dict[str, Any]:
    """Runs a case: compile on a small one, build inputs, warm up, repeat.

    The small case loads libraries and compiles kernels, whose memory would otherwise count as the case's own. Caches
    that grow with the graph (sorted edges, kept relation states) are made by the warm-up and do count.

    Args:
        prepare: builds the inputs and returns the step to repeat.
        full: arguments of `prepare`.
        small: arguments that replace some of `full` for the small case.
        repeats: measured steps; step `i` has the number `i`.
        warmups: steps before them, numbered alike.
        device: `"cpu"` or `"cuda"`.

    Returns:
        Under the name of each figure its median, least and greatest value, that of the first warm-up and the median
        of the other warm-ups (`new`); and `peak_gb` above inputs, `peak_process_gb` in all.
    """
    prepare(**full | small)(0)
    step = prepare(**full)
    memory = PeakMemory(device)
    first = [step(number) for number in range(warmups)]
    rows = [step(number) for number in range(repeats)]
    figures: dict[str, Any] = {}
    for name in rows[0]:
        column = [row[name] for row in rows]
        figures[name] = {"median": statistics.median(column), "min": min(column), "max": max(column)}
        if first:
            figures[name] |= {
                "first": first[0][name],
                "new": statistics.median(row[name] for row in first[1:] or first),
            }
    figures["peak_gb"] = memory.above() / GB
    figures["peak_process_gb"] = memory.of_process() / GB
    if device == "cpu" and not memory.resettable:
        figures["note"] = "the system cannot reset its memory high-water mark: peaks above inputs are lower bounds"
    return figures


def _status(field: str) -> int:
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(f"{field}:"))
    return int(line.split()[1]) * 1024
