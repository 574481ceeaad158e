"""The libraries of models load without what none of them needs here, which still loads for whoever asks for it."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import sys
from importlib.machinery import PathFinder
import torch
before = PathFinder.__dict__["find_spec"]
from pathlib import Path
from workbench.families import find_model
family, model = find_model("tiny-cogvideox")
transformer = family.load_transformer(Path(model.source), torch.device("cpu"), torch.float32)
assert PathFinder.__dict__["find_spec"] is before
assert {"peft", "diffusers"} <= sys.modules.keys()
from peft import LoraConfig
transformer.add_adapter(LoraConfig(r=2, target_modules=["to_q"]))
for name in ("bitsandbytes", "torch._inductor.compile_fx"):
    assert name not in sys.modules, name

from workbench.trainer import optimizers
from workbench.trainer.settings import TrainSettings
weight = torch.nn.Parameter(torch.ones(8, 8))
optimizer = optimizers.build(TrainSettings(optimizer="adamw-8bit"), [("w", weight)])
weight.sum().backward()
optimizer.step()
assert float(weight.sum()) < 64
"""


def test_what_no_model_needs_is_not_loaded_and_still_there() -> None:
    ended = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
