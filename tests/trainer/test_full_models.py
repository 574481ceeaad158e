"""A run that trained all weights is a model: it is sampled, trained on, published and loaded elsewhere by its name."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.patience import PATIENCE
from workbench import jobs
from workbench.choices import choices_of
from workbench.clips import media
from workbench.dataset_builder import Dataset
from workbench.errors import ConfigError
from workbench.families import find_model
from workbench.jobs import State
from workbench.jobs.devices import pick_device
from workbench.publishing import push
from workbench.publishing.settings import LoraPush
from workbench.runs.run import Run
from workbench.runs.settings import TrainSettings
from workbench.sampler import queue
from workbench.sampler.generate import Sampler
from workbench.sampler.settings import SampleSettings
from workbench.settings import specs
from workbench.workspace import Workspace

pytestmark = pytest.mark.long

PROMPT = "a red square moves right"


def trained(workspace: Workspace, name: str, **values: object) -> Run:
    chosen = {
        "dataset": "squares",
        "steps": 2,
        "warmup_steps": 0,
        "held_out": 0,
        "preview_every": 2,
        "preview_prompts": (PROMPT,),
        "preview_steps": 3,
        **values,
    }
    run = Run.create(workspace, TrainSettings(**chosen), name)  # type: ignore[arg-type]
    run.start()
    run.wait(PATIENCE)
    assert run.status.state == State.FINISHED, jobs.log_tail(run.folder)
    return run


def sample_equals_preview(workspace: Workspace, run: Run, scratch: Path, **values: object) -> None:
    """The sample with the settings of the run's last preview shows the same."""
    (shown,) = [preview for preview in run.previews if preview.step == 2]
    wanted = SampleSettings(prompt=PROMPT, steps=3, seed=run.settings.preview_seed, device="cpu").changed(**values)
    ready = queue.resolved(workspace, wanted)
    assert ready.model == find_model(ready.model)[1].id, "a name goes no further than the request"
    made = Sampler(ready.model, pick_device("cpu")).generate(workspace, ready)
    media.encode(made.frames, scratch / "sample.mp4", made.fps)
    frames = range(len(made.frames))
    ours, theirs = (media.read_frames(path, frames) for path in (scratch / "sample.mp4", shown.video))
    assert np.abs(ours.astype(int) - theirs).mean() < 0.2, "levels of 255; a LoRA is added in another order"


@pytest.mark.parametrize("model", ["tiny-cogvideox", "tiny-phenaki"])
def test_it_samples_what_its_last_preview_shows(
    workspace: Workspace, dataset: Dataset, tmp_path: Path, model: str
) -> None:
    run = trained(workspace, "whole", model=model, method="full", learning_rate=1e-4)
    sample_equals_preview(workspace, run, tmp_path, model="runs/whole")


def test_everything_else_takes_it_for_a_model(workspace: Workspace, dataset: Dataset, tmp_path: Path) -> None:
    """Trained on, chosen in forms, published, loaded by diffusers; linked anew after its base model has moved."""
    from diffusers import CogVideoXPipeline

    run = trained(workspace, "whole", model="tiny-cogvideox", method="full", preview_every=0)
    family, model = find_model(str(run.folder))
    base = find_model("tiny-cogvideox")[1]
    assert (model.title, model.steps, model.guidance_scale) == ("whole", base.steps, base.guidance_scale)
    (field,) = (spec for spec in specs(SampleSettings) if spec.name == "model")
    assert str(run.folder) in [choice.value for choice in choices_of(field, workspace)]

    above = trained(workspace, "above", model="runs/whole", rank=2, learning_rate=0.01, dropped_caption="zeros")
    assert (above.settings.model, above.lora is not None) == (str(run.folder), True)
    sample_equals_preview(workspace, above, tmp_path, model="runs/whole", loras=("runs/above",))
    for name, reason in (
        ("runs/above", "trained a LoRA"),
        ("runs/above@2", "names a checkpoint"),
        ("runs/nothing", "is not a finished run that trained all weights"),
    ):
        with pytest.raises(ConfigError, match=f"model is {name}, which {reason}"):
            queue.resolved(workspace, SampleSettings(model=name, prompt=PROMPT))

    plan = push.plan_upload(workspace, "runs/whole", LoraPush(repo_id="me/whole"))
    assert {"transformer/config.json", "README.md", "config.json"} < set(plan.files)
    assert 'AutoModel.from_pretrained("me/whole", subfolder="transformer"' in plan.readme
    assert str(workspace.root) not in plan.readme

    pipeline = CogVideoXPipeline.from_pretrained(run.folder)
    ours = family.load_transformer(run.folder, *_cpu())
    theirs = dict(pipeline.transformer.named_parameters())
    assert all((theirs[name] == value).all() for name, value in ours.named_parameters())

    shutil.rmtree(run.folder / "vae")
    (run.folder / "tokenizer").rename(run.folder / "elsewhere")
    assert family.fetch(find_model(str(run.folder))[1]) == run.folder
    assert (run.folder / "vae" / "config.json").is_file()


def _cpu() -> tuple[object, object]:
    import torch

    return torch.device("cpu"), torch.float32
