"""Ways to make a model cheaper to train and to run, whatever its family: one per module."""
