"""What a run shows while it trains: previews, validation loss, trackers, the stall timeout.

Not here: reading what was written (runs), drawing it (ui, notebook, cli).
"""
