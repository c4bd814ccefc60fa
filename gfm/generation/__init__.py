"""From evidence to words: prompts and answers."""
