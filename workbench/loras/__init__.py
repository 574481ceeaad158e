"""LoRA files independent of a run: the library of all LoRAs of a workspace, and the operations on them.

`library` says what is known of each LoRA, `removal` removes and restores. `settings` declares the operations, `tasks`
starts them as jobs, `making` and `converting` do the work. Importing them loads no torch.
"""
