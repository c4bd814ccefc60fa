"""Whether a run goes on from an earlier one, and from where."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gfm.config import PretrainConfig
from gfm.config_files import flat_settings
from gfm.errors import InputError
from gfm.files import remove
from gfm.training.run_state import SavedRun, newest_state
from gfm.training.trainer import states_are_ours

# What may differ between a run and its continuation, since no result depends on it.
FREE = (
    "out",
    "resume",
    "trainer.max_minutes",
    "trainer.progress",
    "trainer.save_every",
    "encoder.device",
    "graphs_in_memory",
)


def identity_of(cfg: PretrainConfig, parent: str) -> dict[str, Any]:
    """What a run that goes on must share with the one that was interrupted: settings and the weights it began with.

    The fingerprint of its data is added as `data` when the graphs are open.
    """
    settings = {key: value for key, value in flat_settings(cfg).items() if key not in FREE}
    return {"settings": settings, "parent": parent}


def resume_from(cfg: PretrainConfig, identity: dict[str, Any]) -> SavedRun | None:
    """Looks in `cfg.out` for the state of a run with the same settings; `resume=false` removes it.

    Raises:
        InputError: the folder holds a run with other settings, or one that began with other weights.
    """
    states = Path(cfg.out) / "state"
    if not cfg.resume:
        remove(states)
    found = newest_state(states) if states_are_ours(cfg.trainer) else None
    if found is None:
        return None
    now, then = identity["settings"], found.identity["settings"]
    changed = sorted(key for key in now.keys() | then.keys() if now.get(key) != then.get(key))
    if identity["parent"] != found.identity["parent"]:
        changed.append("content of checkpoint")
    if changed:
        raise InputError(
            f"{cfg.out!r} holds a run with another {changed[0]}; give another out (with checkpoint=… it continues "
            "those weights), or resume=false to start this one over"
        )
    return found


def check_data(cfg: PretrainConfig, found: SavedRun | None, identity: dict[str, Any]) -> None:
    """Refuses to go on with graphs whose files have changed since.

    Raises:
        InputError: they have.
    """
    if found is not None and found.identity["data"] != identity["data"]:
        raise InputError(
            f"the files of the graphs have changed since {cfg.out!r} was begun; put them back, give another out, or "
            "resume=false to start it over"
        )
