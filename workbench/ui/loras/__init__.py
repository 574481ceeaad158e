"""The LoRAs tab: the shelf as cards, what can be made of the chosen ones, what comes in, what goes."""
