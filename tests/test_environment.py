"""Settings of the process: asked for by programs, never overriding the user."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gfm.environment import ask_for_huge_pages

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize(("set_by_user", "after"), [(None, "1"), ("0", "0"), ("1", "1")])
def test_huge_pages_are_asked_for_unless_the_user_decided(
    monkeypatch: pytest.MonkeyPatch, set_by_user: str | None, after: str
) -> None:
    monkeypatch.setattr(os, "environ", {} if set_by_user is None else {"THP_MEM_ALLOC_ENABLE": set_by_user})
    ask_for_huge_pages()
    assert os.environ["THP_MEM_ALLOC_ENABLE"] == after


def test_the_library_leaves_the_environment_alone() -> None:
    code = "import os, gfm, gfm.config, gfm.nn.gnn; print('THP_MEM_ALLOC_ENABLE' in os.environ)"
    environment = {name: value for name, value in os.environ.items() if name != "THP_MEM_ALLOC_ENABLE"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT, env=environment
    )
    assert done.stdout.strip() == "False"
