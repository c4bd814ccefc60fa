"""A run's state on disk, so that one that was killed continues as if it never was: no pickle, whole or not at all.

Lightning decides what belongs to the state (weights, optimizer, schedule, loops); here it becomes a folder
`step-000000120` with the tensors in `state.safetensors` and everything else in `state.json`, which also holds the hash
of the former. A folder appears under its name only when it is complete.
"""

from __future__ import annotations

import json
import os
import shutil
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import lightning as L
from lightning.pytorch.plugins import CheckpointIO
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from gfm.errors import InputError
from gfm.files import flush, sha256

METRICS = "gfm_train_metrics"
TENSORS, REST = "state.safetensors", "state.json"
KEPT = 2
"""States that are kept: the newest, and one before it in case the newest does not read."""


class SafeCheckpointIO(CheckpointIO):
    """How Lightning writes and reads states; `path` is a folder."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        """Writes a state; killed at any moment it leaves either nothing under `path` or all of it."""
        path = Path(path)
        partial = path.with_name(f".{path.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        tensors: dict[str, Tensor] = {}
        rest = _take_apart(checkpoint, "", tensors)
        save_file(tensors, partial / TENSORS)
        text = json.dumps({"sha256": sha256(partial / TENSORS), "state": rest})
        (partial / REST).write_text(text, encoding="utf-8")
        for name in (TENSORS, REST):
            flush(partial / name)
        shutil.rmtree(path, ignore_errors=True)
        os.replace(partial, path)
        flush(path.parent)

    def load_checkpoint(
        self, path: str | Path, map_location: Any = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """Reads a state.

        Raises:
            InputError: it is torn or altered.
        """
        path = Path(path)
        try:
            record = json.loads((path / REST).read_text(encoding="utf-8"))
            if sha256(path / TENSORS) != record["sha256"]:
                raise ValueError(f"{TENSORS} is torn or altered")
            state: dict[str, Any] = _put_together(record["state"], load_file(path / TENSORS))
        except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
            raise InputError(f"the state {str(path)!r} does not read: {error}") from error
        return state

    def remove_checkpoint(self, path: str | Path) -> None:
        """Removes a state."""
        shutil.rmtree(path, ignore_errors=True)


class SaveState(L.Callback):
    """Writes the state every `every` optimizer steps and at the end; keeps the last two."""

    def __init__(self, folder: Path, every: int) -> None:
        self.folder, self.every = folder, every
        self._saved = -1

    def on_train_batch_end(self, trainer: L.Trainer, *_: Any) -> None:
        """Saves when a step that counts is done, not between the batches that a step accumulates."""
        if trainer.global_step % self.every == 0:
            self._save(trainer)

    def on_save_checkpoint(self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]) -> None:
        """Adds what the step logs: Lightning hands it to the loggers only after this."""
        values = trainer.callback_metrics.items()
        checkpoint[METRICS] = {name: float(value) for name, value in values if name.startswith("train/")}

    def on_train_end(self, trainer: L.Trainer, *_: Any) -> None:
        """Saves what the last steps did, so that a longer run can go on from it."""
        self._save(trainer)

    def _save(self, trainer: L.Trainer) -> None:
        if trainer.global_step in (0, self._saved):
            return
        for logger in trainer.loggers:
            logger.save()  # what was logged before the state is on disk before it
        trainer.save_checkpoint(self.folder / f"step-{trainer.global_step:09d}", weights_only=False)
        self._saved = trainer.global_step
        if trainer.is_global_zero:
            for old in saved_states(self.folder)[:-KEPT]:
                shutil.rmtree(old)


def saved_states(folder: Path) -> list[Path]:
    """The states in a folder, oldest first."""
    return sorted(folder.glob("step-*"))


class SavedRun(NamedTuple):
    """A state that reads.

    Attributes:
        folder: of the state.
        step: optimizer steps that are done.
        metrics: what the last of them logged.
    """

    folder: Path
    step: int
    metrics: dict[str, float]


def newest_state(folder: Path) -> SavedRun | None:
    """The newest state that reads; a warning for each that does not. None without any."""
    for path in reversed(saved_states(folder)):
        try:
            state = SafeCheckpointIO().load_checkpoint(path)
            return SavedRun(path, int(state["global_step"]), state.get(METRICS, {}))
        except (InputError, KeyError) as error:
            warnings.warn(f"{error}; the one before it is used", stacklevel=2)
    return None


def _take_apart(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    """The value with its tensors replaced by their names, and dicts by lists of pairs, since JSON's keys are text."""
    if isinstance(value, Tensor):
        tensors[name] = value.detach().cpu().contiguous().clone()  # the format knows no shared memory
        return {"tensor": name}
    if isinstance(value, dict):
        pairs = [[key, _take_apart(item, f"{name}/{key}", tensors)] for key, item in value.items()]
        return {"dict": pairs}
    if isinstance(value, list | tuple):
        items = [_take_apart(item, f"{name}/{i}", tensors) for i, item in enumerate(value)]
        return {"tuple" if isinstance(value, tuple) else "list": items}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"the state holds a {type(value).__name__} at {name!r}, which has no place in JSON")


def _put_together(value: Any, tensors: dict[str, Tensor]) -> Any:
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "dict":
        return {key: _put_together(item, tensors) for key, item in content}
    items = [_put_together(item, tensors) for item in content]
    return tuple(items) if kind == "tuple" else items
