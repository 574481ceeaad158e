"""Previews as files: names, records, and no trace in the model after sampling them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.families.stock import stock_pipeline
from tests.shell import Shell
from workbench.clips import media
from workbench.clips.frame_plan import Shape
from workbench.families import families
from workbench.families.model import Model
from workbench.families.model_inputs import Given
from workbench.jobs.devices import pick_device
from workbench.runs.settings import TrainSettings
from workbench.sampler.samples import settings_of, write_sample
from workbench.trainer import lora
from workbench.trainer.previewer import PreviewClip, Previewer, PreviewPrompt, decode_latents
from workbench.workspace import Workspace, read_json

CPU = torch.device("cpu")
FAMILY = families()[0]


class Toy:
    """A previewer of a miniature with a LoRA that writes into a run's folder."""

    def __init__(self, model: Model, run: Path, **settings: Any) -> None:
        self.model, self.folder, self.run = model, Path(model.source), run
        self.settings = TrainSettings(
            **{"dataset": "x", "model": model.source, "rank": 2, "steps": 10, "preview_steps": 2, **settings},
            preview_guidance=1.0,
        )
        self.transformer = FAMILY.load_transformer(self.folder, CPU, torch.float32)
        self.trainable = lora.attach(FAMILY, self.transformer, self.settings, seed=0)
        for _, parameter in self.trainable:
            parameter.data.normal_(std=0.3, generator=torch.Generator().manual_seed(1))
        self.encoder = FAMILY.load_text_encoder(self.folder, CPU, torch.float32)
        shape = Shape(9, model.height, model.width, 8)
        self.previewer = Previewer(run, FAMILY, model, self.folder, shape, self.settings, CPU, torch.float32)

    def prompt(self, text: str, **more: Any) -> PreviewPrompt:
        return PreviewPrompt(text, FAMILY.encode_text(self.encoder, [text]), **more)

    def draw(self, step: int, *prompts: PreviewPrompt, scale: float = 1.0) -> list[tuple[int, int]]:
        seen: list[tuple[int, int]] = []
        empty = self.prompt("").text
        self.previewer.generate(step, self.transformer, prompts, empty, lambda *at: seen.append(at), scale)
        return seen

    def files(self, step: int) -> list[str]:
        return sorted(path.name for path in (self.run / "previews" / f"step-{step:08d}").iterdir())

    def record(self, step: int, name: str) -> dict[str, Any]:
        found: dict[str, Any] = read_json(self.run / "previews" / f"step-{step:08d}" / f"{name}.json")
        return found

    def pixels(self, step: int, name: str) -> Any:
        return media.read_frames(self.run / "previews" / f"step-{step:08d}" / f"{name}.mp4", range(9))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "runs" / "ring").mkdir(parents=True)
    return tmp_path / "runs" / "ring"


def test_every_prompt_is_drawn_with_every_seed_and_says_how_to_draw_it_again(toy_model: Model, run: Path) -> None:
    toy = Toy(toy_model, run, preview_count=2, preview_dynamic_guidance="cosine")
    seen = toy.draw(4, toy.prompt("a red circle"), toy.prompt("a blue\nsquare"))
    assert seen[-1] == (8, 8)
    assert seen == sorted(seen)
    names = [f"{place}.{kind}" for place in range(4) for kind in ("json", "mp4")]
    assert toy.files(4) == [*names, "prompts.txt"]
    text = (run / "previews" / "step-00000004" / "prompts.txt").read_text()
    assert text == "a red circle\na blue square\n"
    assert [toy.record(4, str(place))["seed"] for place in range(4)] == [7, 8, 7, 8]
    again = settings_of(run / "previews" / "step-00000004" / "3.mp4", Workspace(run.parent.parent))
    assert (again.prompt, again.seed, again.steps, again.frames) == ("a blue\nsquare", 8, 2, 9)
    assert again.dynamic_guidance == "cosine"
    assert again.loras == (f"{run / 'checkpoints' / 'step-00000004' / 'lora.safetensors'}=1",)
    assert toy.draw(4, toy.prompt("a red circle")) == [], "what is there is not drawn again"


