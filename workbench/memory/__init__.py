"""What makes a transformer made of blocks cheaper to train, whatever its family: each module is one such means."""
