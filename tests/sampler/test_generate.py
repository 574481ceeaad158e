"""Sampling: exactly what the stock pipeline generates, with nothing left over between requests."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.sampler.conftest import WriteLora
from workbench.clips import frame_metrics, media
from workbench.errors import ConfigError
from workbench.families.phenaki import FAMILY as PHENAKI
from workbench.jobs.devices import pick_device
from workbench.paths import ASSETS
from workbench.sampler.generate import Sampler
from workbench.sampler.inputs import inputs_of, last_frames, read_picture
from workbench.sampler.settings import SampleSettings
from workbench.workspace import Workspace

PROMPT = "a red circle moves left"


@pytest.fixture(scope="module")
def sampler(toy_folder: Path) -> Sampler:
    return Sampler(str(toy_folder), pick_device("cpu"))


def settings(model: Path | str, **values: object) -> SampleSettings:
    base = SampleSettings(model=str(model), seed=0, device="cpu")
    return base.changed(**{"prompt": PROMPT, "steps": 3, **values})


def stock(model: Path, loras: tuple[tuple[Path, float], ...] = (), scheduler: str = "", **values: object) -> np.ndarray:
    """Generate the same video with diffusers alone."""
    import diffusers
    import torch

    pipeline = diffusers.CogVideoXPipeline.from_pretrained(model)
    if scheduler:
        pipeline.scheduler = getattr(diffusers, scheduler).from_config(pipeline.scheduler.config)
    for number, (path, _) in enumerate(loras):
        pipeline.load_lora_weights(str(path), adapter_name=f"stock_{number}")
    if loras:
        pipeline.set_adapters([f"stock_{number}" for number in range(len(loras))], [scale for _, scale in loras])
    seed = values.pop("seed", 0)
    wanted = {"prompt": PROMPT, "num_inference_steps": 3, "num_frames": 9, "height": 16, "width": 16, **values}
    video = pipeline(
        **wanted, generator=torch.Generator().manual_seed(seed), max_sequence_length=16, output_type="np"
    ).frames[0]
    return (video * 255).round().astype(np.uint8)


@pytest.mark.parametrize(
    ("asked", "same"),
    [
        ({}, {}),
        ({"seed": 5, "negative_prompt": "blue"}, {"seed": 5, "negative_prompt": "blue"}),
        ({"guidance_scale": 1.0}, {"guidance_scale": 1.0}),
        ({"guidance_scale": 3.5, "dynamic_guidance": "stock"}, {"guidance_scale": 3.5, "use_dynamic_cfg": True}),
        ({"scheduler": "DDIM"}, {"scheduler": "CogVideoXDDIMScheduler"}),
        ({"frames": 17, "height": 24, "width": 32}, {"num_frames": 17, "height": 24, "width": 32}),
    ],
)
def test_the_stock_pipeline_draws_the_same(
    sampler: Sampler, toy_folder: Path, workspace: Workspace, asked: dict[str, object], same: dict[str, object]
) -> None:
    made = sampler.generate(workspace, settings(toy_folder, **asked))
    expected = stock(toy_folder, **same)
    assert made.frames.shape == expected.shape
    assert np.abs(made.frames.astype(int) - expected).max() <= 1


@pytest.mark.filterwarnings("ignore:Already found a `peft_config`")
def test_loras_draw_as_with_the_stock_loader(
    sampler: Sampler, toy_folder: Path, workspace: Workspace, write_lora: WriteLora, tmp_path: Path
) -> None:
    one, two = write_lora(tmp_path / "one.v1.safetensors", seed=1, alpha=8.0), write_lora(tmp_path / "b.safetensors", 2)
    made = sampler.generate(workspace, settings(toy_folder, loras=[f"{one}=0.5", f"{two}=-0.25"]))
    assert np.abs(made.frames.astype(int) - stock(toy_folder, ((one, 0.5), (two, -0.25)))).max() <= 1
    assert not np.array_equal(made.frames, stock(toy_folder))
    assert [lora["scale"] for lora in made.record["loras"]] == [0.5, -0.25]
    assert len(made.record["loras"][0]["sha256"]) == 64


def test_a_warm_pipeline_draws_what_a_cold_one_does(
    sampler: Sampler, toy_folder: Path, workspace: Workspace, write_lora: WriteLora, tmp_path: Path
) -> None:
    one, two = write_lora(tmp_path / "one.safetensors", 1), write_lora(tmp_path / "two.safetensors", 2, rank=2)
    requests = [
        settings(toy_folder),
        settings(toy_folder, loras=[f"{one}"]),
        settings(toy_folder, loras=[f"{two}=0.5", f"{one}=0.5"], scheduler="DDIM"),
        settings(toy_folder, loras=[f"{two}"]),
    ]

    def cold(request: SampleSettings) -> np.ndarray:
        return Sampler(str(toy_folder), pick_device("cpu")).generate(workspace, request).frames

    expected = [cold(request) for request in requests]

    def interrupt(done: int, total: int, latents: object) -> None:
        raise InterruptedError

    for number in (0, 1, 2, 3, 0, 2, 1, 0):
        with pytest.raises(InterruptedError):
            sampler.generate(workspace, requests[number - 1], interrupt)
        assert np.array_equal(sampler.generate(workspace, requests[number]).frames, expected[number]), number


def test_a_refused_lora_leaves_the_pipeline_clean(
    sampler: Sampler, toy_folder: Path, workspace: Workspace, write_lora: WriteLora, tmp_path: Path
) -> None:
    from safetensors.numpy import load_file, save_file

    good = write_lora(tmp_path / "good.safetensors", 1)
    tensors = load_file(good)
    broken = {name: np.full_like(tensor, np.nan) if "blocks.1" in name else tensor for name, tensor in tensors.items()}
    save_file(broken, tmp_path / "nan.safetensors")
    before = sampler.generate(workspace, settings(toy_folder)).frames
    with pytest.raises(ConfigError, match="nan.safetensors holds NaN or infinite numbers"):
        sampler.generate(workspace, settings(toy_folder, loras=[f"{good}", f"{tmp_path}/nan.safetensors"]))
    assert np.array_equal(sampler.generate(workspace, settings(toy_folder)).frames, before)


def test_the_record_leaves_nothing_open(sampler: Sampler, toy_folder: Path, workspace: Workspace) -> None:
    seen: list[tuple[int, int]] = []
    made = sampler.generate(workspace, settings(toy_folder), lambda done, total, latents: seen.append((done, total)))
    assert seen == [(1, 3), (2, 3), (3, 3)]
    record = made.record
    assert (record["frames"], record["height"], record["width"], record["fps"]) == (9, 16, 16, 8)
    assert (record["guidance_scale"], record["scheduler"], record["steps"], record["seed"]) == (6.0, "DPM", 3, 0)
    assert (record["dtype"], record["speed"], record["decoded"], record["loras"]) == ("float32", "exact", "whole", [])
    assert {"torch", "diffusers", "workbench"} <= record["versions"].keys()


# ---- from a picture, from a video


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (16, 16, 3), np.uint8)).save(tmp_path / "first.png")
    return tmp_path / "first.png"


def test_a_continued_video_begins_with_the_last_frames(workspace: Workspace, tmp_path: Path) -> None:
    """Use the built-in model, whose trained VAE keeps the frames: they come back, and the video continues."""
    tiny = Sampler("tiny-cogvideox", pick_device("cpu"))
    before = tiny.generate(workspace, settings("tiny-cogvideox", steps=4)).frames
    still = np.repeat(before[:1], 3, axis=0)
    media.encode(np.concatenate([still, before]), tmp_path / "before.mp4", 8.0)
    asked = settings("tiny-cogvideox", steps=4, frames=17, seed=3, continue_from=str(tmp_path / "before.mp4"))
    made = tiny.generate(workspace, asked)
    assert made.frames.shape == (17, 40, 40, 3)
    assert made.record["kept_frames"] == 9
    assert made.record["joint"] == round(frame_metrics.joint(made.frames, 9) or 0, 2)
    error = np.square(made.frames[:9].astype(float) - before).mean()
    assert 10 * np.log10(255**2 / error) > 22  # dB
    one = tiny.generate(workspace, asked.changed(kept_frames=1))
    assert one.record["kept_frames"] == 1
    assert (
        np.square(one.frames[0].astype(float) - before[-1]).mean()
        < np.square(one.frames[0].astype(float) - before[0]).mean()
    )
    with pytest.raises(ConfigError, match="kept_frames is 17, must be 1 or 8k\\+1, .* video's 17: use 9"):
        inputs_of(workspace, asked.changed(kept_frames=17))
    other = tiny.generate(workspace, settings("tiny-cogvideox", steps=4, frames=17, seed=3)).frames
    assert np.square(other[:9].astype(float) - before).mean() > 2 * error


@pytest.mark.parametrize(
    ("asked", "match"),
    [
        ({}, "image is empty, image-toy starts from a first frame: give a picture file"),
        ({"image": "{folder}/none.png"}, "image is none.png, which cannot be used: it cannot be opened: No such file"),
        ({"image": "{folder}/text.png"}, "image is text.png, which cannot be read as a picture: give a PNG"),
        ({"continue_from": "{folder}/text.png"}, "continue_from is text.png, which cannot be used: not a readable"),
    ],
)
def test_a_missing_or_wrong_picture_is_named_before_the_weights_are_loaded(
    image_toy_folder: Path, workspace: Workspace, tmp_path: Path, asked: dict[str, str], match: str
) -> None:
    (tmp_path / "text.png").write_text("no picture")
    values = {name: value.format(folder=tmp_path) for name, value in asked.items()}
    with pytest.raises(ConfigError, match=match) as caught:
        inputs_of(workspace, settings(image_toy_folder, **values))
    assert list(caught.value.problems) == list(asked or ["image"])


def test_a_picture_is_a_video_of_one_frame(sampler: Sampler, workspace: Workspace) -> None:
    clip = str(next((ASSETS / "demo_clips" / "known").glob("*.mp4")))
    made = sampler.generate(workspace, settings(sampler.name, frames=1))
    assert made.frames.shape == (1, sampler.model.height, sampler.model.width, 3)
    assert made.record["frames"] == 1
    with pytest.raises(ConfigError, match="frames is 1, a picture, which cannot continue a video"):
        inputs_of(workspace, settings(sampler.name, frames=1, continue_from=clip))


def test_temperature_decides_how_freely_codes_are_sampled_and_the_record_says_it(
    workspace: Workspace, tmp_path: Path
) -> None:
    toy = PHENAKI.toy(tmp_path / "phenaki", "self").source
    sampler = Sampler(toy, pick_device("cpu"))
    usual, same, cold = (sampler.generate(workspace, settings(toy, temperature=one)) for one in (None, 0.9, 0.0))
    assert [made.record["temperature"] for made in (usual, same, cold)] == [0.9, 0.9, 0.0]
    assert np.array_equal(usual.frames, same.frames)
    assert not np.array_equal(usual.frames, cold.frames)
    with pytest.raises(ConfigError, match="temperature is 0.5, a setting that .* does not have: leave it empty"):
        inputs_of(workspace, settings("tiny-cogvideox", temperature=0.5))


# ---- First frames: what is taken from a person's own picture or video


def test_a_picture_is_turned_upright_and_cut_to_the_middle(tmp_path: Path) -> None:
    wide = np.zeros((20, 60, 3), np.uint8)
    wide[:, 20:40] = 255
    turned = Image.Exif()
    turned[0x0112] = 6  # stored rotated by 90 degrees
    Image.fromarray(wide).save(tmp_path / "wide.png", exif=turned)
    frames = read_picture(tmp_path / "wide.png", 10, 10)
    assert frames.shape == (1, 10, 10, 3)
    assert frames.min() > 220
    whole = read_picture(tmp_path / "wide.png", 30, 10)[0, :, 5, 0]
    assert whole[2] < 5
    assert whole[15] > 250
    assert whole[27] < 5


def test_what_is_transparent_becomes_white(tmp_path: Path) -> None:
    Image.new("RGBA", (16, 16), (255, 0, 0, 0)).save(tmp_path / "clear.webp", lossless=True)
    assert read_picture(tmp_path / "clear.webp", 16, 16).min() == 255


def test_a_picture_cut_short_is_refused(tmp_path: Path) -> None:
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)).save(tmp_path / "whole.png")
    data = (tmp_path / "whole.png").read_bytes()
    (tmp_path / "half.png").write_bytes(data[: len(data) // 2])
    with pytest.raises(ConfigError, match="image is half.png, which is damaged: copy it again"):
        read_picture(tmp_path / "half.png", 16, 16)


@pytest.mark.parametrize(
    ("count", "fps", "expected"),
    [(5, 8.0, [3, 6, 9, 12, 15]), (1, 8.0, [15]), (3, 24.0, [13, 14, 15]), (17, 8.0, [0, *range(16)])],
)
def test_the_last_frames_come_at_the_wanted_rate(tmp_path: Path, count: int, fps: float, expected: list[int]) -> None:
    """16 frames at 24 a second, each of a gray of its own; too short for the wanted rate: the last ones as they are."""
    grays = np.linspace(0, 240, 16).astype(np.uint8)
    video = np.broadcast_to(grays[:, None, None, None], (16, 32, 32, 3))
    media.encode(np.ascontiguousarray(video), tmp_path / "grays.mp4", 24.0)
    found = last_frames(tmp_path / "grays.mp4", count, fps, 16, 16)
    assert found.shape == (count, 16, 16, 3)
    assert np.abs(found.mean((1, 2, 3)) - grays[expected]).max() < 4
