"""Vision models that run locally: load one, estimate depth and poses, propagate a painted mask through a video.

Everything here works on arrays of frames; the dataset builder knows clips and files. Importing it does not load torch.
"""