def test_fast_previews_compute_fewer_steps_and_say_so(toy_model: Model, run: Path) -> None:
    toy, computed = Toy(toy_model, run, preview_steps=12, preview_speed="fast"), list[int]()
    toy.transformer.register_forward_hook(lambda *_: computed.append(1))
    toy.draw(4, toy.prompt("a red circle"))
    assert len(computed) == 8
    assert toy.record(4, "0")["speed"] == toy.record(4, "0")["settings"]["speed"] == "fast"
    exact = Toy(toy_model, run, preview_steps=12, preview_speed="exact")
    exact.draw(2, exact.prompt("a red circle"))
    assert "speed" not in exact.record(2, "0")


def test_a_prompt_keeps_its_number_over_steps_and_after_a_restart(toy_model: Model, run: Path) -> None:
    toy = Toy(toy_model, run)
    toy.draw(0, toy.prompt("a red circle"))
    toy.draw(2, toy.prompt("one of my own"))
    again = Toy(toy_model, run)
    again.draw(4, again.prompt("a red circle"), again.prompt("another"), again.prompt("one of my own"))
    assert {name: again.record(4, name)["prompt"] for name in ("0", "1", "2")} == {
        "0": "a red circle",
        "1": "one of my own",
        "2": "another",
    }
    assert again.record(0, "0")["settings"]["loras"] == []
    again.draw(10, again.prompt("a red circle"))
    assert again.record(10, "0")["settings"]["loras"] == ["ring=1"]


def test_other_lora_scales_stand_beside_and_leave_the_model_as_it_was(toy_model: Model, run: Path) -> None:
    toy = Toy(toy_model, run)
    prompt = toy.prompt("a red circle")
    for scale in (1.0, 0.5, 0.0):
        toy.draw(4, prompt, scale=scale)
    assert {"0.mp4", "0-scale-0.5.mp4", "0-scale-0.mp4"} <= set(toy.files(4))
    assert [toy.record(4, name)["scale"] for name in ("0", "0-scale-0.5", "0-scale-0")] == [1.0, 0.5, 0.0]
    assert toy.record(4, "0-scale-0.5")["settings"]["loras"][0].endswith("lora.safetensors=0.5")
    assert toy.record(4, "0-scale-0")["settings"]["loras"] == []
    half, none = toy.pixels(4, "0-scale-0.5").astype(int), toy.pixels(4, "0-scale-0").astype(int)
    full = toy.pixels(4, "0").astype(int)
    assert 0 < abs(half - none).mean() < abs(full - none).mean()
    base = Toy(toy_model, run)
    base.transformer = FAMILY.load_transformer(base.folder, CPU, torch.float32)
    base.draw(0, prompt)
    assert (base.pixels(0, "0") == none).all()
    (run / "previews" / "step-00000004" / "0.json").unlink()
    toy.draw(4, prompt)
    assert (toy.pixels(4, "0") == full).all()


