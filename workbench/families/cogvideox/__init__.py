"""CogVideoX and CogVideoX 1.5: text-to-video and image-to-video, and their built-in miniatures."""

from workbench.families.cogvideox.family import FAMILY

__all__ = ["FAMILY"]
