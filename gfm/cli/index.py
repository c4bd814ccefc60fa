"""`gfm index build|add|update|delete|info|verify|compact`."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gfm.cli.options import Encoder, IndexFolder, Json
from gfm.cli.output import print_info, print_json
from gfm.errors import InputError

if TYPE_CHECKING:
    from gfm.kg.changes import Changes
    from gfm.kg.sources import Source

app = typer.Typer(no_args_is_help=True, help="Build, change, inspect and check indexes.")

Documents = Annotated[
    Path, typer.Argument(help="Documents: a folder or a .json, .jsonl, .txt or .md file.", metavar="SOURCE")
]
Records = Annotated[Path | None, typer.Option(help="OpenIE records (JSONL) of the documents, instead of extraction.")]
Settings = Annotated[
    list[str] | None,
    typer.Argument(
        help="Any setting, for example graph.synonym_threshold=0.9 or extraction.llm.model=NAME.", metavar="KEY=VALUE"
    ),
]


@app.command("build")
def index_build(
    source: Annotated[
        Path, typer.Argument(help="Documents (a folder or file), GFM-RAG files, or triples.", metavar="SOURCE")
    ],
    out: Annotated[Path, typer.Option(help="Folder of the index.")],
    settings: Settings = None,
    extractor: Annotated[
        str | None,
        typer.Option(help="spacy (offline), llm, or records; by default records that lie in SOURCE, else spacy."),
    ] = None,
    records: Records = None,
    encoder: Encoder = None,
    synonym_threshold: Annotated[
        float | None, typer.Option(help="Cosine from which two entity names are linked as synonyms; 0.85 if absent.")
    ] = None,
    config: Annotated[Path | None, typer.Option(help="YAML with settings.")] = None,
    tables: Annotated[
        str | None, typer.Option(help="Where the tables go: an object store's URI; by default into the folder.")
    ] = None,
    json_output: Json = False,
) -> None:
    """Build an index from SOURCE, or bring an existing one up to date with it."""
    from gfm.config import BuildConfig
    from gfm.config_files import load_config
    from gfm.kg.building import build_from

    cfg = load_config(config, settings or (), BuildConfig)
    cfg.extraction.extractor = extractor or cfg.extraction.extractor
    cfg.encoder.name = encoder or cfg.encoder.name
    if synonym_threshold is not None:
        cfg.graph.synonym_threshold = synonym_threshold
    for part in (cfg.extraction, cfg.graph):
        part.__post_init__()  # the options above have not been checked
    built = build_from(source, out, cfg, records=records, tables=tables, progress=sys.stderr.isatty())
    _note_malformed(built.source)
    _report(out, built.changes, json_output)


@app.command("add")
def index_add(index: IndexFolder, source: Documents, records: Records = None, json_output: Json = False) -> None:
    """Add documents; a title that is there with another text is refused."""
    from gfm.kg.building import change_from

    changed = change_from(index, source, records=records, may_replace=False, progress=sys.stderr.isatty())
    _note_malformed(changed.source)
    _report(index, changed.changes, json_output)


@app.command("update")
def index_update(index: IndexFolder, source: Documents, records: Records = None, json_output: Json = False) -> None:
    """Add documents, in place of those with the same titles."""
    from gfm.kg.building import change_from

    changed = change_from(index, source, records=records, may_replace=True, progress=sys.stderr.isatty())
    _note_malformed(changed.source)
    _report(index, changed.changes, json_output)


@app.command("delete")
def index_delete(
    index: IndexFolder,
    titles: Annotated[list[str] | None, typer.Argument(help="Titles of the documents.", metavar="TITLE")] = None,
    titles_from: Annotated[Path | None, typer.Option(help="File with a title a line, besides TITLE.")] = None,
    json_output: Json = False,
) -> None:
    """Delete documents; what they alone said leaves the graph."""
    from gfm.kg.building import encoder_of
    from gfm.kg.readers.files import lines_of, read_text
    from gfm.kg.writer import delete_documents

    wanted = list(titles or ())
    if titles_from is not None:
        wanted += [line for _, line in lines_of(read_text(titles_from)) if line.strip()]
    if not wanted:
        raise InputError("no title was given; name the documents to delete, or a file of titles with --titles-from")
    changes = delete_documents(index, wanted, encoder_of(index), progress=sys.stderr.isatty())
    _report(index, changes, json_output)


@app.command("info")
def index_info(
    index: IndexFolder,
    questions: Annotated[
        Path | None,
        typer.Option(help="Questions with supporting documents: shows how many of these the graph leads to."),
    ] = None,
    json_output: Json = False,
) -> None:
    """Show what an index holds."""
    from gfm.kg.index import KGIndex

    opened = KGIndex.open(index)
    info = opened.info()
    if questions is not None:
        from gfm.evaluation.coverage import seed_coverage
        from gfm.kg.building import encoder_of
        from gfm.kg.readers import read_questions

        info["coverage"] = seed_coverage(opened, read_questions(questions), encoder_of(index)).to_dict()
    print_info(info, json_output)


@app.command("verify")
def index_verify(
    index: IndexFolder,
    repair: Annotated[bool, typer.Option("--repair", help="Derive everything anew from the tables.")] = False,
    json_output: Json = False,
) -> None:
    """Check an index against its tables; exit code 1 if anything is wrong."""
    from gfm.kg.building import encoder_of
    from gfm.kg.verify import repair_index, verify_index

    if repair:
        repair_index(index, encoder_of(index), progress=sys.stderr.isatty())
    problems = verify_index(index, progress=sys.stderr.isatty())
    if json_output:
        print_json({"path": str(index), "problems": problems})
    else:
        for problem in problems or ["nothing is wrong"]:
            print(problem)
    if problems:
        raise typer.Exit(1)


@app.command("compact")
def index_compact(index: IndexFolder, json_output: Json = False) -> None:
    """Remove what no document uses any more: old versions, extractions and embeddings of deleted documents."""
    from gfm.kg.verify import compact_index

    before, after = compact_index(index)
    print_info({"path": str(index), "bytes_before": before, "bytes_on_disk": after}, json_output)


def _note_malformed(source: Source) -> None:
    if source.report is not None and source.report.malformed_triples:
        shown = "; ".join(str(example) for example in source.report.examples[:3])
        print(
            f"note: {source.report.malformed_triples} malformed triples left out, for example {shown}", file=sys.stderr
        )


def _report(index: Path, changes: Changes | None, json_output: bool) -> None:
    from gfm.kg.index import KGIndex

    info = KGIndex.open(index).info()
    if json_output:
        print_json(info | ({"changes": asdict(changes)} if changes else {}))
        return
    done: dict[str, Any] = {}
    if changes is not None:
        done = {name: len(values) for name, values in asdict(changes).items() if values}
        for titles in changes.duplicates[:3]:
            print(f"note: these documents have the same text: {', '.join(map(repr, titles[:5]))}", file=sys.stderr)
    if info.get("failed_documents"):
        print(
            f"note: {info['failed_documents']} documents could not be extracted; `gfm index verify` names them, the "
            "next build, add or update tries them again",
            file=sys.stderr,
        )
    print_info(info | ({"changes": done} if done else {}), False)
