"""LoRAs are published: to a model repository on the Hugging Face Hub, and to a Space that demonstrates them.

    lora          what a push of a LoRA sends: weights, card, previews, settings
    space         what a push of a demo Space sends
    upload_plan   the files of a push and their sizes, before anything is sent
    push          both as background jobs
    account       who is logged in to the Hub on this machine

Datasets are pushed by workbench.dataset_builder; what talks to the Hub is workbench.hub. Importing loads no torch.
"""
