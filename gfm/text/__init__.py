"""Text: sentence embeddings with a cache, and the normal form of names."""
