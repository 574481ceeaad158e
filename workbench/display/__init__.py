"""How values look wherever they are shown: quantities in words, HTML as text, and the elements as one script.

No face is known here; how a run, a dataset or a grid looks is said in their packages.
"""
