"""`gfm checkpoint import-gfmrag`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gfm.cli.options import Json
from gfm.cli.output import print_info
from gfm.errors import InputError

app = typer.Typer(no_args_is_help=True, help="Import checkpoints of other programs.")


@app.callback()
def _group() -> None:
    """Import checkpoints of other programs."""


@app.command("import-gfmrag")
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
    print_info({"checkpoint": str(written), "encoder": used.name, "parameters": parameters}, json_output)
