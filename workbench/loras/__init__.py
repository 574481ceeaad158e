"""The library of a workspace's LoRAs, and operations on them: merge, resize, extract, fuse, import, convert.

`library` reads the LoRAs, `removal` removes and restores them. `settings` declares the operations, `tasks` starts them
as jobs, `making` and `converting` do the work. Importing these modules loads no torch.
"""
