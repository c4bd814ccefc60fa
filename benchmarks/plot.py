"""The picture of `benchmarks.scaling`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any


def plot_scaling(points: Sequence[dict[str, Any]], path: Path, title: str) -> None:
    """Draws seconds against edges, both logarithmic, one line per mode, and writes a PNG; failed points are absent."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6.4, 4.2), layout="constrained")
    for mode in dict.fromkeys(point["mode"] for point in points):
        line = [point for point in points if point["mode"] == mode and "seconds" in point]
        edges, seconds = [p["edges"] for p in line], [p["seconds"]["median"] for p in line]
        if line:
            axes.loglog(edges, seconds, marker="o", label=mode)
    axes.set(xlabel="edges, inverses included", ylabel="seconds", title=title)
    axes.grid(True, which="major", alpha=0.3)
    if axes.lines:
        axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
