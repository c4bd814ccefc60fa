"""A checkpoint's README, written from what the run knows of itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from torch import nn

from gfm.checkpoint.info import CheckpointInfo

CARD = "README.md"


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


def write_model_card(checkpoint: Described, folder: Path) -> None:
    """Writes `README.md` beside the weights: form, encoder, origin, facts of the run and its metrics."""
    (folder / CARD).write_text(model_card(checkpoint, folder.resolve().parent.name), encoding="utf-8")


def model_card(checkpoint: Described, title: str) -> str:
    """The card as Markdown.

    Args:
        checkpoint: a model with what it says of itself.
        title: its heading.
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
    lines = [f"# {title}", "", "| | |", "| --- | --- |"]
    lines += [f"| {key} | {_cell(value)} |" for key, value in facts.items()]
    lines += [
        "",
        "```python",
        "from gfm import GFMRetriever",
        "",
        f'GFMRetriever.from_pretrained("{title}", "INDEX")',
        "```",
    ]
    metrics = info.training.get("metrics")
    if isinstance(metrics, dict) and metrics and all(isinstance(row, dict) for row in metrics.values()):
        lines += ["", "## Results", "", *_table(metrics)]
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
