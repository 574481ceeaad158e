"""Does it fit? What a run needs of memory, disk and time before it starts. No torch.

Not here: how memory levels are carried out (trainer.trainable), what happens when memory runs out (runs.failures).
"""
