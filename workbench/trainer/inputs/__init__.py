"""What a step is computed from: clips and captions encoded into the cache, and the tensors of each batch.

Not here: which clips and frames a run takes, and which of them are in which batch (runs.data).
"""
