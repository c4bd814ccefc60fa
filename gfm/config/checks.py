"""Bounds that a setting must keep; what breaks one is named with its value."""

from __future__ import annotations

import math

from gfm.errors import InputError


def within(key: str, value: float, low: float, high: float = math.inf) -> None:
    """Refuses a number outside `[low, high]`, infinite, or NaN; `key` is what the user writes in a config."""
    if not (low <= value <= high and math.isfinite(value)):  # also refuses NaN
        bounds = f"at least {low:g} and finite" if high == math.inf else f"between {low:g} and {high:g}"
        raise InputError(f"config key {key!r} is {value}; it must be {bounds}")


def one_of(key: str, value: str, *choices: str) -> None:
    """Refuses a text that is none of `choices`."""
    if value not in choices:
        raise InputError(f"config key {key!r} is {value!r}; use {' or '.join(choices)}")
