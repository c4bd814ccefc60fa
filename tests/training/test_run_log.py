"""The log of a run that goes on has every row once, as an uninterrupted run's has."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from lightning.pytorch.loggers import CSVLogger

from gfm.training.run_log import continue_log
from gfm.training.run_state import SavedRun


def write_log(path: Path, rows: list[dict[str, str]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def continued(folder: Path, run: SavedRun | None, log_every: int = 1) -> list[dict[str, str]]:
    """The log after a continuation has written one more row."""
    logger = CSVLogger(folder, name="logs", version="")
    continue_log(logger, folder / "aside.csv", run, log_every)
    assert not (folder / "aside.csv").exists()
    logger.log_metrics({"train/loss": 0.25}, step=4)
    logger.save()
    with (folder / "logs" / "metrics.csv").open(newline="") as file:
        return [{key: value for key, value in row.items() if value} for row in csv.DictReader(file)]


OLD = [{"train/loss": "0.10000000149011612", "step": str(step)} for step in range(6)]
LAST = {"train/loss": "0.25", "step": "4"}


def test_a_continued_log_keeps_the_rows_before_the_state_word_for_word(tmp_path: Path) -> None:
    write_log(tmp_path / "logs" / "metrics.csv", OLD)
    assert continued(tmp_path, SavedRun(tmp_path, 4, {"train/loss": 0.5}, {})) == [*OLD[:4], LAST]


def test_a_row_that_the_kill_prevented_comes_from_the_state(tmp_path: Path) -> None:
    write_log(tmp_path / "logs" / "metrics.csv", [*OLD[:3], {"train/loss": "", "step": "3", "val/mrr": "1.0"}][:3])
    row = {"train/loss": "0.5", "epoch": "0", "step": "3"}
    assert continued(tmp_path, SavedRun(tmp_path, 4, {"train/loss": 0.5}, {})) == [*OLD[:3], row, LAST]
    # Every third step has a row: step 3 is none of them.
    write_log(tmp_path / "logs" / "metrics.csv", OLD[2:3])
    assert continued(tmp_path, SavedRun(tmp_path, 4, {"train/loss": 0.5}, {}), log_every=3) == [OLD[2], LAST]


def test_a_log_set_aside_by_a_continuation_that_was_killed_is_used(tmp_path: Path) -> None:
    write_log(tmp_path / "aside.csv", OLD)
    write_log(tmp_path / "logs" / "metrics.csv", OLD[:1])
    assert continued(tmp_path, SavedRun(tmp_path, 4, {}, {})) == [*OLD[:4], LAST]


def test_a_new_run_starts_an_empty_log(tmp_path: Path) -> None:
    write_log(tmp_path / "logs" / "metrics.csv", OLD)
    assert continued(tmp_path, None) == [LAST]


@pytest.mark.parametrize("torn", ["0,", "0", "\xff\xfe\x00", "0.5,1,2,3", ",x"])
def test_rows_that_do_not_read_are_left_out_and_kept_aside(tmp_path: Path, torn: str) -> None:
    path = tmp_path / "logs" / "metrics.csv"
    write_log(path, OLD[:4])
    path.write_bytes(path.read_bytes() + torn.encode("latin-1"))
    with pytest.warns(UserWarning, match=r"1 rows of .*metrics\.csv.* do not read.*metrics\.torn\.csv"):
        assert continued(tmp_path, SavedRun(tmp_path, 4, {}, {})) == [*OLD[:4], LAST]
    assert (tmp_path / "metrics.torn.csv").read_bytes().endswith(torn.encode("latin-1"))
