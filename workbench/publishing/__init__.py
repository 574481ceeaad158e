"""LoRAs are published: to a model repository on the Hugging Face Hub, and to a Space that demonstrates them.

Datasets are pushed by workbench.dataset_builder; what talks to the Hub is workbench.hub. Importing loads no torch.
"""
