"""Cards, usage code and Spaces of LoRAs of every family: the code runs as it stands and generates what samples are."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from PIL import Image
from safetensors.torch import save

from workbench.clips import media
from workbench.errors import DataError
from workbench.families import families, find_model
from workbench.families.base import Family
from workbench.families.lora_files import weights, with_metadata
from workbench.families.model import Model
from workbench.jobs.devices import pick_device
from workbench.loras import library
from workbench.publishing import push, space
from workbench.publishing.card import code, usage_of
from workbench.publishing.facts import gather
from workbench.publishing.settings import LoraPush, SpacePush
from workbench.publishing.upload_plan import WEIGHTS, WeightsUpload
from workbench.sampler.generate import Sampler
from workbench.sampler.settings import SampleSettings
from workbench.workspace import Workspace, write_json

pytestmark = pytest.mark.long

OTHERS = [family for family in families() if family.name in ("hunyuan15", "kandinsky5", "ltx", "ltx2", "mochi", "wan")]
EXPERTS = {"a14b": "high noise", "a14b-image": "low noise"}  # for which the LoRA is
CASES = [(family, variant, EXPERTS.get(variant, "")) for family in OTHERS for variant in family.toys]
CASES += [(family, "a14b", "") for family in OTHERS if "a14b" in family.toys]  # a file that names no expert: both
USUAL = {
    ("wan", "a14b", ""),
    ("wan", "image-2.1", ""),
    ("ltx", "image", ""),
    ("ltx", "text-0.9.5", ""),
    ("ltx2", "image-2.3", ""),
    ("mochi", "text", ""),
    ("kandinsky5", "image", ""),
    ("hunyuan15", "text", ""),
    ("hunyuan15", "image", ""),
}
PROMPT, STEPS = "a red circle moves left", 2


class Toy:
    """A miniature, a LoRA of it and a picture that videos begin with."""

    def __init__(self, family: Family, variant: str, folder: Path, expert: str = "") -> None:
        """expert: that the LoRA is for; the other's guidance scale is another then"""
        self.family, self.expert = family, expert
        self.model = replace(family.toy(folder / "model", variant), steps=STEPS)
        if expert:
            self.model = replace(self.model, guidance_scale_2=2.0, flow_shift=8.0)
        random, tensors = torch.Generator().manual_seed(0), {}
        for name, linear in family.facts(self.model).named():
            if "blocks" in name:
                tensors[f"{name}.lora_A.weight"] = torch.randn(2, linear.inputs, generator=random)
                tensors[f"{name}.lora_B.weight"] = torch.randn(linear.outputs, 2, generator=random) * 0.3
        layers = {name.rpartition(".lora_")[0] for name in tensors}
        lora = replace(weights(tensors, dict.fromkeys(layers, 4.0), "x"), expert=expert)
        written, metadata = family.export_lora(lora, "diffusers")
        self.lora = folder / "lora.safetensors"
        self.lora.write_bytes(with_metadata(save(written), metadata))
        pixels = torch.randint(0, 256, (self.model.height, self.model.width, 3), generator=random, dtype=torch.uint8)
        self.picture = folder / "first_frame.png"
        Image.fromarray(pixels.numpy()).save(self.picture)

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.model.frames, self.model.height, self.model.width

    def sample(self, workspace: Workspace, *loras: str) -> np.ndarray:
        of_image = self.model.task == "image-to-video"
        settings = SampleSettings(
            model=self.model.id,
            prompt=PROMPT,
            steps=STEPS,
            seed=0,
            guidance_scale=self.model.guidance_scale,
            guidance_scale_2=self.model.guidance_scale_2,
            flow_shift=self.model.flow_shift,
            loras=loras,
            image=str(self.picture) if of_image else "",
            device="cpu",
        )
        found = np.asarray(Sampler(self.model.id, pick_device("cpu")).generate(workspace, settings).frames)
        return found / 255 if found.dtype == np.uint8 else found


