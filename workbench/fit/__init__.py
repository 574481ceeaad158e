"""Does it fit? What a run needs of memory, disk and time before it starts. No torch.

    gpus          what is known of GPUs; the presets by memory
    memory        memory by phase, estimated from the model's sizes and the settings
    timing        seconds a step and in total
    estimate      memory and time together, beside what there is
    levels        the cheapest settings that fit a GPU
    measurement   ask for real steps in a process of their own (trainer.trial), whose figures replace the estimate
    rows          an estimate in rows and sentences, for page, notebook and shell
    gpu_offer     what to set so that all GPUs of a machine share a run's steps

Not here: how memory levels are carried out (trainer.model), what happens when memory runs out (runs.oom_fallback).
"""
