"""Models that look at frames on this machine: load one, see depth and poses, carry a painted mask through a video.

Everything here takes and gives frames as arrays; which clips they belong to, and where results go, is the dataset
builder's. Importing it loads no torch.
"""
