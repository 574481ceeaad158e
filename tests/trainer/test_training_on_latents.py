"""Latents and embeddings from elsewhere as a dataset: the same training as on the clips that they were made of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from tests.driving import create, go, session
from tests.patience import PATIENCE
from workbench import jobs
from workbench.dataset_builder import Dataset
from workbench.families.cogvideox import FAMILY as COGVIDEOX
from workbench.families.ltx import FAMILY as LTX
from workbench.families.phenaki import FAMILY as PHENAKI
from workbench.families.wan import FAMILY as WAN
from workbench.jobs.devices import pick_device
from workbench.runs.run import Run
from workbench.sampler.generate import Sampler
from workbench.sampler.settings import SampleSettings
from workbench.trainer.encoder import Piece, read_first_frame
from workbench.trainer.session import Session
from workbench.workspace import Workspace

VALUES: dict[str, Any] = {"held_out": 0, "evaluate_every": 0, "caption_dropout": 0.3, "batch_size": 2, "device": "cpu"}
CASES = {
    "cogvideox": (COGVIDEOX, {"frames": 9, "height": 32, "width": 32}),
    "wan": (WAN, {"frames": 9, "height": 32, "width": 32}),
    "ltx": (LTX, {"frames": 9, "height": 64, "width": 64}),
    "phenaki": (PHENAKI, {"frames": 9, "height": 16, "width": 16}),
    "cogvideox-image": (COGVIDEOX, {"frames": 9, "height": 16, "width": 16}),
    "wan-image": (WAN, {"frames": 9, "height": 32, "width": 32}),
}


@pytest.fixture(scope="module")
def toys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    base = tmp_path_factory.mktemp("toys")
    found = {}
    for name, (family, _) in CASES.items():
        kind = "image" if name.endswith("image") else ""
        found[name] = family.toy(base / name, next(one for one in family.toys if one.startswith(kind))).source
    return found


def write(made: Session, folder: Path) -> None:
    """A file, caption and first frame of each clip of a run, as its encoders see them; some with embeddings."""
    family, rows = made.family, ""
    folder.mkdir()
    for number, item in enumerate(made.data.train):
        moments = made.encoder.clip(Piece(item))
        if family.codes(made.model):
            tensors = family.latents_to_file(made.folder, moments["mean"])
        else:
            tensors = {name: family.latents_to_file(made.folder, moments[name])["latents"] for name in ("mean", "std")}
        if number % 2:
            text = made.encoder.caption(item.caption)
            tensors |= {"embeddings": text["prompt_embeds"][0]}
            tensors |= {"mask": text["mask"][0].to(torch.uint8)} if "mask" in text else {}
        said = {"model": made.model.id, "fps": f"{made.shape.fps:g}", "number": str(number)}
        save_file({name: one.clone() for name, one in tensors.items()}, folder / f"{number}.safetensors", said)
        pixels = (read_first_frame(item)[0, :, 0].permute(1, 2, 0) + 1) * 127.5
        Image.fromarray(pixels.round().byte().numpy()).save(folder / f"first-{number}.png")
        row = {"file_name": f"{number}.safetensors", "text": item.caption, "first_frame": f"first-{number}.png"}
        rows += json.dumps(row) + "\n"
    (folder / "metadata.jsonl").write_text(rows, encoding="utf-8")


def trained(run: Run) -> list[torch.Tensor]:
    """The LoRA after three steps."""
    made = go(run, 3)
    made.metrics.close()
    return [parameter.detach().clone() for parameter in made.trainable.parameters]


USUAL = ("cogvideox", "wan-image", "phenaki")  # at every change; all before a release


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in USUAL else [pytest.mark.release], id=name) for name in CASES]
)
def test_training_on_latents_is_training_on_their_clips(
    workspace: Workspace, dataset: Dataset, toys: dict[str, str], tmp_path: Path, name: str
) -> None:
    values = {**VALUES, **CASES[name][1]}
    made = session(create(workspace, toys[name], **values))
    write(made, tmp_path / "given")
    made.metrics.close()
    given = Dataset.create(workspace, "Given")
    results = given.import_files([tmp_path / "given"])
    assert {result.outcome for result in results} == {"taken"}, results
    of_clips = trained(Run.create(workspace, made.settings, "clips"))
    of_latents = trained(Run.create(workspace, made.settings.changed(dataset="given"), "latents"))
    assert all(torch.equal(one, other) for one, other in zip(of_clips, of_latents, strict=True))


def test_samples_kept_as_latents_are_clips_to_train_on(workspace: Workspace, tmp_path: Path) -> None:
    sampler = Sampler("tiny-cogvideox", pick_device("cpu"))
    for seed in (0, 1):
        asked = SampleSettings(model="tiny-cogvideox", prompt="a red square", steps=2, seed=seed, device="cpu")
        sampler.write_latents(tmp_path / "given" / f"{seed}.mp4", sampler.denoise(workspace, asked))
    given = Dataset.create(workspace, "Given")
    results = given.import_files([tmp_path / "given"])
    assert {result.outcome for result in results} == {"taken"}, results
    assert [clip.text for clip in given.clips] == ["a red square"] * 2
    values = {"steps": 2, "horizontal_flip": 0.9, "preview_every": 2, "preview_steps": 2}
    run = create(workspace, "tiny-cogvideox", dataset="given", **VALUES | values)
    run.start()
    assert run.wait(PATIENCE).state == jobs.State.FINISHED, jobs.log_tail(run.folder)
    assert run.lora is not None
    assert "encoding it again" not in jobs.log_tail(run.folder, 200), "neither flipped nor otherwise missing"
    names = {path.name for path in run.folder.glob("previews/step-00000000/*.mp4")}
    assert "0.mp4" in names
    assert not [name for name in names if name.startswith(("input", "reconstruction"))]
