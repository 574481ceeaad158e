"""The LoRAs tab: the library as cards, operations on the chosen LoRAs, importing, removing, publishing.

Not here: the operations themselves (workbench.loras), uploading (workbench.publishing).
"""
