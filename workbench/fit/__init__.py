"""The fit check: the memory, disk and time that a run needs, and likely problems, before it starts. No torch.

trainer.trainable applies memory levels; runs.failures explains what happens when memory runs out.
"""
