"""Graph foundation models that retrieve: the library behind the `pretrain`, `finetune` and `inference` stages.

The names in `__all__` load on first use, so that `import gfm` and `gfm --help` do not wait for torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gfm.checkpoint import Checkpoint
    from gfm.kg.graph import KnowledgeGraph
    from gfm.kg.index import KGIndex
    from gfm.nn.gnn import QueryConditionedGNN
    from gfm.retrieval.gfm_retriever import GFMRetriever
    from gfm.text.encoder import TextEncoder

__version__ = "0.1.0"
__all__ = [
    "Checkpoint",
    "GFMRetriever",
    "KGIndex",
    "KnowledgeGraph",
    "QueryConditionedGNN",
    "TextEncoder",
    "__version__",
]

_HOME = {
    "Checkpoint": "gfm.checkpoint",
    "GFMRetriever": "gfm.retrieval.gfm_retriever",
    "KGIndex": "gfm.kg.index",
    "KnowledgeGraph": "gfm.kg.graph",
    "QueryConditionedGNN": "gfm.nn.gnn",
    "TextEncoder": "gfm.text.encoder",
}


def __getattr__(name: str) -> object:
    """Imports the module that defines `name` and remembers the object (PEP 562).

    Raises:
        AttributeError: `gfm` exports no such name.
    """
    if name not in _HOME:
        raise AttributeError(f"module 'gfm' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Lists the lazy exports beside what is already loaded."""
    return sorted({*globals(), *_HOME})
