"""Means over questions with the uncertainty that comes from having seen only these questions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gfm.errors import InputError


@dataclass(frozen=True)
class Estimate:
    """A mean over `count` questions and the ends of its 95% interval."""

    mean: float
    low: float
    high: float
    count: int


def summarise(rows: Sequence[Mapping[str, float | None]], *, seed: int = 0, samples: int = 1000) -> dict[str, Estimate]:
    """Mean and 95% percentile bootstrap interval of every metric over questions.

    Questions where a metric is None or absent are left out of that metric; one that no question has is
    left out of the result. Every metric draws from its own generator with the same seed, so its interval does
    not depend on which others are there.

    Args:
        rows: metrics by name, one row per question.
        seed: of the resampling.
        samples: resampled means per metric.

    Returns:
        Estimates by metric, in order of first appearance.

    Raises:
        InputError: `samples` is below 1, or a value is NaN or infinite.
    """
    if samples < 1:
        raise InputError(f"samples is {samples}; give a whole number of at least 1")
    values: dict[str, list[float]] = {}
    for number, row in enumerate(rows):
        for name, value in row.items():
            if value is None:
                continue
            if not np.isfinite(value):
                raise InputError(f"{name} of row {number} is {value}; give a finite number, or None for no value")
            values.setdefault(name, []).append(float(value))
    return {name: _estimate(np.array(column), seed, samples) for name, column in values.items()}


def _estimate(values: np.ndarray, seed: int, samples: int) -> Estimate:
    generator = np.random.default_rng(seed)
    count = len(values)
    means = np.array([values[generator.integers(count, size=count)].mean() for _ in range(samples)])
    low, high = np.quantile(means, [0.025, 0.975])
    return Estimate(mean=float(values.mean()), low=float(low), high=float(high), count=count)
