"""Formatting for every interface: quantities in words, HTML as text, and the elements as one script.

How a run, a dataset or a grid looks is defined in their packages.
"""
