"""Bootstrap: the mean is the mean, the interval brackets it, and a seed fixes it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gfm.errors import InputError
from gfm.evaluation.bootstrap import Estimate, summarise


def test_means_leave_out_questions_without_a_value():
    result = summarise([{"r": 1.0, "m": None}, {"r": 0.0, "m": 0.25}, {"r": None}, {"empty": None}])
    assert list(result) == ["r", "m"]
    assert (result["r"].mean, result["r"].count) == (0.5, 2)
    assert result["m"] == Estimate(0.25, 0.25, 0.25, 1)


def test_no_rows_give_no_estimates():
    assert summarise([]) == {}


def test_the_interval_is_that_of_a_mean_of_many_questions():
    values = np.random.default_rng(1).normal(0.4, 0.2, 400)
    estimate = summarise([{"x": v} for v in values], samples=2000)["x"]
    half = 1.96 * values.std() / 20
    assert estimate.low == pytest.approx(values.mean() - half, abs=0.003)
    assert estimate.high == pytest.approx(values.mean() + half, abs=0.003)


def test_the_seed_fixes_the_interval_whatever_other_metrics_there_are():
    rows = [{"a": i / 10, "b": (i / 10) ** 2} for i in range(10)]
    both = summarise(rows, seed=3)
    assert both == summarise(rows, seed=3)
    assert both["b"] == summarise([{"b": r["b"]} for r in rows], seed=3)["b"]
    assert both["b"] != summarise(rows, seed=4)["b"]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_the_interval_lies_within_the_values_and_the_mean_between_them(values):
    estimate = summarise([{"x": v} for v in values], samples=50)["x"]
    assert min(values) - 1e-12 <= estimate.low <= estimate.high <= max(values) + 1e-12
    assert estimate.mean == pytest.approx(np.mean(values))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_value_that_is_not_finite_is_named(value):
    with pytest.raises(InputError, match=f"recall of row 1 is {value}"):
        summarise([{"recall": 1.0}, {"recall": value}])


def test_samples_below_one_are_refused_with_their_value():
    with pytest.raises(InputError, match="samples is 0"):
        summarise([{"x": 1.0}], samples=0)
