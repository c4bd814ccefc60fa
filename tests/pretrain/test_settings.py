"""Settings reach the engine: each has an effect that can be counted or measured."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from pretrain.module import PretrainModule
from tests.pretrain.test_run import in_process, weights

SHORT = ["trainer.max_steps=3", "trainer.validate_every=0", "validate_triples=0", "trainer.save_every=0"]


def test_a_step_takes_as_many_batches_as_it_accumulates(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    steps: list[int] = []
    real = PretrainModule.training_step
    monkeypatch.setattr(
        PretrainModule, "training_step", lambda self, batch, i: steps.append(batch.step) or real(self, batch, i)
    )
    in_process(monkeypatch, f"out={tmp_path / 'run'}", *SHORT, "trainer.accumulate=4")
    assert steps == list(range(12))


def test_gradients_are_clipped_to_the_norm_that_is_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    norms: list[float] = []

    def seen(self: PretrainModule, *_: object) -> None:
        gradients = [parameter.grad for parameter in self.parameters() if parameter.grad is not None]
        norms.append(float(torch.nn.utils.get_total_norm(gradients)))

    monkeypatch.setattr(PretrainModule, "on_before_zero_grad", seen, raising=False)
    in_process(monkeypatch, f"out={tmp_path / 'clipped'}", *SHORT, "trainer.gradient_clip=0.001")
    clipped = [norm for norm in norms if norm]
    norms.clear()
    in_process(monkeypatch, f"out={tmp_path / 'free'}", *SHORT, "trainer.gradient_clip=0")
    free = [norm for norm in norms if norm]
    assert clipped == pytest.approx([0.001] * len(clipped), rel=1e-3) and len(clipped) >= 2
    assert min(free) > 0.01


def test_the_seed_decides_the_weights(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    runs = [
        weights(in_process(monkeypatch, f"out={tmp_path / name}", *SHORT, f"seed={seed}"))
        for name, seed in (("a", 5), ("b", 5), ("c", 4_294_967_295))
    ]
    assert all(torch.equal(tensor, runs[1][name]) for name, tensor in runs[0].items())
    assert not all(torch.equal(tensor, runs[2][name]) for name, tensor in runs[0].items())
