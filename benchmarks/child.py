"""Runs a case in a process of its own and survives that process's death.

`run_case` starts `python -m benchmarks.child MODULE:FUNCTION`, which reads the case's arguments as JSON from its input
and writes what the function returns as the last line of its output.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
OUT_OF_MEMORY = "out of memory"
FOOTNOTE = (
    "Every case runs in its own process with THP_MEM_ALLOC_ENABLE=1 set before torch is imported (torch then asks for "
    "huge pages), ours and the reference alike. Peak memory: the most the process held from the moment its inputs "
    "existed, less what it held then; caches that a case makes of its inputs count. Medians."
)


def run_case(function: str, arguments: dict[str, Any], label: str = "") -> dict[str, Any]:
    """Runs `MODULE:FUNCTION` of this package with `arguments` in a new process.

    Returns:
        What the function returned; `{"failed": reason}` where the process ended without a result: out of memory, or
        its exit code with the last line it wrote to stderr under `detail`.
    """
    print(f"running {label or function} ...", file=sys.stderr, flush=True)
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.child", function],
        input=json.dumps(arguments),
        capture_output=True,
        text=True,
        env=os.environ | {"THP_MEM_ALLOC_ENABLE": "1", "PYTHONPATH": path},
    )
    if done.returncode == 0:
        result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return result
    detail = (done.stderr.strip().splitlines() or [""])[-1]
    if done.returncode == -signal.SIGKILL:
        return {"failed": OUT_OF_MEMORY, "detail": "killed by the system"}
    reason = f"exit code {done.returncode}" if done.returncode > 0 else f"signal {-done.returncode}"
    print(f"  {reason}: {detail}", file=sys.stderr, flush=True)
    return {"failed": reason, "detail": detail}


def main() -> None:
    """The child: limits its own memory, runs the function, writes its result."""
    module, _, name = sys.argv[1].partition(":")
    arguments = json.load(sys.stdin)
    if arguments.get("device", "cpu") == "cpu":  # a GPU's driver reserves far more addresses than memory
        _limit_memory()
    function = getattr(import_module(module), name)
    try:
        result = function(**arguments)
    except (MemoryError, RuntimeError) as error:
        if not _is_out_of_memory(error):
            raise
        result = {"failed": OUT_OF_MEMORY, "detail": str(error).splitlines()[0] if str(error) else ""}
    print(json.dumps(result))


def _limit_memory() -> None:
    """Makes an allocation beyond what is available fail here, before the system starts to kill other processes."""
    meminfo, own_score = Path("/proc/meminfo"), Path("/proc/self/oom_score_adj")
    if not meminfo.exists():
        return
    import resource

    line = next(line for line in meminfo.read_text().splitlines() if line.startswith("MemAvailable:"))
    limit = int(line.split()[1]) * 1024
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    if hard == resource.RLIM_INFINITY or limit < hard:
        resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
    own_score.write_text("1000")


def _is_out_of_memory(error: Exception) -> bool:
    text = str(error).lower()
    return isinstance(error, MemoryError) or "out of memory" in text or "can't allocate memory" in text


if __name__ == "__main__":
    main()
