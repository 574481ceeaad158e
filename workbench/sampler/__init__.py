"""Generating videos, from their settings to their files. No torch on import.

`queue` requests a video from the sampling worker and follows it, and `samples` finds it again; `generate` generates in
this process. Not here: training (trainer), grids of videos (compare).
"""
