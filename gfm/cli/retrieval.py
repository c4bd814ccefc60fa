"""`gfm retrieve`, `gfm eval`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import track
from rich.table import Table

from gfm.cli.options import DenseWeight, Dtype, Encoder, FrontierBudget, IndexFolder, Json, Threshold
from gfm.cli.output import print_json
from gfm.config import RetrievalConfig

if TYPE_CHECKING:
    from gfm.types import Question, Retrieval


def retrieve(
    index: IndexFolder,
    question: Annotated[str, typer.Argument(help="The question.")],
    checkpoint: Annotated[str, typer.Option(help="Checkpoint folder or hub id.")],
    top_k: Annotated[int, typer.Option(help="Documents to return.")] = 5,
    threshold: Threshold = None,
    dense_weight: DenseWeight = RetrievalConfig.dense_weight,
    frontier_budget: FrontierBudget = None,
    dtype: Dtype = RetrievalConfig.dtype,
    budget_tokens: Annotated[int, typer.Option(help="Tokens of the prompt.")] = 2000,
    encoder: Encoder = None,
    json_output: Json = False,
) -> None:
    """Answer QUESTION with a subgraph, paths, documents and the prompt they make."""
    from gfm.retrieval.base import check_question
    from gfm.retrieval.gfm_retriever import GFMRetriever
    from gfm.text.encoder import TextEncoder

    check_question(question, top_k)
    config = RetrievalConfig(
        threshold=threshold, dense_weight=dense_weight, frontier_budget=frontier_budget, dtype=dtype
    )
    retriever = GFMRetriever.from_pretrained(checkpoint, index, TextEncoder(encoder) if encoder else None, config)
    found = retriever.retrieve(question, top_k)
    prompt = found.prompt(budget_tokens)
    if json_output:
        print_json(found.to_dict() | {"prompt": {"messages": prompt.messages, "tokens": prompt.tokens}})
    else:
        _print_retrieval(found, prompt.user)


def evaluate(
    index: IndexFolder,
    questions: Annotated[Path, typer.Argument(help="Questions with supporting documents (JSON).", metavar="QUESTIONS")],
    checkpoint: Annotated[
        str | None, typer.Option(help="Checkpoint folder or hub id; without it only baselines.")
    ] = None,
    threshold: Threshold = None,
    dense_weight: DenseWeight = RetrievalConfig.dense_weight,
    frontier_budget: FrontierBudget = None,
    dtype: Dtype = RetrievalConfig.dtype,
    encoder: Encoder = None,
    json_output: Json = False,
) -> None:
    """Measure retrieval on QUESTIONS beside BM25 and the dense encoder."""
    from gfm.evaluation.compare import as_json, bm25_method, compare, dense_method, gfm_method
    from gfm.kg.index import KGIndex
    from gfm.kg.readers import read_questions
    from gfm.retrieval.gfm_retriever import GFMRetriever
    from gfm.text.encoder import TextEncoder

    asked = read_questions(questions)
    opened = KGIndex.open(index)
    used = TextEncoder(encoder or opened.encoder_name)
    methods = []
    if checkpoint is not None:
        config = RetrievalConfig(
            threshold=threshold, dense_weight=dense_weight, frontier_budget=frontier_budget, dtype=dtype
        )
        methods.append(gfm_method(GFMRetriever.from_pretrained(checkpoint, opened, used, config)))
    methods += [bm25_method(opened), dense_method(opened, used)]
    table = compare(opened, asked, methods, _bar)
    if json_output:
        print_json(as_json(len(asked), table))
    else:
        _print_comparison(as_json(len(asked), table))


def _bar(questions: Sequence[Question]) -> Iterable[Question]:
    return track(questions, "questions", console=Console(stderr=True), disable=not sys.stderr.isatty())


def _print_retrieval(found: Retrieval, prompt: str) -> None:
    from gfm.generation.prompt import one_line  # names are data: no control character reaches the terminal

    console = Console(highlight=False, soft_wrap=True)

    def section(title: str, lines: Iterable[str]) -> None:
        console.print(f"[bold]{escape(title)}[/bold]")
        for line in lines:
            console.print(f"  {escape(one_line(line))}")

    for note in found.notes:
        console.print(f"note: {escape(note)}")
    section("Seeds", (f"{seed.name} ({seed.reason}, {seed.score:.2f})" for seed in found.seeds))
    kept = f"Subgraph: {len(found.entities)} entities, {len(found.edges)} edges"
    section(kept, (f"{entity.gate:.2f}  {entity.name}" for entity in found.entities[:15]))
    section("Paths", (f"{path.score:.2f}  {path.text()}" for path in found.paths[:10]))
    section("Documents", (f"{document.score:.3f}  {document.title}" for document in found.documents))
    section("Seconds", [", ".join(f"{step} {seconds:.3f}" for step, seconds in found.timings.items())])
    console.print("[bold]Prompt[/bold]")
    console.print(escape(prompt))


def _print_comparison(data: dict[str, Any]) -> None:
    metrics = list(dict.fromkeys(m for values in data["methods"].values() for m in values if m != "intervals"))
    table = Table(
        "method", *(m.replace("_", " ") for m in metrics), title=f"{data['questions']} questions; % with 95% interval"
    )
    for name, values in data["methods"].items():
        table.add_row(name, *(_cell(metric, values) for metric in metrics))
    Console(width=None if sys.stdout.isatty() else 200).print(table)


def _cell(metric: str, values: dict[str, Any]) -> str:
    if metric not in values:
        return "–"
    scale = 1 if metric == "selected_entities" else 100
    low, high = values["intervals"][metric]
    return f"{scale * values[metric]:.1f} [{scale * low:.1f}, {scale * high:.1f}]"
