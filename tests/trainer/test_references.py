"""Training LTX-Video, CogVideoX-Fun and Wan with given frames, masks, control and reference clips."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import diffusers
import numpy as np
import pytest
import torch
from PIL import Image

from tests.driving import create, session
from tests.trainer.test_exact import assert_exact
from tests.trainer.test_told_in_training import attached
from workbench.clips import media
from workbench.clips.records import read_clips, write_clips
from workbench.dataset_builder import Dataset
from workbench.errors import ConfigError, DataError
from workbench.families import find_model
from workbench.families.cogvideox import FAMILY as COGVIDEOX
from workbench.families.lora_files import REFERENCE_KEY
from workbench.families.ltx import FAMILY as LTX
from workbench.families.ltx2 import FAMILY as LTX2
from workbench.families.model import Model
from workbench.families.wan import FAMILY as WAN
from workbench.fit.estimate import GpuModel
from workbench.fit.memory import sizes
from workbench.jobs.devices import pick_device
from workbench.loras.converting import convert, import_lora
from workbench.loras.settings import ConvertSettings, LoraImportSettings
from workbench.runs.checks import check
from workbench.runs.data import load_data
from workbench.runs.settings import TrainSettings
from workbench.sampler.generate import Sampler
from workbench.sampler.inputs import conditioning_from, inputs_of
from workbench.sampler.loras import read_header
from workbench.sampler.settings import SampleSettings
from workbench.trainer.encoder import conditioning_views, read_conditioning, read_video
from workbench.trainer.loop import training_loop
from workbench.workspace import Workspace, read_json
from workbench.workspace.lora_names import FILE

pytestmark = pytest.mark.long


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Model]:
    base = tmp_path_factory.mktemp("told")
    made = {variant: LTX.toy(base / variant, variant) for variant in ("text", "text-0.9.5")}
    made |= {variant: COGVIDEOX.toy(base / variant, variant) for variant in ("fun-inp", "fun-control")}
    made |= {"ltx2-text-2.3": LTX2.toy(base / "ltx2", "text-2.3")}
    return made | {f"wan-{variant}": WAN.toy(base / f"wan-{variant}", variant) for variant in ("text", "image-2.1")}


EVERY = ["first 0.2", "last 0.2", "first+last 0.1", "keyframes 3 0.1", "mask outside 0.1", "prefix 1 0.1"]
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "frames of all kinds and a smaller reference, two shapes": (
        "text-0.9.5",
        {
            "given": [*EVERY, "suffix 9 0.1"],
            "reference": True,
            "reference_downscale": 2,
            "buckets": ["17x64x64", "17x128x64"],
            "batch_size": 2,
            "horizontal_flip": 0.5,
        },
    ),
    "LTX-2: frames of all kinds and a smaller reference": (
        "ltx2-text-2.3",
        {"given": EVERY, "reference": True, "reference_downscale": 2, "batch_size": 2},
    ),
    "Wan's reference, two shapes": (
        "wan-text",
        {"reference": True, "batch_size": 2, "buckets": ["9x32x32", "9x48x32"], "horizontal_flip": 0.5},
    ),
    "a reference beside Wan's first frame": ("wan-image-2.1", {"reference": True, "given": ["first 0.7"]}),
    "inpainting": ("fun-inp", {"given": EVERY, "gradient_accumulation": 2, "horizontal_flip": 0.5}),
    "control, two shapes": (
        "fun-control",
        {"control": True, "batch_size": 2, "buckets": ["9x16x16", "9x32x16"], "horizontal_flip": 0.5},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_interrupted_and_resumed_it_ends_in_the_same_bytes(
    workspace: Workspace, dataset: Dataset, models: dict[str, Model], name: str
) -> None:
    variant, values = CASES[name]
    for kind in ("control", "mask", "reference"):
        attached(dataset, kind)
    assert_exact(workspace, models[variant].source, values)


def test_a_reference_of_the_clips_own_size_matches_it_frame_by_frame(
    workspace: Workspace, dataset: Dataset, models: dict[str, Model]
) -> None:
    """Use the clip itself as its reference: it gets the same frame plan, averaged down to the smaller size."""
    records = read_clips(dataset.folder)
    for clip in records:
        shutil.copyfile(dataset.folder / clip.file_name, dataset.folder / f"clips/{clip.id}.reference-00000000.mp4")
    own = [clip.changed(reference=f"clips/{clip.id}.reference-00000000.mp4") for clip in records]
    write_clips(dataset.folder, own)
    run = create(workspace, models["text-0.9.5"].source, reference=True, reference_downscale=2)
    item = load_data(workspace, run.settings).train[0]
    assert conditioning_views(run.settings, item) == ["reference 2"]
    told = read_conditioning(item, "reference 2")
    assert told.reference is not None
    cells = torch.nn.functional.avg_pool3d(read_video(item)[0], (1, 2, 2))[None]
    torch.testing.assert_close(told.reference, cells)
    flipped = read_conditioning(item, "reference 2", flipped=True).reference
    assert flipped is not None
    assert torch.equal(flipped, told.reference.flip(-1))


def test_a_reference_of_its_own_length_goes_on_with_its_last_frame(
    workspace: Workspace, dataset: Dataset, models: dict[str, Model]
) -> None:
    frames = np.stack([np.full((40, 60, 3), 40 * number, np.uint8) for number in range(5)])
    attached(dataset, "reference", frames)
    settings = create(workspace, models["text-0.9.5"].source, reference=True).settings
    item = load_data(workspace, settings).train[0]
    shown = read_conditioning(item, "reference 1").reference
    assert shown is not None
    assert shown.shape == (1, 3, 17, 64, 64)
    assert shown[0, 0, -1].mean() == pytest.approx(160 / 127.5 - 1, abs=0.05)


def test_pictures_are_references_of_one_frame_and_do_not_mix_with_videos(
    workspace: Workspace, dataset: Dataset, models: dict[str, Model]
) -> None:
    records = read_clips(dataset.folder)
    for clip in records:
        Image.new("RGB", (50, 40), "red").save(dataset.folder / f"clips/{clip.id}.reference-00000000.png")
    names = [clip.changed(reference=f"clips/{clip.id}.reference-00000000.png") for clip in records]
    write_clips(dataset.folder, names)
    run = create(workspace, models["text-0.9.5"].source, reference=True, batch_size=2)
    data = load_data(workspace, run.settings)
    shown = read_conditioning(data.train[0], "reference 1").reference
    assert shown is not None
    assert shown.shape == (1, 3, 1, 64, 64)
    made = session(run)
    given = made.inputs.batch(1, 0).inputs.given
    assert given is not None
    assert given.tokens["extra"].shape[:2] == (2, 4)
    made.metrics.close()
    attached(dataset, "reference")
    mixed = read_clips(dataset.folder)
    write_clips(dataset.folder, [names[0], *mixed[1:]])
    with pytest.raises(ConfigError, match="is an image and that of .* a video: use only one of the two in a run"):
        load_data(workspace, run.settings)


@pytest.mark.parametrize(
    ("variant", "values", "sentence"),
    [
        ("text", {"given": ["last 0.3"]}, "given has last, .* its pipeline takes no others"),
        ("text-0.9.5", {"given": ["prefix 8 0.3"]}, "use prefix 1 or prefix 9"),
        ("text-0.9.5", {"control": True}, "a setting that .* does not have: set it to False"),
        ("ltx2-text-2.3", {"control": True}, "a setting that .* does not have: set it to False"),
        ("ltx2-text-2.3", {"reference": True, "sound": "sound"}, "reference is .*, which works on the picture, but"),
        ("ltx2-text-2.3", {"given": ["last 1"], "sound": "sound for picture"}, "given is .*, which works on the"),
        ("fun-inp", {"control": True}, "a setting that .* does not have: set it to False"),
        ("fun-control", {"given": ["first 0.3"]}, "a setting that .* does not have: leave it empty"),
        ("fun-control", {"reference": True}, "a setting that .* does not have: set it to False"),
        ("wan-text", {"reference": True, "reference_downscale": 2}, "reference_downscale is 2, a setting that"),
        ("wan-text", {"control": True}, "a setting that .* does not have: set it to False"),
        ("wan-image-2.1", {"reference": True}, "given is empty beside a reference, .* starts from a first frame"),
    ],
)
def test_what_cannot_be_told_is_refused_with_the_reason(
    workspace: Workspace,
    dataset: Dataset,
    models: dict[str, Model],
    variant: str,
    values: dict[str, Any],
    sentence: str,
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        check(workspace, TrainSettings().changed(model=models[variant].source, dataset="squares", **values))


def test_references_that_do_not_fit_are_refused(
    workspace: Workspace, dataset: Dataset, models: dict[str, Model]
) -> None:
    settings = TrainSettings().changed(model=models["text-0.9.5"].source, dataset="squares", reference=True)
    with pytest.raises(DataError, match="it has no reference, which reference needs"):
        load_data(workspace, settings)
    attached(dataset, "reference")
    sentence = "reference_downscale is 4, which does not work with clips of 64x64: use sizes that are multiples of 128"
    with pytest.raises(ConfigError, match=sentence):
        load_data(workspace, settings.changed(reference_downscale=4))


def test_the_fit_check_counts_a_references_tokens(models: dict[str, Model]) -> None:
    def tokens(**values: Any) -> int:
        settings = TrainSettings().changed(model=models["text-0.9.5"].source, **values)
        family, known = settings.resolved
        return sizes(settings, known, family.facts(known), GpuModel("a large GPU", "cuda", 200.0, 394.0)).tokens

    assert tokens(reference=True) == 2 * tokens()
    assert tokens(reference=True, reference_downscale=2) == tokens() * 5 // 4


def test_an_in_context_lora_is_previewed_named_and_sampled_with_a_reference(
    workspace: Workspace, dataset: Dataset, models: dict[str, Model]
) -> None:
    """Its file records how much smaller the reference is, and sampling reads it from there."""
    attached(dataset, "reference")
    source = models["text-0.9.5"].source
    values = {"reference": True, "reference_downscale": 2, "steps": 2, "preview_every": 2, "preview_steps": 2}
    run = create(workspace, source, **values, given=["first 0.4"], save_every=2)
    training_loop(session(run))
    records = [read_json(path) for path in sorted(run.folder.glob("previews/step-*/[0-9].json"))]
    assert records
    assert all(record["told"].startswith("first, reference of ") for record in records)
    lora = run.folder / "lora.safetensors"
    assert read_header(lora).metadata[REFERENCE_KEY] == "2"
    imported = import_lora(workspace, LoraImportSettings(source=str(lora)), print, lambda *_: None)
    converted = convert(workspace, ConvertSettings(lora=str(lora), format="comfyui"), print, lambda *_: None)
    for copy in (workspace.root / imported.name / FILE, Path(converted.files[0])):
        assert read_header(copy).metadata[REFERENCE_KEY] == "2"
    card = (run.folder / "README.md").read_text(encoding="utf-8")
    assert "does not take: reference.\n# `workbench sample` takes them with --reference." in card
    assert "The LoRA was trained with given frames: first. " in card
    code = card.partition("```python\n")[2].partition("\n```")[0]
    compile(code, "card", "exec")

    asked = SampleSettings().changed(
        model=source, prompt="a red square", loras=[str(lora)], seed=0, device="cpu", steps=2, frames=17
    )
    clip = str(dataset.folder / read_clips(dataset.folder)[0].file_name)
    picture = workspace.root / "first.png"
    Image.new("RGB", (64, 64), "blue").save(picture)
    sampler = Sampler(source, pick_device("cpu"))
    told = conditioning_from(inputs_of(workspace, asked.changed(reference=clip)), None, 2).reference
    assert told is not None
    assert told.shape == (1, 3, 17, 32, 32)
    ways: list[dict[str, Any]] = [{}, {"reference": clip}, {"reference": str(picture)}, {"image": str(picture)}]
    made = [sampler.generate(workspace, asked.changed(**one)) for one in ways]
    assert len({one.frames.tobytes() for one in made}) == len(ways)
    assert len(made[1].record["reference_sha256"]) == 64
    with pytest.raises(
        ConfigError, match="its LoRA takes a reference 2 times smaller than the video: .* multiples of 64"
    ):
        sampler.generate(workspace, asked.changed(reference=clip, height=96))


def played(code: str, file: Path, frames: int, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Run a card's code with two steps, but for its LoRA and the writing; return its names, `video` as [F, H, W, 3].

    file: the video that it reads, called as on the card; with PyAV instead of imageio, which the card asks for
    """
    lines = [line for line in code.splitlines() if "lora" not in line and "export_to_video(" not in line]
    code = "\n".join(lines).replace(").frames[0]", 'output_type="np").frames[0]')
    code = re.sub(r"num_inference_steps=\d+", "num_inference_steps=2", code).replace(file.name, str(file))
    names: dict[str, Any] = {}

    def read(path: str) -> list[Image.Image]:
        return [Image.fromarray(frame) for frame in media.read_frames(Path(path), list(range(frames)))]

    monkeypatch.setattr(diffusers.utils, "load_video", read)
    exec(code, names)
    return names