def near(found: Any, wanted: np.ndarray) -> None:
    """Equal but for the rounding to bytes."""
    video = np.stack([np.asarray(frame) for frame in found])
    assert np.square((video / 255 if video.dtype == np.uint8 else video) - wanted).mean() < 1e-5


def case(family: Family, variant: str, expert: str) -> Any:
    """The usual ones at every change, all before a release."""
    marks = [] if (family.name, variant, expert) in USUAL else [pytest.mark.release]
    return pytest.param((family, variant, expert), marks=marks, id="-".join((family.name, variant, expert)).strip("-"))


@pytest.fixture(params=[case(*one) for one in CASES])
def toy(request: pytest.FixtureRequest, tmp_path: Path) -> Toy:
    family, variant, expert = request.param
    return Toy(family, variant, tmp_path, expert)


def run(text: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The pictures that the code leaves in `video`, run in a folder."""
    monkeypatch.chdir(folder)
    scope: dict[str, Any] = {}
    exec(compile(text, "card", "exec"), scope)
    assert os.path.getsize(folder / "video.mp4")
    return getattr(scope["video"], "frames", [scope["video"]])[0]


def test_the_code_beside_a_lora_and_on_its_card_generates_what_a_sample_is(
    toy: Toy, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, folder, experts = toy.sample(workspace, str(toy.lora)), toy.lora.parent, [toy.expert]
    assert np.abs(ours - toy.sample(workspace)).max() > 0.01
    separate = toy.family.usage(toy.model, Path(toy.model.source), toy.lora.name, PROMPT, toy.shape, experts=experts)
    near(run(separate, folder, monkeypatch), ours)
    assert media.probe(folder / "video.mp4").frames == toy.model.frames
    used = usage_of(toy.family, toy.model, PROMPT, toy.shape, experts=experts)
    assert used.parts == ({"vae": "AutoencoderKLWan"} if toy.family.name == "wan" else {})
    near(run(code(used, toy.model, toy.model.source, repository(toy)), folder, monkeypatch), ours)


def repository(toy: Toy) -> str:
    """A folder with what a push sends; diffusers' client has its address of the Hub from the start of this process."""
    folder = toy.lora.parent / "repository"
    folder.mkdir(exist_ok=True)
    (folder / WEIGHTS).write_bytes(toy.lora.read_bytes())
    return str(folder)


PUBLISHED = [model for family in OTHERS for model in family.models if not model.embedded]
KINDS = {
    "hunyuanvideo1.5-t2v-480p", "hunyuanvideo1.5-i2v-720p-cfg-distilled", "kandinsky5-lite-t2v-5s",
    "kandinsky5-lite-i2v-5s", "ltx-video-2b-0.9.1-image", "ltx-video-2b-0.9.5-image", "ltx-video-13b-0.9.7",
    "ltx-2-19b", "ltx-2.3-22b-image", "mochi-1-preview", "wan2.1-t2v-1.3b", "wan2.1-i2v-14b-480p",
    "wan2.1-flf2v-14b-720p", "wan2.1-fun-1.3b-inp", "wan2.1-vace-1.3b", "wan2.2-ti2v-5b-image", "wan2.2-t2v-a14b",
    "wan2.2-i2v-a14b",
}  # fmt: skip
CARDS = [
    pytest.param(model, marks=[] if model.id in KINDS else [pytest.mark.release], id=model.id) for model in PUBLISHED
]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Toy]:
    """The first miniature of a family, by its name and the expert that the LoRA is for; made once."""
    named = {family.name: family for family in OTHERS}
    return cache(lambda name, expert: Toy(named[name], named[name].toys[0], tmp_path_factory.mktemp(name), expert))