def test_latents_only_are_decoded_later_to_the_same_video(
    toy_model: Model, run: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    toy = Toy(toy_model, run, preview_latents_only=True)
    toy.draw(4, toy.prompt("a red circle"))
    assert toy.files(4) == ["0.json", "0.safetensors", "prompts.txt"]
    assert toy.record(4, "0")["kind"] == "latents"
    assert toy.draw(4, toy.prompt("a red circle")) == []
    toy.settings.changed(device="cpu").save(run / "config.json")
    monkeypatch.setenv("WORKBENCH_HOME", str(run.parent.parent))
    said = shell("runs", "decode", run.name)
    assert (said.code, said.err) == (0, "")
    assert said.out.splitlines()[-1].startswith("1 previews decoded")
    assert decode_latents(run, pick_device("cpu")) == 0
    assert toy.files(4) == ["0.json", "0.mp4", "0.safetensors", "prompts.txt"]
    assert toy.record(4, "0")["kind"] == "sample"
    decoded = toy.pixels(4, "0")
    at_once = Toy(toy_model, run)
    at_once.draw(5, at_once.prompt("a red circle"))
    assert abs(decoded.astype(int) - at_once.pixels(5, "0")).max() <= 2


@pytest.mark.parametrize("variant", ["sincos", "rotary-1.5"])
def test_what_goes_in_is_shown_once(tmp_path: Path, run: Path, variant: str) -> None:
    toy = Toy(FAMILY.toy(tmp_path / "toy", variant), run)
    drawn = torch.rand(1, 3, 9, toy.model.height, toy.model.width, generator=torch.Generator().manual_seed(0)) * 2 - 1
    video = drawn.mean(dim=(3, 4), keepdim=True).expand_as(drawn)
    moments = FAMILY.encode_video(FAMILY.load_vae(toy.folder, CPU, torch.float32), video)
    shape = FAMILY.latents_shape(toy.folder, 9, toy.model.height, toy.model.width)
    clip = PreviewClip("a.mp4", "a red circle", video, moments, shape)
    toy.previewer.save_inputs([clip])
    assert toy.files(0) == [f"{kind}-0.{end}" for kind in ("input", "reconstruction") for end in ("json", "mp4")]
    assert (toy.record(0, "input-0")["kind"], toy.record(0, "input-0")["clip"]) == ("input", "a.mp4")
    shown = ((video[0].permute(1, 2, 3, 0) + 1) * 127.5).numpy()
    assert abs(toy.pixels(0, "input-0") - shown).max() < 8  # the codec's rounding
    assert toy.pixels(0, "reconstruction-0").shape == shown.shape
    written = (run / "previews" / "step-00000000" / "input-0.mp4").stat().st_mtime_ns
    toy.previewer.save_inputs([clip])
    assert (run / "previews" / "step-00000000" / "input-0.mp4").stat().st_mtime_ns == written


def test_image_to_video_previews_begin_with_their_picture(tmp_path: Path, run: Path) -> None:
    from PIL import Image

    toy = Toy(FAMILY.toy(tmp_path / "toy", "image"), run)
    height, width = toy.model.height, toy.model.width
    picture = torch.linspace(-1, 1, 3 * height * width).reshape(1, 3, height, width)
    toy.draw(4, toy.prompt("a red circle", image=picture), toy.prompt("a blue circle", image=-picture))
    settings = toy.record(4, "1")["settings"]
    assert settings["image"] == str(run / "previews" / "picture-1.png")
    assert settings["image_scale"] == "pipeline"
    with Image.open(settings["image"]) as image:
        assert image.size == (width, height)
    given = torch.zeros(1, *FAMILY.latents_shape(toy.folder, 9, height, width))
    toy.draw(5, toy.prompt("a red circle", image=picture, given=Given(beside=given)))
    assert "settings" not in toy.record(5, "0"), "the Sample tab cannot make this condition"


def test_weights_that_only_the_run_holds_are_not_offered_to_the_sample_tab(toy_model: Model, run: Path) -> None:
    for settings in ({"ema_decay": 0.9}, {"train_also": ("patch_embed",)}, {"optimizer": "schedule-free"}):
        toy = Toy(toy_model, run, **settings)
        step = 1 + len(list(run.glob("previews/*")))
        toy.draw(step, toy.prompt("a red circle"))
        assert "settings" not in toy.record(step, "0")


@pytest.mark.parametrize("variant", ["sincos", "image", "image-1.5"])
def test_latents_first_and_the_vae_afterwards_give_what_the_stock_pipeline_draws(
    tmp_path: Path, run: Path, variant: str
) -> None:
    toy = Toy(FAMILY.toy(tmp_path / "toy", variant), run)
    order: list[str] = []
    toy.previewer.offload_transformer = lambda: _noted(order)
    height, width = toy.model.height, toy.model.width
    picture = torch.linspace(-1, 1, 3 * height * width).reshape(1, 3, height, width) if "image" in variant else None
    prompt = toy.prompt("a red circle", image=picture)
    toy.previewer.generate(4, toy.transformer, [prompt], toy.prompt("").text, lambda *at: order.append(f"step {at[0]}"))
    assert order == ["step 1", "step 2", "room", "no room"], "room is made when the transformer is done"

    vae = FAMILY.load_vae(toy.folder, CPU, torch.float32)
    pipeline = stock_pipeline(toy.folder, toy.transformer, vae)
    stock = pipeline(
        prompt_embeds=prompt.text["prompt_embeds"],
        num_frames=9,
        height=height,
        width=width,
        num_inference_steps=2,
        guidance_scale=1.0,
        generator=torch.Generator().manual_seed(7),
        output_type="np",
        **({} if picture is None else {"image": (picture + 1) / 2}),
    ).frames
    write_sample(run / "stock.mp4", stock[0], 8, {})
    assert (toy.pixels(4, "0") == media.read_frames(run / "stock.mp4", range(9))).all()


@contextlib.contextmanager
def _noted(order: list[str]) -> Iterator[None]:
    order.append("room")
    yield
    order.append("no room")
