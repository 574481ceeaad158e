"""Phenaki: a tokenizer of clips, MaskGit with critics, their objective and sampling, and the built-in miniature."""

from workbench.families.phenaki.family import FAMILY

__all__ = ["FAMILY"]
