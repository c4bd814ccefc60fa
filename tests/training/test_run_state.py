"""A run's state on disk: everything comes back as it was, and what is torn is passed over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from gfm.errors import InputError
from gfm.files import SUMS
from gfm.training.run_state import IDENTITY, METRICS, REST, TENSORS, SafeCheckpointIO, newest_state, saved_states

IO = SafeCheckpointIO()
STATE: dict[str, Any] = {
    "global_step": 3,
    METRICS: {"train/loss": 0.5},
    IDENTITY: {"data": "abc"},
    "state_dict": {"w": torch.tensor([[1.5, -0.0]]), "none": torch.empty(0, 2), "scalar": torch.tensor(7)},
    "optimizer_states": [{"state": {0: {"exp_avg": torch.ones(2, dtype=torch.bfloat16)}}, "betas": (0.9, 0.999)}],
    "rate": 0.1 + 0.2,
    "flags": [True, None, "text ü", {}],
}


def same(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and one == other


def test_a_state_comes_back_as_it_was(tmp_path: Path) -> None:
    IO.save_checkpoint(STATE, tmp_path / "step-000000003")
    assert same(IO.load_checkpoint(tmp_path / "step-000000003"), STATE)
    assert [path.name for path in tmp_path.iterdir()] == ["step-000000003"]


def test_two_tensors_that_share_memory_both_come_back(tmp_path: Path) -> None:
    tensor = torch.arange(6.0).view(2, 3)
    IO.save_checkpoint({"a": tensor, "b": tensor[:, 1], "c": tensor}, tmp_path / "s")
    assert same(IO.load_checkpoint(tmp_path / "s"), {"a": tensor, "b": torch.tensor([1.0, 4.0]), "c": tensor})


def test_what_json_cannot_hold_is_refused_before_anything_is_replaced(tmp_path: Path) -> None:
    IO.save_checkpoint(STATE, tmp_path / "s")
    with pytest.raises(TypeError, match="Path at '/bad'"):
        IO.save_checkpoint({"bad": tmp_path}, tmp_path / "s")
    assert same(IO.load_checkpoint(tmp_path / "s"), STATE)


def test_the_newest_state_is_found(tmp_path: Path) -> None:
    assert newest_state(tmp_path) is None
    for step in (9, 10, 100):
        IO.save_checkpoint(STATE | {"global_step": step}, tmp_path / f"step-{step:09d}")
    assert newest_state(tmp_path) == (tmp_path / "step-000000100", 100, STATE[METRICS], STATE[IDENTITY])
    assert len(saved_states(tmp_path)) == 3


@pytest.mark.parametrize("name", [TENSORS, REST, SUMS])
@pytest.mark.parametrize("damage", ["cut", "digit", "empty", "gone", "folder"])
def test_a_torn_state_is_passed_over_with_a_warning(tmp_path: Path, name: str, damage: str) -> None:
    for step in (1, 2):
        IO.save_checkpoint(STATE | {"global_step": step}, tmp_path / f"step-{step:09d}")
    path = tmp_path / "step-000000002" / name
    content = path.read_bytes()
    path.unlink()
    if damage == "folder":
        path.mkdir()
    elif damage != "gone":
        digit = max(content.rfind(bytes([code])) for code in b"0123456789")
        other = content[:digit] + bytes([content[digit] ^ 1]) + content[digit + 1 :]
        path.write_bytes({"cut": content[: len(content) // 2], "digit": other, "empty": b""}[damage])
    with pytest.raises(InputError, match="is torn or altered"):
        IO.load_checkpoint(path.parent)
    with pytest.warns(UserWarning, match="step-000000002.*the one before it is used"):
        assert newest_state(tmp_path) == (tmp_path / "step-000000001", 1, STATE[METRICS], STATE[IDENTITY])


def test_a_state_that_a_kill_left_half_written_is_not_seen(tmp_path: Path) -> None:
    IO.save_checkpoint(STATE, tmp_path / "step-000000003")
    (tmp_path / ".step-000000004.partial").mkdir()
    (tmp_path / ".step-000000004.partial" / TENSORS).write_bytes(b"half")
    assert newest_state(tmp_path) == (tmp_path / "step-000000003", 3, STATE[METRICS], STATE[IDENTITY])