@pytest.mark.parametrize("model", CARDS)
def test_every_model_has_a_card_with_its_license_and_a_space(
    model: Model, workspace: Workspace, made: Callable[[str, str], Toy]
) -> None:
    """Nothing of the model is on this disk: its LoRA was trained elsewhere."""
    family = find_model(model.id)[0]
    expert = "low noise" if model.boundary else ""
    folder = workspace.root / "loras" / "cats"
    folder.mkdir(parents=True)
    (folder / "lora.safetensors").write_bytes(made(family.name, expert).lora.read_bytes())
    write_json(folder / "lora.json", {"title": "cats", "model": model.id, "base_model": model.source, "time": 1.0})
    write_json(folder / "published.json", {"repo_id": "me/cats", "url": "", "private": False})

    plan = push.plan_upload(workspace, "loras/cats", LoraPush(repo_id="me/cats"))
    _, front, body = plan.readme.split("---\n", 2)
    metadata = yaml.safe_load(front)
    assert (metadata["base_model"], metadata["pipeline_tag"]) == (model.source, model.task)
    assert {model.family, f"{model.family}-diffusers", "lora"} <= set(metadata["tags"])
    own = {"hunyuan15": "tencent-hunyuan-community", "ltx": "ltx-video", "ltx2": "ltx-2-community-license"}
    if family.name in own:
        assert metadata["license"] == "other"
        assert metadata["license_name"].startswith(own[family.name])
        assert metadata["license_link"].startswith(f"https://huggingface.co/{model.source}")
    else:
        assert metadata["license"] == ("mit" if family.name == "kandinsky5" else "apache-2.0")
    kinds = {"wan": "Wan", "ltx": "LTX", "ltx2": "LTX2", "mochi": "Mochi", "hunyuan15": "HunyuanVideo15"}
    kind = (kinds | {"kandinsky5": "Kandinsky5T2V"})[family.name]
    if model.task == "image-to-video":
        kind = "Kandinsky5I2V" if family.name == "kandinsky5" else f"{kind}ImageToVideo"
    pipeline = "LTXConditionPipeline" if "13b" in model.id or "0.9.5" in model.id else f"{kind}Pipeline"
    pipeline = "WanVACEPipeline" if "vace" in model.id else pipeline
    assert f"pipe = {pipeline}.from_pretrained" in body
    looks = model.id.startswith(("wan2.1-i2v", "wan2.1-flf2v", "wan2.1-fun"))  # through CLIP
    assert ("pipe.encode_image = squeezed" in body) == looks
    assert ("force_zeros_for_empty_prompt=True" in body) == (family.name == "mochi")
    if family.name == "wan":
        assert f"flow_shift={model.flow_shift_at(model.height, model.width)})" in body
    assert bool(model.negative_prompt) == (family.name in ("kandinsky5", "ltx", "ltx2", "wan"))
    assert (f'negative_prompt="{model.negative_prompt}"' in body) == bool(model.negative_prompt)

    if expert:
        heads = [file.head for file in plan.files.values() if isinstance(file, WeightsUpload)]
        assert len(heads) == 2, "diffusers' file and ComfyUI's"
        assert all(b'"expert":"low noise"' in head for head in heads)
        assert "the low-noise expert of" in body
        assert 'adapter_name="lora", load_into_transformer_2=True)' in body
        assert f"guidance_scale_2={model.guidance_scale_2}" in body

    facts = gather(workspace, library.find(workspace, "loras/cats"))
    with_previews(workspace.root / "loras" / "cats" / "previews", model)
    body = push.plan_upload(workspace, "loras/cats", LoraPush(repo_id="me/cats")).readme
    guided = "pipe.guider.guidance_scale = 2.5" if family.name == "hunyuan15" else "guidance_scale=2.5"
    for words in ("num_inference_steps=7", guided, 'negative_prompt="blurry"'):
        assert words in body
    assert ("guidance_scale_2=1.5" in body) == bool(model.boundary)
    assert "workbench sample --dynamic-guidance stock" in body  # which these pipelines lack
    assert ("shift=4.0" in body) == (family.name in ("hunyuan15", "wan"))
    previewed = gather(workspace, library.find(workspace, "loras/cats"))
    assert "STEPS, GUIDANCE, FPS = 7, 2.5," in space.app(previewed, "me/cats")

    app = space.app(facts, "me/cats")
    compile(app, "app.py", "exec")
    assert ("('transformer_2',)" in app) == bool(expert)
    assert f"PIPELINE, BASE, REVISION = '{pipeline}', '{model.source}'" in app
    assert model.source in space.readme(facts, "me/cats")


