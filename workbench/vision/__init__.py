"""Models that see or hear, run locally: load one, estimate depth and poses, track a painted mask, write down speech.

Everything here works on arrays; the dataset builder knows clips and files. Importing it does not load torch.
"""
