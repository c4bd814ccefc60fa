"""The pretraining stage as a program: tiny.yaml, resumed after a kill, over two processes, as a sweep."""

from __future__ import annotations

import csv
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file

from gfm.config import TrainerConfig
from gfm.errors import InputError
from gfm.files import content_fingerprint, sha256
from gfm.training.tracking import make_logger
from pretrain.__main__ import main
from tests.fakes import HashEncoder

ROOT = Path(__file__).resolve().parents[2]
TINY = "configs/pretrain/tiny.yaml"

# Runs the stage with an encoder that needs no model. A file: Lightning starts its other processes by `sys.argv`.
PROGRAM = """
import sys
sys.path.insert(0, {root!r})
import pretrain.__main__ as stage
from tests.fakes import HashEncoder
stage.TextEncoder = lambda *_, **__: HashEncoder()
stage.main()
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM.format(root=str(ROOT)), encoding="utf-8")
    return path


def start(program: Path, *overrides: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "WANDB_MODE": "offline", "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    command = [sys.executable, str(program), "--config", TINY, "trainer.progress=false", *overrides]
    return subprocess.Popen(
        command, cwd=ROOT, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def finish(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err[-3000:]
    return out


def weights(out: Path) -> dict[str, torch.Tensor]:
    return load_file(out / "checkpoint" / "model.safetensors")


def losses(out: Path) -> list[tuple[str, str]]:
    with (out / "logs" / "metrics.csv").open(newline="") as file:
        return [(row["step"], row["train/loss"]) for row in csv.DictReader(file) if row["train/loss"]]


def in_process(monkeypatch: pytest.MonkeyPatch, *overrides: str) -> Path:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("pretrain.__main__.TextEncoder", lambda *_, **__: HashEncoder())
    return main(["--config", TINY, "trainer.progress=false", *overrides]).parent


def test_tiny_trains_validates_and_exports(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    out = in_process(monkeypatch, f"out={tmp_path / 'run'}")
    metrics = json.loads((out / "metrics.json").read_text())
    assert metrics["val/graph"]["queries"] == 80 and 0 < metrics["val/graph"]["mrr"] < 1
    with (out / "logs" / "metrics.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["step"] for row in rows if row["train/loss"]] == [str(step) for step in range(20)]
    assert {row["step"] for row in rows if row["val/graph/mrr"]} >= {"9", "19"}
    assert all(row["val/mrr"] == row["val/graph/mrr"] for row in rows)
    assert all(float(row["train/grad_norm"]) > 0 for row in rows if row.get("train/grad_norm"))
    assert sorted(path.name for path in (out / "state").iterdir()) == ["step-000000010", "step-000000020"]
    config = json.loads((out / "checkpoint" / "config.json").read_text())
    files = sorted((ROOT / "examples" / "graph").glob("*.tsv"))
    of_graph = content_fingerprint(f"{path.stem} {sha256(path)}" for path in files)
    assert config["data_fingerprint"] == content_fingerprint([of_graph])
    assert config["training"]["steps"] == 20 and config["training"]["peak_memory_gb"] > 0.05


def test_a_finished_run_is_not_trained_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys) -> None:
    out = in_process(monkeypatch, f"out={tmp_path / 'run'}")
    before, logged = weights(out), losses(out)
    assert "going on" not in capsys.readouterr().err
    in_process(monkeypatch, f"out={tmp_path / 'run'}")
    assert "going on from step 20" in capsys.readouterr().err
    assert all(torch.equal(before[name], tensor) for name, tensor in weights(out).items())
    assert losses(out) == logged


def test_another_setting_in_the_same_folder_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys) -> None:
    in_process(monkeypatch, f"out={tmp_path / 'run'}")
    with pytest.raises(SystemExit) as caught:
        in_process(monkeypatch, f"out={tmp_path / 'run'}", "optimizer.lr=0.5")
    assert caught.value.code == 2
    assert "holds a run with another optimizer.lr" in capsys.readouterr().err
    in_process(monkeypatch, f"out={tmp_path / 'run'}", "optimizer.lr=0.5", "resume=false")


def test_phase_two_continues_and_logs_its_terms(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    first = in_process(monkeypatch, f"out={tmp_path / 'one'}")
    graphs = "graphs=[{path: examples/graph, name: a, domain: x}, {path: examples/graph, name: b, domain: y}]"
    out = in_process(monkeypatch, f"out={tmp_path / 'two'}", "phase=2", f"checkpoint={first / 'checkpoint'}", graphs)
    with (out / "logs" / "metrics.csv").open(newline="") as file:
        row = next(csv.DictReader(file))
    terms = {name: float(row[f"train/{name}"]) for name in ("loss", "bce", "rank", "proto", "igc")}
    want = 0.3 * terms["bce"] + 0.7 * terms["rank"] + 0.1 * terms["proto"] + 0.01 * terms["igc"]
    assert terms["loss"] == pytest.approx(want, rel=1e-5)
    config = json.loads((out / "checkpoint" / "config.json").read_text())
    parent = json.loads((first / "checkpoint" / "config.json").read_text())
    assert config["phase"] == "pretrain-2" and config["parent"] == parent["sha256"]


@pytest.mark.parametrize("strategy", ["fsdp", "deepspeed_stage_2", "deepspeed_stage_3"])
def test_an_engine_that_needs_cuda_is_refused_at_once_without_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys, strategy: str
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit):
        in_process(monkeypatch, f"out={tmp_path / 'run'}", f"trainer.strategy={strategy}")
    error = capsys.readouterr().err
    assert "needs CUDA" in error and "use trainer.strategy=ddp" in error and error.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_a_batch_that_devices_cannot_share_is_refused() -> None:
    from gfm.config import PretrainConfig
    from gfm.config_files import load_config

    with pytest.raises(InputError, match="batch_size' is 4 for 3 devices"):
        load_config(ROOT / TINY, ["trainer.devices=3"], PretrainConfig)


def test_a_killed_run_goes_on_as_if_it_had_never_been_interrupted(program: Path, tmp_path: Path) -> None:
    settings = ["trainer.max_steps=40", "trainer.save_every=4", "trainer.accumulate=2"]
    whole = start(program, f"out={tmp_path / 'whole'}", *settings)
    killed = start(program, f"out={tmp_path / 'killed'}", *settings)
    deadline = time.monotonic() + 120
    while not list((tmp_path / "killed" / "state").glob("step-*")):
        assert killed.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert not (tmp_path / "killed" / "checkpoint").exists(), "it was killed too late"
    finish(start(program, f"out={tmp_path / 'killed'}", *settings))
    finish(whole)
    expected, got = weights(tmp_path / "whole"), weights(tmp_path / "killed")
    assert all(torch.equal(expected[name], got[name]) for name in expected)
    assert losses(tmp_path / "killed") == losses(tmp_path / "whole")
    assert len(losses(tmp_path / "whole")) == 40


def test_two_processes_train_as_one_does(monkeypatch: pytest.MonkeyPatch, program: Path, tmp_path: Path) -> None:
    first = in_process(monkeypatch, f"out={tmp_path / 'first'}", "trainer.max_steps=2")
    graphs = "graphs=[{path: examples/graph, name: a, domain: x}, {path: examples/graph, name: b, domain: y}]"
    settings = [
        "phase=2",
        f"checkpoint={first / 'checkpoint'}",
        graphs,
        "trainer.max_steps=8",
        "trainer.validate_every=4",
    ]
    finish(start(program, f"out={tmp_path / 'one'}", *settings))
    finish(start(program, f"out={tmp_path / 'two'}", *settings, "trainer.devices=2", "trainer.strategy=ddp"))
    one, two = (losses(tmp_path / name) for name in ("one", "two"))
    assert [float(loss) for _, loss in one] == pytest.approx([float(loss) for _, loss in two], rel=1e-4)
    expected, got = weights(tmp_path / "one"), weights(tmp_path / "two")
    for name in expected:
        torch.testing.assert_close(got[name], expected[name], rtol=1e-3, atol=1e-5)
    ranked = [json.loads((tmp_path / name / "metrics.json").read_text())["val/a"] for name in ("one", "two")]
    assert ranked[0]["queries"] == ranked[1]["queries"] == 80
    assert ranked[0]["mrr"] == pytest.approx(ranked[1]["mrr"], abs=0.02)


def expand(sweep: dict) -> list[list[str]]:
    """The command lines of a grid sweep, as an agent builds them."""
    names = list(sweep["parameters"])
    grid = itertools.product(*(sweep["parameters"][name]["values"] for name in names))
    lines = []
    for values in grid:
        arguments = [f"{name}={value}" for name, value in zip(names, values, strict=True)]
        line: list[str] = []
        for word in sweep["command"]:
            if word == "${args_no_hyphens}":
                line += arguments
            elif word not in ("${env}", "${interpreter}"):
                line.append(word)
        lines.append(line)
    return lines


def test_a_grid_sweep_runs_without_a_server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    sweep = yaml.safe_load((ROOT / "configs" / "sweeps" / "pretrain_tiny.yaml").read_text())
    lines = expand(sweep)
    assert len(lines) == 4
    outs = []
    for number, line in enumerate(lines):
        assert line[:2] == ["-m", "pretrain"]
        monkeypatch.setenv("WANDB_RUN_ID", f"run{number}")
        monkeypatch.chdir(ROOT)
        monkeypatch.setattr("pretrain.__main__.TextEncoder", lambda *_, **__: HashEncoder())
        where = [word for word in line[2:] if word.startswith("out=")]
        assert len(where) == 1 and "WANDB_RUN_ID" in where[0]
        line = [word for word in line[2:] if word != "trainer.logger=wandb"]
        line[line.index(where[0])] = where[0].replace("outputs", str(tmp_path))
        outs.append(main([*line, "trainer.max_steps=4", "trainer.progress=false"]).parent)
    assert len(set(outs)) == 4
    configs = [yaml.safe_load((out / "config.yaml").read_text()) for out in outs]
    assert {(c["optimizer"]["lr"], c["loss"]["alpha_bce"]) for c in configs} == {
        (0.001, 0.3),
        (0.001, 0.7),
        (0.01, 0.3),
        (0.01, 0.7),
    }


def test_wandb_offline_holds_config_metrics_and_the_checkpoint(program: Path, tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    finish(start(program, f"out={tmp_path / 'run'}", "trainer.logger=wandb", "trainer.max_steps=4"))
    files = [path for path in (tmp_path / "run" / "wandb").rglob("*") if path.is_file()]
    (record,) = [path for path in files if path.suffix == ".wandb"]
    content = record.read_bytes()
    for text in (b"train/loss", b"train/grad_norm", b"graph_temperature", b"model.safetensors"):
        assert text in content
    run_id = (tmp_path / "run" / "state" / "wandb-run-id").read_text()
    assert record.name == f"run-{run_id}.wandb"


def test_only_a_run_that_goes_on_keeps_its_name_at_wandb(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "wandb-run-id").write_text("abc123")
    for continues, name in ((True, "abc123"), (False, None)):
        logger = make_logger(TrainerConfig(logger="wandb"), tmp_path, continues=continues)
        assert logger is not None and logger.version == name


def launched(program: Path, out: Path, *launcher: str) -> Path:
    """Runs two processes of the stage by a launcher."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    settings = ["--config", TINY, "trainer.progress=false", "trainer.max_steps=4", "trainer.devices=2", f"out={out}"]
    command = [sys.executable, "-m", *launcher, str(program), *settings]
    done = subprocess.run(command, cwd=ROOT, env=environment, text=True, capture_output=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return out


def test_every_launcher_trains_the_same(program: Path, tmp_path: Path) -> None:
    torchrun = launched(program, tmp_path / "torchrun", "torch.distributed.run", "--nproc-per-node", "2")
    fabric = launched(program, tmp_path / "fabric", "lightning.fabric.cli", "--accelerator", "cpu", "--devices", "2")
    finish(start(program, f"out={tmp_path / 'plain'}", "trainer.max_steps=4", "trainer.devices=2"))
    plain = tmp_path / "plain"
    for out in (torchrun, fabric):
        assert losses(out) == losses(plain)
        assert all(torch.equal(weights(out)[name], tensor) for name, tensor in weights(plain).items())
