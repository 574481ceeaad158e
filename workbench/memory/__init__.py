"""Ways to make a transformer of blocks cheaper to train, whatever its family: one per module."""
