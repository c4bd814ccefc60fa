"""A run that was interrupted, wherever and however often, ends as one that was not: weights and all rows of the log."""

from __future__ import annotations

import csv
import re
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from filelock import FileLock

from gfm.training import run_state
from pretrain.module import PretrainModule
from tests.pretrain.test_run import ROOT, in_process, program, start, weights

__all__ = ["program"]  # a fixture


class Killed(BaseException):
    """Ends a run at once; nothing of ours catches it."""


def rows(out: Path) -> list[dict[str, str]]:
    """The log's rows without what is empty; the order of columns does not matter."""
    with (out / "logs" / "metrics.csv").open(newline="") as file:
        return [{key: value for key, value in row.items() if value} for row in csv.DictReader(file)]


@contextmanager
def killed_at(owner: Any, name: str, count: int, *, after: bool = False) -> Iterator[None]:
    """Within, the `count`-th call of `owner.name` kills the run, before it does anything or after it has."""
    calls, real = iter(range(1, 10_000)), getattr(owner, name)

    def counted(*args: Any, **kwargs: Any) -> Any:
        last = next(calls) == count
        if last and not after:
            raise Killed
        result = real(*args, **kwargs)
        if last:
            raise Killed
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, counted)
        with pytest.raises(Killed):
            yield


BATCH, VALIDATION = (PretrainModule, "training_step"), (PretrainModule, "validation_step")
STATE, EXPORT = (run_state, "replace_folder"), (sys.modules["pretrain.__main__"], "_export")
ACCUMULATED = ["trainer.accumulate=2", "trainer.save_every=2", "trainer.validate_every=0"]
PATIENT = ["trainer.patience=2", "optimizer.lr=0.0", "trainer.validate_every=2"]
TWICE = ["graphs=[{path: examples/graph, name: a, domain: x}, {path: examples/graph, name: b, domain: y}]"]

CASES: dict[str, tuple[list[str], list[tuple[tuple[Any, str], int, bool]]]] = {
    "twice, between the batches of one step": (ACCUMULATED, [(BATCH, 6, False), (BATCH, 2, False)]),
    "while a state is written, twice": (ACCUMULATED, [(STATE, 2, False), (STATE, 2, False)]),
    "after a state, before its validation": ([], [(STATE, 1, True)]),
    "during a validation": ([], [(VALIDATION, 1, False)]),
    "after a validation": ([], [(VALIDATION, 1, True)]),
    "with accumulation and validation": ([*ACCUMULATED[:2], "trainer.validate_every=3"], [(STATE, 3, True)]),
    "during the last ranking": (ACCUMULATED, [(VALIDATION, 1, False)]),
    "before the export": ([], [(EXPORT, 1, False)]),
    "in mixed precision": (["trainer.precision=bf16-mixed"], [(BATCH, 6, False)]),
    "with one graph in memory": ([*TWICE, "graphs_in_memory=1"], [(BATCH, 7, False)]),
    "where patience counts": (PATIENT, [(BATCH, 5, False)]),
    "where patience is at its end": (PATIENT, [(EXPORT, 1, False)]),
}


@pytest.mark.parametrize("case", CASES)
def test_an_interrupted_run_ends_as_one_that_was_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, case: str
) -> None:
    settings, kills = CASES[case]
    settings = ["trainer.max_steps=8", "trainer.save_every=4", "trainer.validate_every=4", *settings]
    whole = in_process(monkeypatch, f"out={tmp_path / 'whole'}", *settings)
    for (owner, name), count, after in kills:
        with killed_at(owner, name, count, after=after):
            in_process(monkeypatch, f"out={tmp_path / 'killed'}", *settings)
    killed = in_process(monkeypatch, f"out={tmp_path / 'killed'}", *settings)
    expected, got = weights(whole), weights(killed)
    assert all(torch.equal(expected[name], got[name]) for name in expected)
    assert rows(killed) == rows(whole)


def test_a_run_that_lost_patience_says_so_and_is_not_trained_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = [f"out={tmp_path / 'run'}", *PATIENT, "trainer.patience=1"]
    first = rows(in_process(monkeypatch, *settings))
    assert max(int(row["step"]) for row in first) == 4, "it did not stop early"
    assert "stopped at step 4: 1 validations without a better val/mrr than" in capsys.readouterr().err
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PretrainModule, "training_step", lambda *_: pytest.fail("it trains"))
        assert rows(in_process(monkeypatch, *settings)) == first


