"""A checkpoint's README, written from what the run knows of itself."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Protocol

from torch import nn

from gfm.checkpoint.info import CheckpointInfo

CARD = "README.md"
# By this a card that a person wrote is told from one that may be written anew.
_WRITTEN = "<!-- written by gfm from config.json -->"
_RANKING = (
    "Held-out triples of knowledge graphs, ranked in both directions against all entities, without other true answers: "
    "`val/` of graphs that trained, `test/` of graphs that were never seen."
)
_USUAL_NAMES = ("checkpoint", "gnn-checkpoint")


class Described(Protocol):
    """What a card tells of."""

    @property
    def gnn(self) -> nn.Module:
        """The GNN."""

    @property
    def selector(self) -> nn.Module | None:
        """The selector, where one was trained."""

    @property
    def info(self) -> CheckpointInfo:
        """What is known of both."""


def write_model_card(checkpoint: Described, folder: Path, title: str = "") -> None:
    """Writes `README.md` beside the weights: form, encoder, origin, facts of the run and its metrics.

    A card that a person wrote stays.

    Args:
        checkpoint: a model with what it says of itself.
        folder: of the checkpoint.
        title: its heading, such as its id on the hub; the name of the folder, or of the run's, if empty.
    """
    path = folder / CARD
    if path.is_file() and _WRITTEN not in path.read_text(encoding="utf-8", errors="replace"):
        return
    place = folder.resolve()
    name = place.parent.name if place.name in _USUAL_NAMES else place.name
    temporary = folder / f"{CARD}.tmp"
    temporary.write_text(model_card(checkpoint, title or name, title or "FOLDER"), encoding="utf-8")
    os.replace(temporary, path)


def model_card(checkpoint: Described, title: str, source: str) -> str:
    """The card as Markdown.

    Args:
        checkpoint: a model with what it says of itself.
        title: its heading.
        source: what its reader loads it by.
    """
    info = checkpoint.info
    parts = [part for part in (checkpoint.gnn, checkpoint.selector) if part is not None]
    parameters = sum(parameter.numel() for part in parts for parameter in part.parameters())
    form = "zero-preserving" if info.model.zero_preserving else "LayerNorm and bias"
    size = f"hidden size {info.model.hidden_dim}, {info.model.num_layers} layers"
    facts = {
        "Model": f"{size}, {form}; {parameters:,} parameters",
        "Selector": f"yes, threshold {info.threshold:g}" if checkpoint.selector is not None else "none",
        "Encoder": f"`{info.encoder}`, {info.text_dim} dimensions, fingerprint `{info.encoder_fingerprint}`",
        "Phase": info.phase,
        "Data": f"fingerprint `{info.data_fingerprint}`" if info.data_fingerprint else "not recorded",
        "Trained from": f"weights with sha256 `{info.parent}`" if info.parent else "random weights",
    }
    training = {key: value for key, value in info.training.items() if key != "metrics"}
    facts |= {key.replace("_", " ").capitalize(): _text(value) for key, value in training.items()}
    lines = ["---", "library_name: gfm", "tags:", "- knowledge-graph", "- retrieval", "---"]
    lines += [f"# {title}", "", _WRITTEN, "", "| | |", "| --- | --- |"]
    lines += [f"| {key} | {_cell(value)} |" for key, value in facts.items()]
    lines += [
        "",
        "```python",
        "from gfm import GFMRetriever",
        "",
        f'GFMRetriever.from_pretrained("{source}", "INDEX")',
        "```",
    ]
    metrics = info.training.get("metrics")
    if isinstance(metrics, dict) and metrics and all(isinstance(row, dict) for row in metrics.values()):
        lines += ["", "## Results", "", _RANKING, "", *_table(metrics)]
    return "\n".join(lines) + "\n"


def _table(metrics: dict[str, dict[str, Any]]) -> list[str]:
    names = list(dict.fromkeys(name for row in metrics.values() for name in row))
    lines = [f"| | {' | '.join(names)} |", "| --- |" + " ---: |" * len(names)]
    for label, row in metrics.items():
        lines.append(f"| {_cell(label)} | {' | '.join(_text(row.get(name, '–')) for name in names)} |")
    return lines


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3f}"
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    return f"{value}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
