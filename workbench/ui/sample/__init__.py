"""The Sample tab: the form, the prompt enhancer, the queue strip, the result and the history.

Not here: generating (workbench.sampler), what is shown of a sample (workbench.sampler.view).
"""
