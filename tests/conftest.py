"""What every test shares: no hub, no user cache, few threads, and the public data beside the checkout."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# Libraries read these when they are first imported, which is after this file and before any test module.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("OMP_NUM_THREADS", "2")
os.environ.setdefault("NUMBA_NUM_THREADS", "2")
# Threads that spin while they wait take the core from the one that works when the machine is busy.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

ROOT = Path(__file__).resolve().parents[1]
SHARED_DATA = Path(os.environ.get("GFM_SHARED_DATA") or ROOT.parent / "shared" / "data")
USES_SHARED_DATA = ("uses", "shared_data")

# A first call may compile a kernel or load an encoder: its time says nothing about the property under test.
settings.register_profile("gfm", parent=settings(), deadline=None)
settings.load_profile("gfm")


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keeps the embeddings of this run out of the user's cache, and the user's cache out of this run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GFM_CACHE", str(tmp_path_factory.mktemp("gfm-cache")))
        yield


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The public data folder (`kg/`, `qa/`, `kgqa/`); GFM_SHARED_DATA names another place for it."""
    if not SHARED_DATA.is_dir():
        pytest.skip(f"no public data at {SHARED_DATA}; put it there or set GFM_SHARED_DATA")
    return SHARED_DATA


def pytest_configure() -> None:
    """Without a GPU, triton's kernels run in its interpreter; it must know before anything imports triton."""
    import torch

    if not torch.cuda.is_available():
        os.environ.setdefault("TRITON_INTERPRET", "1")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the tests that need the public data, so that the summary can count them."""
    for item in items:
        if "shared_data" in getattr(item, "fixturenames", ()):
            item.user_properties.append(USES_SHARED_DATA)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Says how many tests ran on the public data: a run without them must not look complete."""
    counts = {
        outcome: sum(
            USES_SHARED_DATA in getattr(report, "user_properties", ())
            for report in terminalreporter.stats.get(outcome, ())
        )
        for outcome in ("passed", "failed", "skipped")
    }
    figures = ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
    terminalreporter.write_line(f"tests on shared data: {figures} (from {SHARED_DATA})")
