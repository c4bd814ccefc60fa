"""A CSV log that a continued run takes up where its state is."""

from __future__ import annotations

import csv
import os
import warnings
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import CSVLogger

from gfm.training.run_state import SavedRun


def continue_log(logger: CSVLogger, aside: Path, run: SavedRun | None, log_every: int) -> None:
    """Starts a log with the rows of the interrupted one that the state is behind; the run logs the others again.

    The old log waits under `aside` until the new one is on disk, so that no kill can lose it.

    Args:
        logger: one that has written nothing yet.
        aside: a path for the old log outside the folder of logs.
        run: where the run goes on; None starts an empty log.
        log_every: every how many steps a row is written.
    """
    path = Path(logger.log_dir) / "metrics.csv"
    if run is None:
        path.unlink(missing_ok=True)
        aside.unlink(missing_ok=True)
        return
    if path.is_file() and not aside.is_file():
        os.replace(path, aside)
    path.unlink(missing_ok=True)  # of a continuation that was killed here
    rows, torn = _rows(aside, run.step) if aside.is_file() else ([], 0)
    # The state is written a moment before the row of its own step.
    if run.metrics and run.step % log_every == 0 and not any(_is_of(row, run) for row in rows):
        rows.append({**run.metrics, "epoch": 0, "step": run.step - 1})
    logger.experiment.metrics.extend(rows)
    logger.save()
    if torn:
        kept = aside.with_name("metrics.torn.csv")
        os.replace(aside, kept)
        warnings.warn(
            f"{torn} rows of {str(path)!r} do not read and are left out; {str(kept)!r} has them", stacklevel=2
        )
    aside.unlink(missing_ok=True)


def _rows(path: Path, before: int) -> tuple[list[dict[str, Any]], int]:
    """The rows of steps before one, and how many rows do not read, as a full disk leaves them."""
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        table = csv.DictReader(file)
        found = [dict(row) for row in table]
    whole = [row for row in found if None not in row and None not in row.values() and row.get("step", "").isdigit()]
    rows = [{key: value for key, value in row.items() if value} for row in whole if int(row["step"]) < before]
    return rows, len(found) - len(whole)


def _is_of(row: dict[str, Any], run: SavedRun) -> bool:
    """Whether a row is the one that the last training step of a state logged."""
    return int(row["step"]) == run.step - 1 and not row.keys().isdisjoint(run.metrics)
