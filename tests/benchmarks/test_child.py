"""A case in its own process: what comes back, also when nothing does."""

from __future__ import annotations

import os
import sys

import pytest

from benchmarks.child import OUT_OF_MEMORY, run_case


def test_a_case_gets_its_arguments_in_another_process_with_huge_pages() -> None:
    result = run_case("tests.benchmarks.cases:echo", {"name": "é", "sizes": [1, 2], "budget": None})
    assert result.pop("pid") != os.getpid()
    assert result == {"name": "é", "sizes": [1, 2], "budget": None, "huge_pages": "1"}


@pytest.mark.parametrize(
    ("function", "arguments", "reason"),
    [
        ("leave", {"code": 7}, "exit code 7"),
        ("fail", {}, "exit code 1"),
        ("be_killed", {}, OUT_OF_MEMORY),
        ("take_everything", {}, OUT_OF_MEMORY),
    ],
)
def test_a_child_that_dies_is_reported_as_such(function: str, arguments: dict[str, int], reason: str) -> None:
    result = run_case(f"tests.benchmarks.cases:{function}", arguments)
    assert result["failed"] == reason
    if function == "fail":
        assert result["detail"] == "KeyError: 'a defect'"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux resets the high-water mark of memory")
def test_the_peak_counts_what_was_held_above_the_inputs_and_nothing_from_before() -> None:
    result = run_case("tests.benchmarks.cases:hold", {"megabytes": 200, "before": 400})
    assert result["peak_gb"] == pytest.approx(0.2, rel=0.2)
    assert result["process_gb"] > 0.41
