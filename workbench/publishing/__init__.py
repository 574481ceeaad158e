"""LoRAs leave the house: to a model repository on the Hugging Face Hub, and to a Space that shows what they do.

    lora        what a push of a LoRA sends: weights, card, previews, settings
    space       what a push of a demo Space sends
    pushing     both as background jobs, and what would be sent, before it is
    account     who is logged in to the Hub on this machine

Datasets are pushed by workbench.dataset_builder; what talks to the Hub is workbench.hub. Importing loads no torch.
"""
