"""An attention computed here, for families whose processor in diffusers cannot choose a kernel or join its projections.

Its modules import torch. Not covered: diffusers' own attention backends (diffusers_family).
"""
