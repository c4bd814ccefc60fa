"""Long texts in pieces that a parser or a language model takes."""

from __future__ import annotations

import re
from collections.abc import Iterator

# Where a paragraph ends, else a sentence, else a word.
_BREAKS = (re.compile(r"\n\s*\n"), re.compile(r"(?<=[.!?])\s"), re.compile(r"\s"))
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


def segments(text: str, size: int) -> Iterator[str]:
    """Yields pieces of at most `size` characters, cut where a paragraph, a sentence or a word ends, else anywhere.

    Control characters become spaces and lone surrogates question marks; blank pieces are left out.
    """
    text = _CONTROL.sub(" ", text.encode("utf-8", "replace").decode("utf-8"))
    start = 0
    while start < len(text):
        end = len(text) if len(text) - start <= size else start + _cut(text[start : start + size])
        if text[start:end].strip():
            yield text[start:end]
        start = end


def _cut(window: str) -> int:
    """Where to cut a full window: after the last break of the strongest kind in its second half."""
    for pattern in _BREAKS:
        place = max((match.end() for match in pattern.finditer(window)), default=0)
        if place > len(window) // 2:
            return place
    return len(window)
