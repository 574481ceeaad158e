"""The layouts that the field keeps its video datasets in."""
