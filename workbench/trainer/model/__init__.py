"""What is trained: the LoRA or all weights, levels of memory, the optimizer, the average of the weights.

Not here: other LoRA files (loras), how a memory level works (memory).
"""
