"""Generating videos: request one (`submit`), follow it (`progress`), find it again (`Samples`). No torch on import.

`workbench.sampler.generate` runs in this process; everything else goes through the sampling worker, which keeps the
model warm. Not covered: training (workbench.trainer).
"""

from workbench.sampler.loras import available_loras
from workbench.sampler.queue import Progress, RequestState, cancel, pending, progress, stop_worker, submit, wait
from workbench.sampler.samples import Sample, Samples, settings_of, write_sample
from workbench.sampler.settings import SampleSettings

__all__ = [
    "Progress",
    "RequestState",
    "Sample",
    "SampleSettings",
    "Samples",
    "available_loras",
    "cancel",
    "pending",
    "progress",
    "settings_of",
    "stop_worker",
    "submit",
    "wait",
    "write_sample",
]
