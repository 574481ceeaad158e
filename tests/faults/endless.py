"""A process that does not end by itself: `python -m tests.faults.endless`."""

import time

if __name__ == "__main__":
    time.sleep(600)