def test_a_run_that_stopped_between_the_batches_of_a_step_goes_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    settings = ["trainer.max_steps=8", *ACCUMULATED]
    whole = in_process(monkeypatch, f"out={tmp_path / 'whole'}", *settings)
    real = PretrainModule.training_step

    def stops(self: PretrainModule, batch: Any, batch_idx: int) -> torch.Tensor:
        self.trainer.should_stop = batch_idx == 6  # as when its minutes are over
        return real(self, batch, batch_idx)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PretrainModule, "training_step", stops)
        in_process(monkeypatch, f"out={tmp_path / 'timed'}", *settings)
    timed = in_process(monkeypatch, f"out={tmp_path / 'timed'}", *settings)
    assert all(torch.equal(tensor, weights(timed)[name]) for name, tensor in weights(whole).items())
    assert rows(timed) == rows(whole)


def test_a_finished_run_that_is_ranked_again_keeps_what_its_training_cost(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    settings = [f"out={tmp_path / 'run'}", "trainer.max_steps=4"]
    first = (in_process(monkeypatch, *settings) / "checkpoint" / "config.json").read_text()
    assert "steps_per_second" in first
    assert (in_process(monkeypatch, *settings) / "checkpoint" / "config.json").read_text() == first


def refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *settings: str) -> str:
    """The one line by which a run is refused."""
    with pytest.raises(SystemExit) as caught:
        in_process(monkeypatch, *settings)
    assert caught.value.code == 2
    error = capsys.readouterr().err.strip()
    assert error.startswith("error: ") and "\n" not in error
    return error


def test_a_run_does_not_go_on_with_other_data_or_another_beginning(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    graph = tmp_path / "kg"
    graph.mkdir()
    for split in ("train", "valid"):
        (graph / f"{split}.tsv").write_bytes((ROOT / "examples" / "graph" / f"{split}.tsv").read_bytes())
    settings = [f"graphs=[{{path: {graph}, name: kg}}]", "trainer.max_steps=4", f"out={tmp_path / 'run'}"]
    first = in_process(monkeypatch, *settings)
    more = [*settings[:2], f"out={tmp_path / 'more'}", f"checkpoint={first / 'checkpoint'}"]
    in_process(monkeypatch, *more)
    lines = (graph / "train.tsv").read_text().splitlines(keepends=True)
    (graph / "train.tsv").write_text("".join(lines[:100]))
    capsys.readouterr()
    assert "files of the graphs have changed" in refused(monkeypatch, capsys, *settings)
    in_process(monkeypatch, *settings, "resume=false")
    capsys.readouterr()
    assert "another content of checkpoint" in refused(monkeypatch, capsys, *more)


def test_a_run_goes_on_where_its_folder_was_moved_to(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys) -> None:
    before = weights(in_process(monkeypatch, f"out={tmp_path / 'run'}", "trainer.max_steps=4"))
    (tmp_path / "run").rename(tmp_path / "moved")
    moved = in_process(monkeypatch, f"out={tmp_path / 'moved'}", "trainer.max_steps=4")
    assert "going on from step 4" in capsys.readouterr().err
    assert all(torch.equal(before[name], tensor) for name, tensor in weights(moved).items())


def test_two_runs_in_one_folder_and_folders_that_are_none_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run").mkdir()
    with FileLock(tmp_path / "run" / ".lock"):
        assert "another run is writing" in refused(monkeypatch, capsys, f"out={tmp_path / 'run'}")
    (tmp_path / "file").write_text("x")
    for out in ("file", "file/run"):
        assert "nothing can be written" in refused(monkeypatch, capsys, f"out={tmp_path / out}")


@pytest.mark.parametrize("save_every", [1, 0])
def test_weights_that_left_the_finite_numbers_are_neither_saved_nor_exported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], save_every: int
) -> None:
    def poison(self: PretrainModule, *_: Any) -> None:
        with torch.no_grad():
            next(self.parameters()).fill_(torch.nan)

    monkeypatch.setattr(PretrainModule, "on_before_zero_grad", poison, raising=False)
    settings = [f"out={tmp_path / 'run'}", "validate_triples=0", f"trainer.save_every={save_every}"]
    error = refused(monkeypatch, capsys, *settings, "trainer.validate_every=0", "trainer.max_steps=2")
    assert "finite" in error and "optimizer.lr" in error
    assert not list(tmp_path.glob("run/state/step-*")) and not list(tmp_path.glob("run/checkpoint/*"))


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_a_run_with_its_code(program: Path, tmp_path: Path, sent: int, code: int) -> None:
    process = start(program, f"out={tmp_path / 'run'}", "trainer.max_steps=100000", "trainer.save_every=4")
    deadline = time.monotonic() + 120
    while not list((tmp_path / "run" / "state").glob("step-*")):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(sent)
    _, error = process.communicate(timeout=60)
    assert process.returncode == code and "Traceback" not in error
    assert re.search(r"stopped at step \d+; the same command goes on from step \d+", error)


def test_patience_without_anything_to_rank_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys) -> None:
    error = refused(monkeypatch, capsys, f"out={tmp_path / 'run'}", "trainer.patience=1", "validate_triples=0")
    assert "no training graph has triples to rank" in error
