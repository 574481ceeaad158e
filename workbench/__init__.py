"""Video LoRA Workbench: fine-tune video diffusion models from a browser, a notebook or a shell.

    from workbench import Workspace, Dataset, Run, Samples

`import workbench` loads nothing; each name is loaded when it is first used.
"""

from __future__ import annotations

import importlib
import logging
import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from workbench.dataset_builder.dataset import Dataset
    from workbench.runs.run import Run
    from workbench.sampler.samples import Samples
    from workbench.workspace import Workspace

__version__ = "0.1.0"
__all__ = ["Dataset", "Run", "Samples", "Workspace"]

_HOMES = {
    "Dataset": "workbench.dataset_builder.dataset",
    "Run": "workbench.runs.run",
    "Samples": "workbench.sampler.samples",
    "Workspace": "workbench.workspace",
}

# What other packages tell their programmers is noise in a user's terminal and in a run's log; everything else they warn
# of is shown. bitsandbytes: on a processor with AVX-512, at every import, that an optional package for inference in 4
# bits is missing, which nothing here uses. torch: that float32, which Mochi's positions ask for, needs no autocast.
LIBRARIES = "torch|torchao|diffusers|transformers|peft|accelerate|bitsandbytes|huggingface_hub|tokenizers|optimum|gguf"
warnings.filterwarnings("ignore", category=FutureWarning, module=rf"({LIBRARIES})(\.|$)")
warnings.filterwarnings("ignore", message="In CPU autocast, but the target dtype is not supported")
logging.getLogger("bitsandbytes.backends.cpu.ops").addFilter(
    lambda record: not str(record.msg).startswith("Failed to load CPU gemm_4bit_forward")
)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