@pytest.mark.parametrize("variant", ["fun-inp", "fun-control"])
def test_the_cards_code_of_a_fun_model_generates_what_we_do(
    workspace: Workspace, models: dict[str, Model], variant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """diffusers has no pipeline for Fun-InP, and Fun-Control's takes no frame count."""
    model = find_model(models[variant].source).model
    shape = frames, height, width = model.frames, model.height, model.width
    told = ["control"] if variant == "fun-control" else ["first", "last"]
    pixels = np.random.default_rng(0).integers(0, 256, (frames, height, width, 3), dtype=np.uint8)
    control = workspace.root / "control.mp4"
    media.encode(pixels, control, model.fps)
    code = COGVIDEOX.usage(model, COGVIDEOX.fetch(model), "lora.safetensors", "a red circle", shape, kinds=told)
    assert ("workbench sample` takes them with --image, --last-image" in code) == (variant == "fun-inp")
    names = played(code, control, frames, monkeypatch)
    assert type(names["pipe"]) in (diffusers.CogVideoXPipeline, diffusers.CogVideoXFunControlPipeline)
    asked = SampleSettings().changed(
        model=model.source,
        prompt="a red circle",
        seed=0,
        device="cpu",
        steps=2,
        control=str(control) if variant == "fun-control" else "",
    )
    ours = Sampler(model.source, pick_device("cpu")).generate(workspace, asked).frames
    assert np.abs(ours.astype(int) - (names["video"] * 255).round()).max() <= 1


@pytest.mark.parametrize("variant", ["text", "5b-image", "a14b-image"])
def test_the_cards_code_of_wan_generates_with_a_reference_in_plain_diffusers(
    workspace: Workspace, tmp_path: Path, variant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From video files to decoded frames, also with two experts and with per-token times."""
    model = WAN.toy(tmp_path / variant, variant)
    shape = model.frames, model.height, model.width
    draw = np.random.default_rng(0)
    reference = tmp_path / "reference.mp4"
    cells = draw.integers(0, 256, (model.frames, model.height // 8, model.width // 8, 3), dtype=np.uint8)
    media.encode(cells.repeat(8, 1).repeat(8, 2), reference, model.fps)
    of_image = model.task == "image-to-video"
    picture = tmp_path / "first_frame.png"
    Image.fromarray(draw.integers(0, 256, (*shape[1:], 3), dtype=np.uint8)).save(picture)
    told = ["first", "reference"] if of_image else ["reference"]
    code = WAN.usage(model, tmp_path / variant, "lora.safetensors", "a red circle", shape, kinds=told)
    assert "this pipeline does not take" not in code
    monkeypatch.chdir(tmp_path)
    theirs = played(code, reference, model.frames, monkeypatch)["video"]
    more = {"image": str(picture)} if of_image else {}
    asked = SampleSettings().changed(
        model=model.source, prompt="a red circle", seed=0, device="cpu", steps=2, reference=str(reference), **more
    )
    sampler = Sampler(model.source, pick_device("cpu"))
    ours = sampler.generate(workspace, asked).frames
    assert np.abs(ours.astype(int) - (theirs * 255).round()).max() <= 1
    without = sampler.generate(workspace, asked.changed(reference="")).frames
    assert np.abs(ours.astype(int) - without.astype(int)).max() > 1


def test_the_fit_check_counts_the_tokens_and_times_of_wans_reference() -> None:
    def estimated(model: str, **values: Any) -> tuple[int, float]:
        settings = TrainSettings().changed(model=model, **values)
        family, known = settings.resolved
        run = sizes(settings, known, family.facts(known), GpuModel("a large GPU", "cuda", 200.0, 394.0))
        return run.tokens, run.saved_by_a_block

    for model in ("wan2.1-t2v-1.3b", "wan2.2-i2v-a14b"):
        plain, told = estimated(model), estimated(model, reference=True)
        assert told[0] == 2 * plain[0]
        assert told[1] > plain[1] + 20  # bytes per token and unit of width, for per-token times
