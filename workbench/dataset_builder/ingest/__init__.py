"""From a foreign file to a canonical clip: each file is judged in a child process, converted, and gets a result.

Not here: where files and captions come from (dataset_builder.sources).
"""
