"""The parts of the Sample tab: what is asked for, what is under way, what came out."""
