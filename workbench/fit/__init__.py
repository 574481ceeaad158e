"""Does it fit? What a run needs of memory, disk and time before it starts; what it will probably not show. No torch.

How memory levels are carried out is in trainer.trainable, what happens when memory runs out in runs.failures.
"""
