"""Documents as people have them: text files in a folder, JSON, JSON lines."""

from __future__ import annotations

import os
from pathlib import Path

from gfm.errors import InputError
from gfm.kg.readers.files import check_text, lines_of, parse_json, read_text, shorten
from gfm.kg.readers.qa import read_documents
from gfm.types import Document

TEXT_FILES = (".txt", ".md")


def read_document_files(path: str | os.PathLike[str]) -> list[Document]:
    """Reads documents from a file, or from all text files of a folder.

    Args:
        path: `.json` (`{title: text}`), `.jsonl` (an object with `title`, or `id`, and `text` a line), a `.txt` or
            `.md` file (its name without the ending is the title), or a folder: every such text file in it and below,
            hidden ones left out, with its path below the folder as title.

    Returns:
        Documents in file order, or by path; empty for a folder without text files.

    Raises:
        InputError: a file that cannot be read as what its ending says, or two files that give one title.
    """
    path = Path(path)
    if path.is_dir():
        return _folder(path)
    suffix = path.suffix.lower()
    if suffix == ".json":
        return read_documents(path)
    if suffix == ".jsonl":
        return _lines(path)
    return [Document(path.stem, read_text(path))]


def _folder(folder: Path) -> list[Document]:
    found: dict[str, Path] = {}
    for file in sorted(folder.rglob("*")):
        inside = file.relative_to(folder)
        if file.suffix.lower() not in TEXT_FILES or any(part.startswith(".") for part in inside.parts):
            continue
        if not file.is_file():
            continue
        title = check_text(inside.with_suffix("").as_posix(), f"{folder}: the name of a file")
        if title in found:
            raise InputError(f"{found[title]} and {file} give the same title {title!r}; rename one of them")
        found[title] = file
    return [Document(title, read_text(file)) for title, file in found.items()]


def _lines(path: Path) -> list[Document]:
    documents = []
    for number, line in lines_of(read_text(path)):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        item = parse_json(line, where)
        if not isinstance(item, dict) or "text" not in item or not ({"title", "id"} & item.keys()):
            raise InputError(f"{where}: holds {shorten(item)}; it must be an object with title and text")
        title = check_text(item.get("title", item.get("id")), f"{where}: 'title'")
        documents.append(Document(title, check_text(item["text"], f"{where}: 'text'", empty=True)))
    if not documents:
        raise InputError(f"{path}: the file holds no document; give an object with title and text a line")
    return documents
