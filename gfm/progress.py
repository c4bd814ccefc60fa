"""Progress on long work: a bar on stderr with rate and time left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter


class Stopwatch:
    """Seconds by stage, for the tables that tell where time went."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Adds the time that the block takes to the stage; stages must not be nested."""
        begin = perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + perf_counter() - begin


@contextmanager
def progress_bar(name: str, total: int, unit: str, shown: bool) -> Iterator[Callable[[int], None]]:
    """Yields a function that moves the bar by a number of units.

    Args:
        name: what is being done, for example `"embedding"`.
        total: units of work; no bar is drawn for none.
        unit: what is counted, in the plural.
        shown: False draws nothing (a log file, `--json` in a pipe).
    """
    if not shown or not total:
        yield lambda count: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[unit]}, {task.fields[rate]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(name, total=total, unit=unit, rate="")

        def advance(count: int) -> None:
            progress.advance(task, count)
            speed = progress.tasks[0].finished_speed or progress.tasks[0].speed
            if speed:
                progress.update(task, rate=f"{speed:.0f}/s" if speed >= 10 else f"{speed:.1f}/s")

        yield advance
