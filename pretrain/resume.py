"""Whether a run goes on from an earlier one, and from where."""

from __future__ import annotations

import shutil
from pathlib import Path

from gfm.config import PretrainConfig
from gfm.config_files import changed_keys
from gfm.errors import InputError
from gfm.training.run_state import SavedRun, newest_state
from gfm.training.trainer import states_are_ours

# What may differ between a run and its continuation, since no result depends on it.
FREE = ("resume", "trainer.max_minutes", "trainer.progress", "trainer.save_every", "encoder.device", "graphs_in_memory")


def resume_from(cfg: PretrainConfig) -> SavedRun | None:
    """Looks in `cfg.out` for the state of a run with the same settings; `resume=false` removes it.

    Raises:
        InputError: the folder holds a run with other settings.
    """
    out = Path(cfg.out)
    if not cfg.resume:
        shutil.rmtree(out / "state", ignore_errors=True)
    found = newest_state(out / "state") if states_are_ours(cfg.trainer) else None
    if found and (changed := [key for key in changed_keys(cfg, out / "config.yaml") if key not in FREE]):
        raise InputError(
            f"{str(out)!r} holds a run with another {changed[0]}; give another out, or resume=false to start it over"
        )
    return found
