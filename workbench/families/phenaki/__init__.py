"""Phenaki: video tokenizer, MaskGit with critics, their loss and sampling, and the built-in miniature."""

from workbench.families.phenaki.family import FAMILY

__all__ = ["FAMILY"]
