"""Functions that tests let run in a child process."""

from __future__ import annotations

import os
import signal
from typing import Any


def echo(**arguments: Any) -> dict[str, Any]:
    return arguments | {"huge_pages": os.environ["THP_MEM_ALLOC_ENABLE"], "pid": os.getpid()}


def leave(code: int) -> dict[str, Any]:
    raise SystemExit(code)


def fail() -> dict[str, Any]:
    raise KeyError("a defect")


def be_killed() -> dict[str, Any]:
    os.kill(os.getpid(), signal.SIGKILL)
    return {}


def take_everything() -> dict[str, Any]:
    import numpy as np

    return {"size": len(np.ones(1 << 46))}


def hold(megabytes: int, before: int) -> dict[str, Any]:
    """Holds `megabytes` for a while; `before` were held, and freed, when inputs were made."""
    import torch

    from benchmarks.measure import GB, PeakMemory

    inputs = torch.ones(10 * 250_000)
    torch.ones(before * 250_000)
    memory = PeakMemory()
    torch.ones(megabytes * 250_000)
    return {"peak_gb": memory.above() / GB, "process_gb": memory.of_process() / GB, "inputs": len(inputs)}
