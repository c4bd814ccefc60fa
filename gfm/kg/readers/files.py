r"""What all readers share: exact text in, whole files out, and errors that name file and line.

Lines end at `\n` alone (a preceding `\r` is dropped by who needs it): `str.splitlines` also splits at
U+2028, U+0085 or `\x0b`, all of which occur inside real names.
"""

from __future__ import annotations

import csv
import io
import json
import os
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gfm.errors import InputError

_BOM = "\ufeff"
_CSV_LIMIT_LOCK = threading.Lock()


def shorten(value: object, limit: int = 80) -> str:
    """The value as Python shows it, on one line, cut to `limit` characters: for messages."""
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 3] + "..."


def read_text(path: str | os.PathLike[str]) -> str:
    """The text of a UTF-8 file, newlines untouched and without a leading byte order mark.

    Raises:
        InputError: no such file, not a readable file, or bytes that are not UTF-8 (with their line).
    """
    path = Path(path)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; give the path of an existing file") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); give a readable file") from error
    try:
        return data.decode("utf-8").removeprefix(_BOM)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        bad = data[error.start : error.start + 4]
        raise InputError(f"{path}, line {line}: bytes {bad!r} are not UTF-8; convert the file to UTF-8") from error


def write_texts(texts: Mapping[Path, str]) -> None:
    """Writes files so that each is either its previous or its new version, never a part of one.

    All contents are written beside their targets before the first target is replaced.

    Raises:
        InputError: a folder cannot be written, or a text cannot be encoded as UTF-8.
    """
    pending: list[tuple[Path, Path]] = []
    try:
        for path, text in texts.items():
            # Reading drops one leading U+FEFF, so a text that begins with one needs a second.
            data = (_BOM + text if text.startswith(_BOM) else text).encode("utf-8")
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = path.parent / f".{uuid.uuid4().hex}.tmp"
            pending.append((temporary, path))
            temporary.write_bytes(data)
        for temporary, path in pending:
            os.replace(temporary, path)
    except UnicodeEncodeError as error:
        bad = error.object[error.start : error.end]
        raise InputError(f"{path}: {shorten(bad)} cannot be written as UTF-8; remove lone surrogates") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror}); give a writable path") from error
    finally:
        for temporary, _ in pending:
            temporary.unlink(missing_ok=True)


def lines_of(text: str) -> Iterator[tuple[int, str]]:
    r"""Yields `(line number from 1, line)` for every line, without its `\n` or `\r\n`."""
    for number, line in enumerate(text.split("\n"), start=1):
        yield number, line.removesuffix("\r")


def csv_rows(text: str, path: str | os.PathLike[str]) -> list[tuple[int, list[str]]]:
    r"""The rows of a CSV text with the line each begins at; empty lines are left out.

    Raises:
        InputError: a quote that never closes, text after a closing quote, or an unquoted `\r`.
    """
    rows: list[tuple[int, list[str]]] = []
    # newline="\n": a "\r" inside quotes is part of a name and must not count as a line.
    # strict: otherwise a quote left open swallows the rest of the file into one name.
    reader = csv.reader(io.StringIO(text, newline="\n"), strict=True)
    with _CSV_LIMIT_LOCK:  # the limit is global to the process: lift it for this file, then put it back
        limit = csv.field_size_limit(max(len(text), 1))
        try:
            while True:
                line = reader.line_num + 1
                try:
                    row = next(reader)
                except StopIteration:
                    return rows
                except csv.Error as error:
                    raise InputError(f"{path}, line {line}: not valid CSV ({error}); check the quotes") from error
                if row:
                    rows.append((line, row))
        finally:
            csv.field_size_limit(limit)


def csv_text(rows: Iterable[Sequence[str]]) -> str:
    r"""Rows as CSV that `csv_rows` reads back unchanged. Every field is quoted: a bare `\r` stays inside one."""
    out = io.StringIO(newline="")
    csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(rows)
    return out.getvalue()


def parse_json(text: str, where: str, pairs_hook: Callable[[list[tuple[str, Any]]], Any] | None = None) -> Any:
    """The JSON value of a text.

    Args:
        text: one JSON document.
        where: what to call it in a message.
        pairs_hook: called for every object with its `(key, value)` pairs; sees keys that occur twice.

    Raises:
        InputError: the text is not JSON, or is nested too deeply.
    """
    try:
        return json.loads(text, object_pairs_hook=pairs_hook)
    except json.JSONDecodeError as error:
        line = f", line {error.lineno}" if "\n" in text else ""
        raise InputError(f"{where}{line}: not valid JSON ({error.msg} at column {error.colno})") from error
    except InputError:
        raise
    except (ValueError, RecursionError) as error:  # an integer of thousands of digits; nesting
        raise InputError(f"{where}: not usable JSON ({shorten(str(error))})") from error


def check_text(value: object, where: str, *, empty: bool = False) -> str:
    """Returns `value` if it is a text that can be stored.

    Raises:
        InputError: not a string, blank where `empty` is false, or with a lone surrogate (not UTF-8).
    """
    if not isinstance(value, str):
        raise InputError(f"{where} is {shorten(value)}; it must be a string")
    if not empty and not value.strip():
        raise InputError(f"{where} is {shorten(value)}; it must not be empty")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InputError(f"{where} holds a lone surrogate ({shorten(value)}); it must be valid Unicode") from error
    return value
