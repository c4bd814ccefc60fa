"""A run's state on disk, so that one that was killed continues as if it never was: no pickle, whole or not at all.

Lightning decides what belongs to the state (weights, optimizer, schedule, loops, callbacks); here it becomes a folder
`step-000000120` with the tensors in `state.safetensors`, everything else in `state.json`, and the hashes of both. A
folder appears under its name only when it is complete.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import lightning as L
from lightning.pytorch.callbacks import Checkpoint, EarlyStopping
from lightning.pytorch.plugins import CheckpointIO
from safetensors.torch import load_file, save_file
from torch import Tensor

from gfm.errors import InputError
from gfm.files import is_sealed, remove, replace_folder, seal

METRICS, IDENTITY = "gfm_train_metrics", "gfm_identity"
TENSORS, REST = "state.safetensors", "state.json"
KEPT = 2
"""States that are kept: the newest, and one before it in case the newest does not read."""


class SafeCheckpointIO(CheckpointIO):
    """How Lightning writes and reads states; `path` is a folder."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        """Writes a state; killed at any moment it leaves either nothing under `path` or all of it."""
        path = Path(path)
        partial = path.with_name(f".{path.name}.partial")
        remove(partial)
        partial.mkdir(parents=True)
        tensors: dict[str, Tensor] = {}
        rest = _take_apart(checkpoint, "", tensors)
        save_file(tensors, partial / TENSORS)
        (partial / REST).write_text(json.dumps(rest), encoding="utf-8")
        seal(partial)
        replace_folder(partial, path)

    def load_checkpoint(
        self, path: str | Path, map_location: Any = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """Reads a state.

        Raises:
            InputError: it is torn or altered.
        """
        path = Path(path)
        if not is_sealed(path):
            raise InputError(f"the state {str(path)!r} is torn or altered")
        rest = json.loads((path / REST).read_text(encoding="utf-8"))
        state: dict[str, Any] = _put_together(rest, load_file(path / TENSORS))
        return state

    def remove_checkpoint(self, path: str | Path) -> None:
        """Removes a state."""
        remove(Path(path))


class SaveState(Checkpoint):
    """Writes the state every `every` optimizer steps and at the end; keeps the last two.

    A state is taken when all that its step does is done: where the step is followed by a validation, after that, since
    Lightning does not repeat it and what it decided (early stopping) belongs to the state. Between the batches that one
    step accumulates there is no state.

    Args:
        folder: of the states.
        every: steps.
        identity: what a run that goes on from a state must share with it; see `SavedRun`.

    Attributes:
        saved: step of the newest state, 0 without one.
    """

    def __init__(self, folder: Path, every: int, identity: dict[str, Any]) -> None:
        self.folder, self.every, self.identity = folder, every, identity
        self.saved = 0

    def on_train_start(self, trainer: L.Trainer, *_: Any) -> None:
        """The state that the run goes on from is there already."""
        self.saved = trainer.global_step

    def on_train_batch_end(self, trainer: L.Trainer, *_: Any) -> None:
        """Saves after a step that no validation follows."""
        if trainer.global_step % self.every == 0 and not _validation_is_due(trainer):
            self._save(trainer)

    def on_validation_end(self, trainer: L.Trainer, *_: Any) -> None:
        """Saves after a validation that follows a step."""
        due = trainer.global_step % self.every == 0 or trainer.should_stop
        if trainer.state.fn == "fit" and due and _validation_is_due(trainer):
            self._save(trainer)

    def on_train_end(self, trainer: L.Trainer, *_: Any) -> None:
        """Saves what the last steps did, so that a run that stopped by its minutes can go on."""
        self._save(trainer)

    def on_save_checkpoint(self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]) -> None:
        """Adds the identity, and what the step logs: Lightning hands it to the loggers only after this."""
        values = trainer.callback_metrics.items()
        checkpoint[METRICS] = {name: float(value) for name, value in values if name.startswith("train/")}
        checkpoint[IDENTITY] = self.identity

    def _save(self, trainer: L.Trainer) -> None:
        if trainer.global_step == self.saved or _batches(trainer) % trainer.accumulate_grad_batches:
            return
        if not all(parameter.isfinite().all() for parameter in trainer.lightning_module.parameters()):
            raise InputError(
                f"step {trainer.global_step} left weights that are no finite numbers; lower optimizer.lr or "
                "trainer.gradient_clip, or use a wider trainer.precision; the state before it is kept"
            )
        for logger in trainer.loggers:
            logger.save()  # what was logged before the state is on disk before it
        trainer.save_checkpoint(self.folder / f"step-{trainer.global_step:09d}", weights_only=False)
        self.saved = trainer.global_step
        if trainer.is_global_zero:
            for old in saved_states(self.folder)[:-KEPT]:
                remove(old)


class StopEarly(EarlyStopping):
    """Early stopping that a run which goes on from a state remembers: a run that has stopped does not train again."""

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Stops at once where the state says that patience was at its end."""
        trainer.should_stop = trainer.should_stop or self.is_out_of_patience

    @property
    def is_out_of_patience(self) -> bool:
        """Whether the last validations were without a rise."""
        return self.wait_count >= self.patience


def _batches(trainer: L.Trainer) -> int:
    """Batches that this run and those before it have trained on."""
    return trainer.fit_loop.total_batch_idx + 1


def _validation_is_due(trainer: L.Trainer) -> bool:
    """Whether the batch that just ended is one that a validation follows by the settings."""
    every = trainer.val_check_batch if trainer.enable_validation else None
    return every is not None and _batches(trainer) % every == 0


def saved_states(folder: Path) -> list[Path]:
    """The states in a folder, oldest first."""
    return sorted(folder.glob("step-*"))


class SavedRun(NamedTuple):
    """A state that reads.

    Attributes:
        folder: of the state.
        step: optimizer steps that are done.
        metrics: what the last of them logged.
        identity: settings, data and parent of the run.
    """

    folder: Path
    step: int
    metrics: dict[str, float]
    identity: dict[str, Any]


def newest_state(folder: Path) -> SavedRun | None:
    """The newest state that reads; a warning for each that does not. None without any."""
    states = saved_states(folder)
    for path in reversed(states):
        try:
            state = SafeCheckpointIO().load_checkpoint(path)
            return SavedRun(path, int(state["global_step"]), state[METRICS], state[IDENTITY])
        except InputError as error:
            instead = "the one before it is used" if path != states[0] else "the run starts over"
            warnings.warn(f"{error}; {instead}", stacklevel=2)
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
