"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
IndexFolder = Annotated[Path, typer.Argument(help="Index folder.", metavar="INDEX")]
Encoder = Annotated[
    str | None, typer.Option(help="Sentence encoder: the packaged MiniLM's name, a folder, or a hub name.")
]
Threshold = Annotated[
    float | None, typer.Option(help="Gate above which an entity is selected; the checkpoint's own if absent.")
]
DenseWeight = Annotated[
    float, typer.Option(help="Weight of dense similarity in document scores: 0 graph alone, 1 dense alone.")
]
FrontierBudget = Annotated[
    float | None,
    typer.Option(
        help="Entities that carry a state after each layer: a share below 1, or a whole number; all if absent."
    ),
]
Dtype = Annotated[str, typer.Option(help="float32, or bfloat16: half the memory, faster where the processor has it.")]
