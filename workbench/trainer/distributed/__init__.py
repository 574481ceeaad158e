"""Several processes for one run: starting them, what they tell one another, weights in pieces.

Not here: workers of data jobs (jobs.workers), other machines (remote).
"""
