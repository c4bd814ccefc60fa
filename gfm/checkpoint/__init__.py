"""Models on disk and on the hub: what they are, how they are saved and loaded, and those of other programs."""

from gfm.checkpoint.folder import Checkpoint, load_checkpoint
from gfm.checkpoint.info import CheckpointInfo

__all__ = ["Checkpoint", "CheckpointInfo", "load_checkpoint"]
