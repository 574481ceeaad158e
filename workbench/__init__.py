"""Video LoRA Workbench: fine-tune video diffusion models from a browser, a notebook or a shell.

    from workbench import Workspace, Dataset, Run, Samples

`import workbench` is cheap: each of these names is imported when it is first used.
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

__version__ = "1.0.0"
__all__ = ["Dataset", "Run", "Samples", "Workspace"]

_MODULES = {
    "Dataset": "workbench.dataset_builder.dataset",
    "Run": "workbench.runs.run",
    "Samples": "workbench.sampler.samples",
    "Workspace": "workbench.workspace",
}

# Warnings meant for the developers of these libraries are noise in a terminal or a log, so they are hidden; all other
# warnings stay visible. bitsandbytes warns at every import on AVX-512 CPUs about an optional package for 4-bit
# inference, which is not used here. torch warns that autocast ignores float32, which Mochi's positions need, and that
# Kandinsky's norms have inputs in float32 and weights in bfloat16.
LIBRARIES = "torch|torchao|diffusers|transformers|peft|accelerate|bitsandbytes|huggingface_hub|tokenizers|optimum|gguf"
warnings.filterwarnings("ignore", category=FutureWarning, module=rf"({LIBRARIES})(\.|$)")
warnings.filterwarnings("ignore", message="In CPU autocast, but the target dtype is not supported")
warnings.filterwarnings("ignore", message="Mismatch dtype between input and weight")
logging.getLogger("bitsandbytes.backends.cpu.ops").addFilter(
    lambda record: not str(record.msg).startswith("Failed to load CPU gemm_4bit_forward")
)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
