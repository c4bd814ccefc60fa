"""What a process has used of the machine's memory."""

from __future__ import annotations

import sys
from importlib.util import find_spec

import torch


def peak_memory() -> int | None:
    """Bytes: the most that torch has held on the GPU where one is in use, else the process's peak resident memory.

    None on systems that do not tell (Windows).
    """
    if torch.cuda.is_initialized():
        return int(torch.cuda.max_memory_allocated())
    if find_spec("resource") is None:
        return None
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
