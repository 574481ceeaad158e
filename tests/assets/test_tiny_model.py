"""The embedded model, its world, its check and its training script."""

from __future__ import annotations

import random
import re
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from diffusers import CogVideoXImageToVideoPipeline, CogVideoXPipeline
from torch import Tensor

ROOT = Path(__file__).resolve().parents[2]
ASSETS = ROOT / "assets"
sys.path.insert(0, str(ASSETS))

import tiny_accuracy  # noqa: E402
import tiny_check  # noqa: E402
import tiny_models  # noqa: E402
import tiny_world  # noqa: E402

from workbench.families.model_files import SHARED, whole  # noqa: E402
from workbench.workspace import read_json  # noqa: E402

pytestmark = pytest.mark.release

MODEL, IMAGE_MODEL = ASSETS / "tiny-cogvideox", ASSETS / "tiny-cogvideox-i2v"


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    """The tensors are so small that a second thread only waits, above all on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def pipeline() -> CogVideoXPipeline:
    """The shipped text-to-video model, loaded by stock diffusers."""
    return CogVideoXPipeline.from_pretrained(MODEL)


@pytest.fixture(scope="module")
def image_pipeline() -> CogVideoXImageToVideoPipeline:
    """The shipped image-to-video model, loaded by stock diffusers."""
    return CogVideoXImageToVideoPipeline.from_pretrained(whole(IMAGE_MODEL))


def clips_of(specs: list[tiny_world.Spec], seed: int = 0, size: int = tiny_world.SIZE) -> Tensor:
    """Drawn clips [N, 3, F, H, W]."""
    rng = random.Random(seed)
    return torch.stack([tiny_world.draw(spec, rng, size) for spec in specs])


def read_clip(file: Path) -> Tensor:
    """A stored clip [3, F, H, W] in [-1, 1]."""
    import av

    with av.open(str(file)) as container:
        frames = [torch.from_numpy(frame.to_ndarray(format="rgb24")) for frame in container.decode(video=0)]
    return torch.stack(frames).permute(3, 0, 1, 2).float() / 127.5 - 1


def test_the_generator_is_deterministic_and_scales() -> None:
    spec = tiny_world.Spec("ring", "red", "left", "white")
    first, again = (tiny_world.draw(spec, random.Random(3)) for _ in range(2))
    assert first.shape == (3, 9, 40, 40)
    assert torch.equal(first, again)
    assert torch.equal(tiny_world.vae_clip(random.Random(4)), tiny_world.vae_clip(random.Random(4)))
    large = tiny_world.draw(spec, random.Random(3), size=160)
    small = torch.nn.functional.avg_pool3d(large, (1, 4, 4))
    assert (small - first).abs().mean() < 0.02


def test_a_small_shape_is_said_to_be_small_and_stays_in_the_picture() -> None:
    for usual in tiny_world.held_out():
        spec = replace(usual, small=True)
        assert spec.caption() == re.sub("^an? ", "a small ", usual.caption())
        assert spec.caption(2) == f"small {usual.caption(2)}"
        small, large = (tiny_check.foreground(clips_of([one])[0])[2] > 0.5 for one in (spec, usual))
        assert small.sum() < 0.6 * large.sum()
        assert not small[:, [0, -1]].any()
        assert not small[:, :, [0, -1]].any()


def test_held_out_captions_are_never_trained_on() -> None:
    held_out, training = tiny_world.held_out(), tiny_world.training_specs()
    assert len(set(held_out)) == 64
    assert not set(held_out) & set(training)
    assert not {spec.shape for spec in training} & {"ring", "cross", "star"}
    for part, slack in (("shape", 0), ("motion", 0), ("colour", 2), ("background", 2)):
        counts = Counter(getattr(spec, part) for spec in held_out).values()
        assert max(counts) - min(counts) <= slack, part


def test_the_concept_has_captions_left_to_test_on() -> None:
    demo, test = tiny_world.concept_specs()
    assert (len(set(demo)), len(set(test))) == (24, 32)
    assert not set(demo) & set(test)
    assert not set(tiny_world.known_demo_specs()) & set(tiny_world.held_out())


def test_the_check_names_what_real_clips_show() -> None:
    known = tiny_world.held_out()
    new = tiny_world.balanced_choice(tiny_world.combinations(("ring", "cross", "star")), 63, seed=5)
    for specs in (known, new):
        assert tiny_check.accuracy(clips_of(specs), specs)["all"] >= 0.98


def test_the_check_finds_nothing_where_nothing_is() -> None:
    noise = torch.rand(3, 9, 40, 40, generator=torch.Generator().manual_seed(0)) * 2 - 1
    grey = torch.full((3, 9, 40, 40), 0.9)
    assert tiny_check.inspect(grey).shape is None
    assert not tiny_check.inspect(noise).matches(tiny_world.held_out()[0])["all"]
    still = clips_of(tiny_world.held_out()[:1])[:, :, 4:5].expand(-1, -1, 9, -1, -1)[0]
    assert tiny_check.inspect(still).motion is None


@pytest.mark.parametrize("concept", tiny_world.CONCEPTS)
def test_the_check_sees_a_concept_where_it_is_and_nowhere_else(concept: str) -> None:
    learned, asked = tiny_world.concept_specs(concept)
    assert not {spec.caption() for spec in learned} & {spec.caption() for spec in asked}
    shown = [tiny_check.shows(clip, concept) for clip in clips_of(learned + asked)]
    assert sum(shown) >= 0.98 * len(shown)
    assert not any(tiny_check.shows(clip, concept) for clip in clips_of(tiny_world.held_out()))


def test_the_check_tells_striped_from_plain_backgrounds() -> None:
    striped, plain = clips_of(sum(tiny_world.concept_specs("stripes"), [])), clips_of(tiny_world.held_out())
    assert all(tiny_check.stripes(clip) > tiny_check.STRIPED for clip in striped)
    assert not any(tiny_check.stripes(clip) > tiny_check.STRIPED for clip in plain)


@pytest.mark.parametrize("manner", ["shrinks", "fades", "turns"])
def test_the_check_tells_manners_of_moving_that_first_frames_do_not_give_away(manner: str) -> None:
    learned, asked = tiny_world.concept_specs(manner)
    assert not {spec.caption() for spec in learned} & {spec.caption() for spec in asked}
    specs = learned + asked
    clips = clips_of(specs)
    known = clips_of([replace(spec, manner="straight") for spec in specs])
    assert {tiny_check.manner(clip) for clip in clips} == {manner}
    assert {tiny_check.manner(clip) for clip in known} == {"straight"}
    assert torch.equal(clips[:, :, :5], known[:, :, :5])


def shows_what_it_should(clip: Tensor, spec: tiny_world.Spec) -> bool:
    """Stripes where asked for; everything, where the background is plain and the check can name all of it."""
    if spec.texture == "striped":
        return tiny_check.stripes(clip) > tiny_check.STRIPED
    return tiny_check.inspect(clip).matches(spec)["all"]


@pytest.mark.parametrize("folder", [tiny_world.CONCEPT, "known"])
def test_demo_clips_show_what_their_captions_say(folder: str) -> None:
    specs = tiny_world.known_demo_specs() if folder == "known" else tiny_world.concept_specs()[0]
    files = sorted((ASSETS / "demo_clips" / folder).glob("*.mp4"))
    assert [file.with_suffix(".txt").read_text().strip() for file in files] == [spec.caption() for spec in specs]
    clips = torch.stack([read_clip(file) for file in files])
    assert clips.shape[1:] == (3, 9, 160, 160)
    small = torch.nn.functional.avg_pool3d(clips, (1, 4, 4))
    assert all(shows_what_it_should(clip, spec) for clip, spec in zip(small, specs, strict=True))


def test_the_models_are_small_and_readable_by_everyone() -> None:
    files = [file for folder in (MODEL, IMAGE_MODEL) for file in folder.rglob("*") if file.is_file()]
    assert all(file.stat().st_mode & 0o044 == 0o044 for file in files)
    assert all((folder / "README.md").read_text().startswith("---") for folder in (MODEL, IMAGE_MODEL))
    assert sum(file.stat().st_size for file in ASSETS.rglob("*") if file.is_file()) < 35e6


def test_the_models_share_all_but_the_transformer() -> None:
    shared = dict.fromkeys(tiny_models.SHARED, MODEL.name)
    assert read_json(IMAGE_MODEL / SHARED) == shared
    assert {path.name for path in IMAGE_MODEL.iterdir() if path.is_dir()} == {"transformer"}


def test_every_ascii_caption_has_ids_of_its_own(pipeline: CogVideoXPipeline) -> None:
    tokenizer = pipeline.tokenizer
    words = ["ring", "cross", "star", "stripes", "striped", "sks", "circle", "square"]
    ids = [tuple(tokenizer(word, add_special_tokens=False).input_ids) for word in words]
    assert len(set(ids)) == len(words)
    assert {len(i) for i in ids} == {1}
    printable = "".join(chr(code) for code in range(32, 127))
    assert tokenizer.unk_token_id not in tokenizer(printable).input_ids


def test_reconstructions_pass_the_check(pipeline: CogVideoXPipeline) -> None:
    specs = tiny_world.held_out()[:8] + tiny_world.concept_specs("ring")[1][:8] + tiny_world.concept_specs()[1][:8]
    again = tiny_models.reconstruct(pipeline.vae, clips_of(specs))
    assert sum(shows_what_it_should(clip, spec) for clip, spec in zip(again, specs, strict=True)) >= 22


def test_held_out_prompts_are_drawn(pipeline: CogVideoXPipeline) -> None:
    specs = tiny_world.held_out()[:8]
    clips = tiny_models.sample(pipeline, [spec.caption() for spec in specs])
    assert tiny_check.accuracy(clips, specs)["all"] >= 5 / 8


def test_videos_go_on_from_the_given_first_frame(image_pipeline: CogVideoXImageToVideoPipeline) -> None:
    found = tiny_accuracy.image_accuracy(image_pipeline, 8)
    assert found["first frame PSNR"] > found["first frame PSNR, VAE"] - 2
    assert found["all"] >= 5 / 8


@pytest.fixture
def train(compute: Callable[..., object]) -> Callable[..., object]:
    """The training script in miniature, in a process of its own: 3 + 2 + 3 + 3 steps."""
    few = ["--vae-steps", "3", "--decoder-steps", "2", "--transformer-steps", "3", "--image-steps", "3"]
    few += ["--vae-clips", "8", "--vae-batch", "1"]
    few += ["--renditions", "1", "--small-renditions", "1", "--combinations", "8"]
    few += ["--transformer-batch", "4", "--check-clips", "0"]
    few += ["--threads", "1", "--device", "cpu"]

    def run(folder: Path, *more: str) -> object:
        folders = ["--out", f"{folder / 'out'}", "--image-out", f"{folder / 'image'}", "--work", f"{folder}"]
        return compute("train_tiny_model.py", *folders, *few, *more)

    return run


def test_a_resumed_training_ends_with_the_same_weights(tmp_path: Path, train: Callable[..., object]) -> None:
    train(tmp_path / "whole")
    train(tmp_path / "parts", "--stop-after", "2")
    train(tmp_path / "parts", "--stop-after", "7")
    train(tmp_path / "parts")
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    weights = sorted(file.relative_to(whole) for file in whole.rglob("*.safetensors"))
    assert len(weights) == 4
    for file in weights:
        assert (whole / file).read_bytes() == (parts / file).read_bytes(), file
    assert isinstance(tiny_models.load(whole / "out"), CogVideoXPipeline)
    assert isinstance(tiny_models.load(whole / "image"), CogVideoXImageToVideoPipeline)


def test_a_stored_vae_can_be_kept(tmp_path: Path, train: Callable[..., object]) -> None:
    shutil.copytree(MODEL, tmp_path / "out")
    train(tmp_path, "--keep-vae")
    weights = "diffusion_pytorch_model.safetensors"
    for part, kept in (("vae", True), ("transformer", False)):
        before, after = ((folder / part / weights).read_bytes() for folder in (MODEL, tmp_path / "out"))
        assert (before == after) is kept, part
    assert str(tmp_path) not in (tmp_path / "out" / "vae" / "config.json").read_text()