def with_previews(folder: Path, model: Model) -> None:
    """A preview with the record of a sample that was generated otherwise than its model's values say."""
    media.encode(np.zeros((2, 32, 32, 3), np.uint8), folder / "0.mp4", 8)
    record = {"prompt": PROMPT, "seed": 5, "steps": 7, "guidance_scale": 2.5, "negative_prompt": "blurry"}
    record |= {"dynamic_guidance": "stock"}
    record |= {"guidance_scale_2": 1.5} if model.boundary else {}
    record |= {"flow_shift": 4.0} if model.flow_shift else {}
    write_json(folder / "0.json", record)


@pytest.mark.parametrize("family", OTHERS, ids=lambda family: family.name)
def test_the_app_of_a_space_generates_what_a_sample_is(
    family: Family, workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toy = Toy(family, next(name for name in family.toys if "image" not in name), tmp_path)
    folder = workspace.root / "loras" / "cats"
    folder.mkdir(parents=True)
    (folder / "lora.safetensors").write_bytes(toy.lora.read_bytes())
    write_json(folder / "lora.json", {"title": "cats", "model": toy.model.id, "base_model": "", "time": 1.0})
    app = space.app(gather(workspace, library.find(workspace, "loras/cats")), repository(toy))
    monkeypatch.chdir(tmp_path)
    scope: dict[str, Any] = {"__name__": "app", "__file__": str(tmp_path / "app.py")}
    exec(compile(app[: app.index("with gr.Blocks(")], "app.py", "exec"), scope)  # all but the page
    video = scope["generate"](PROMPT, None, 0, STEPS, toy.model.guidance_scale, progress=lambda *a, **k: None)
    frames = np.stack([np.asarray(one) for one in media.read_frames(Path(video), range(toy.model.frames))]) / 255
    ours = toy.sample(workspace, str(toy.lora))
    assert frames.shape == ours.shape
    assert np.abs(frames - ours).mean() < 0.1  # an mp4 of noise


def test_a_family_without_a_pipeline_of_diffusers_has_its_own_code_on_the_card_and_no_space(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (family,) = (one for one in families() if one.name == "phenaki")
    toy = Toy(family, "self", tmp_path)
    folder = workspace.root / "loras" / "cats"
    folder.mkdir(parents=True)
    (folder / "lora.safetensors").write_bytes(toy.lora.read_bytes())
    write_json(folder / "lora.json", {"title": "cats", "model": toy.model.id, "base_model": "", "time": 1.0})
    write_json(folder / "published.json", {"repo_id": "me/cats", "url": "", "private": False})

    body = push.plan_upload(workspace, "loras/cats", LoraPush(repo_id="me/cats")).readme
    text = body.partition("```python\n")[2].partition("\n```")[0]
    assert str(tmp_path / "model") not in text
    text = text.replace("find_model('model')", f"find_model({toy.model.id!r})").replace("'...'", repr(PROMPT))
    text = text.replace('"me/cats"', repr(repository(toy))).replace("steps=18", f"steps={STEPS}")
    video = run(text, tmp_path, monkeypatch)
    near((video.permute(1, 2, 3, 0).numpy() + 1) / 2, toy.sample(workspace, str(toy.lora)))
    with pytest.raises(DataError, match="diffusers has no pipeline"):
        push.plan_upload(workspace, "loras/cats", SpacePush(repo_id="me/cats-space"))
