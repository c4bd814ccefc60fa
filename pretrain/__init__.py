"""Stage: pretrains the GNN on knowledge graph completion. Run as `python -m pretrain --config ... key=value`."""

import os

# A stage is a program: its process setting must stand before torch is imported, which is when torch reads it. Large
# buffers in huge pages take about half the time of memory-bound work.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
