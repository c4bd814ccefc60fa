"""The command line: `gfm index build|info`, `gfm retrieve`, `gfm eval`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import track
from rich.table import Table

from gfm.config import IndexConfig, RetrievalConfig
from gfm.environment import ask_for_huge_pages
from gfm.errors import InputError

if TYPE_CHECKING:
    from gfm.types import Question, Retrieval

# The heavy modules are imported inside the commands: `gfm --help` answers at once.
app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
index_app = typer.Typer(no_args_is_help=True, help="Build and inspect indexes.")
app.add_typer(index_app, name="index")
checkpoint_app = typer.Typer(no_args_is_help=True, help="Import checkpoints of other programs.")
app.add_typer(checkpoint_app, name="checkpoint")

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


@app.callback()
def _root() -> None:
    """Retrieve minimal sufficient subgraphs, relational paths and documents for a question."""


@index_app.command("build")
def index_build(
    source: Annotated[Path, typer.Argument(help="Raw layout with OpenIE records, GFM-RAG files, or triples.")],
    out: Annotated[Path, typer.Option(help="Folder of the index.")],
    records: Annotated[Path | None, typer.Option(help="OpenIE records (JSONL) of a raw layout.")] = None,
    encoder: Encoder = None,
    synonym_threshold: Annotated[
        float, typer.Option(help="Cosine from which two entity names are linked as synonyms.")
    ] = IndexConfig.synonym_threshold,
    json_output: Json = False,
) -> None:
    """Build an index, or a new version of one, from SOURCE."""
    from gfm.kg.index import KGIndex
    from gfm.kg.sources import read_source
    from gfm.text.encoder import TextEncoder

    data = read_source(source, records)
    index = KGIndex.build(
        out,
        TextEncoder(encoder) if encoder else TextEncoder(),
        documents=data.documents,
        extractions=data.extractions,
        graph=data.graph,
        mentions=data.mentions,
        config=IndexConfig(synonym_threshold=synonym_threshold),
        reader_counts=data.reader_counts(),
        progress=sys.stderr.isatty(),
    )
    if not json_output and data.report is not None and data.report.malformed_triples:
        shown = "; ".join(str(example) for example in data.report.examples[:3])
        print(f"note: {data.report.malformed_triples} malformed triples left out, for example {shown}", file=sys.stderr)
    _print_info(index.info(), json_output)


@index_app.command("info")
def index_info(index: IndexFolder, json_output: Json = False) -> None:
    """Show what an index holds."""
    from gfm.kg.index import KGIndex

    _print_info(KGIndex.open(index).info(), json_output)


@checkpoint_app.command("import-gfmrag")
def checkpoint_import_gfm_rag(
    folder: Annotated[Path, typer.Argument(help="Holds GFM-RAG's config.json and model.pth.", metavar="FOLDER")],
    out: Annotated[Path, typer.Argument(help="Folder of the checkpoint.", metavar="OUT")],
    encoder: Annotated[
        str | None,
        typer.Option(help="The sentence encoder it was trained with: a folder or hub name; by default as it says."),
    ] = None,
    json_output: Json = False,
) -> None:
    """Turn a model that GFM-RAG v1 released into a checkpoint."""
    from gfm.checkpoint.foreign import gfm_rag_form, import_gfm_rag
    from gfm.text.encoder import TextEncoder

    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"{str(out)!r} is there already and holds something; give a new folder as OUT")
    trained_with = gfm_rag_form(folder).encoder
    try:
        used = TextEncoder(encoder or trained_with)
    except InputError as error:
        if encoder is not None:
            raise
        raise InputError(
            f"the model was trained with {trained_with!r}, which is not on this machine; copy it here and name its "
            "folder with --encoder"
        ) from error
    if used.name.rpartition("/")[2] != trained_with.rpartition("/")[2]:
        typer.echo(f"note: the model was trained with {trained_with!r}; {used.name!r} must be the same", err=True)
    checkpoint = import_gfm_rag(folder, used)
    written = checkpoint.save(out)
    parameters = sum(parameter.numel() for parameter in checkpoint.gnn.parameters())
    _print_info({"checkpoint": str(written), "encoder": used.name, "parameters": parameters}, json_output)


@app.command()
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
        _print_json(found.to_dict() | {"prompt": {"messages": prompt.messages, "tokens": prompt.tokens}})
    else:
        _print_retrieval(found, prompt.user)


@app.command("eval")
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
        _print_json(as_json(len(asked), table))
    else:
        _print_comparison(as_json(len(asked), table))


def main() -> None:
    """Runs the command line; a mistake of the user is one line on stderr and exit code 2."""
    ask_for_huge_pages()
    try:
        app()
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from None


def _bar(questions: Sequence[Question]) -> Iterable[Question]:
    return track(questions, "questions", console=Console(stderr=True), disable=not sys.stderr.isatty())


def _print_json(data: Any) -> None:
    print(json.dumps(data, ensure_ascii=False, indent=1))


def _print_info(info: dict[str, Any], json_output: bool) -> None:
    if json_output:
        _print_json(info)
        return
    table = Table(show_header=False, box=None)
    for key, value in info.items():
        shown = ", ".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else f"{value}"
        table.add_row(key.replace("_", " "), escape(shown))
    Console().print(table)


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
