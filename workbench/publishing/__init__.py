"""Publish LoRAs and full fine-tunes: to a model repository on the Hugging Face Hub, and to a Space as a demo.

Datasets are pushed by workbench.dataset_builder, and workbench.hub talks to the Hub. Importing loads no torch.
"""
