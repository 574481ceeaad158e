"""LoRA files independent of a run: the library of all LoRAs of a workspace, and the operations on them.

`library` says what is known of each LoRA, `removal` removes and restores; these need no torch. `settings` declares the
operations, `tasks` starts them as jobs, and the modules named after them do the work.
"""
