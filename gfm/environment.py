"""Settings of the process that must stand before torch is imported; programs ask for them, the library never does."""

from __future__ import annotations

import os


def ask_for_huge_pages() -> None:
    """Makes torch put large buffers in huge pages, unless the user has set it otherwise.

    Touching fresh memory page by page takes about half the time of memory-bound work. Torch reads the setting when it
    is imported, so a program calls this first; on systems other than Linux it changes nothing.
    """
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
