"""Generating videos. No torch on import.

`queue` requests a video from the sampling worker and follows it, `samples` finds it again; `generate` generates in this
process. What belongs here: everything from the settings of a video to its file. Not here: training (trainer), videos in
rows and columns (compare).
"""
