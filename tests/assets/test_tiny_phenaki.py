"""The script that trains the tiny Phenaki: killed and continued it writes a model that the workbench knows."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.drawing import MakeClip
from workbench.clips import media
from workbench.clips.frame_plan import Taking, take
from workbench.clips.records import Clip
from workbench.dataset_builder import Dataset
from workbench.errors import ConfigError, DataError
from workbench.families import find_model
from workbench.families.denoising import DenoiseInputs
from workbench.families.guidance import Guidance
from workbench.families.model import Model
from workbench.paths import ASSETS
from workbench.workspace import Workspace

sys.path.insert(0, str(ASSETS))

import tiny_card
import tiny_clips
import tiny_dataset
import tiny_training
import tiny_world
import train_tiny_phenaki


def sampled(folder: Path, frames: int, height: int, width: int) -> torch.Tensor:
    """A video [1, 3, F, H, W] of a model that the script wrote."""
    family, cpu = find_model(str(folder))[0], torch.device("cpu")
    encoder = family.load_text_encoder(folder, cpu, torch.float32)
    inputs = DenoiseInputs(
        folder,
        text=family.encode_text(encoder, ["a red circle moves left on a blue background"]),
        negative_text=family.encode_text(encoder, [""]),
        latents_shape=family.latents_shape(folder, frames, height, width),
        steps=2,
        guidance=Guidance(3.0),
        noise=torch.Generator().manual_seed(0),
    )
    latents = family.denoise(family.load_transformer(folder, cpu, torch.float32), inputs)
    return family.decode(family.load_vae(folder, cpu, torch.float32), latents)


def test_the_script_goes_on_where_it_was_and_writes_a_model(tmp_path: Path) -> None:
    out = tmp_path / "model"
    command = [sys.executable, str(ASSETS / "train_tiny_phenaki.py"), "--out", str(out), "--work", str(tmp_path)]
    command += ["--tokenizer-steps", "2", "--transformer-steps", "2", "--critic-part", "0.5", "--renditions", "1"]
    command += ["--tokenizer-batch", "2", "--transformer-batch", "2", "--check-clips", "0"]
    subprocess.run([*command, "--stop-after", "1"], check=True, cwd=tmp_path)
    assert not out.exists()
    subprocess.run(command, check=True, cwd=tmp_path)
    family, model = find_model(str(out))
    assert (family.name, model.frames, model.height, model.width) == ("phenaki", 9, 40, 40)
    assert sampled(out, 9, 40, 40).shape == (1, 3, 9, 40, 40)


def test_a_run_may_be_ended_early_its_rate_falls_from_there() -> None:
    long, short = ([tiny_training.stable_factor(step, total, 100) for step in range(total)] for total in (3000, 1000))
    assert long[:700] == short[:700]
    assert long[100:2100] == [1.0] * 2000
    assert short[850] == pytest.approx(0.5)
    assert short[-1] == 0.03


def test_the_card_states_command_and_measurements(tmp_path: Path) -> None:
    parts = ("background", "colour", "shape", "motion", "all")
    report = {f"{kind} {part}": 0.875 for kind in ("known", "new") for part in parts}
    report |= {"known PSNR": 24.6, "new PSNR": 23.8, "stripes": 1.0}
    options = train_tiny_phenaki.parse(["--transformer-steps", "123"])
    facts = train_tiny_phenaki.card_facts(options, [torch.nn.Linear(1000, 1000)])
    tiny_card.write_phenaki_card(tmp_path, facts, report, dict.fromkeys(parts, 0.25))
    text = (tmp_path / "README.md").read_text()
    assert "--transformer-steps 123 --critic-part 0.15 --seed 0" in text
    assert "| generated from prompts not seen in training | 25% | 25% | 25% | 25% | 25% |" in text
    assert "1.0 million parameters" in text


def test_the_built_in_model_is_small_and_generates_held_out_prompts() -> None:
    family, model = find_model("tiny-phenaki")
    folder, cpu = family.fetch(model), torch.device("cpu")
    files = [file for file in folder.rglob("*") if file.is_file()]
    assert sum(file.stat().st_size for file in files) < 12e6
    assert all(file.stat().st_mode & 0o044 == 0o044 for file in files)
    assert (folder / "README.md").read_text().startswith("---")
    assert model.guidance_scale == tiny_clips.GUIDANCE
    parts = (family.load_vae, family.load_transformer, family.load_text_encoder)
    found = tiny_clips.prompt_accuracy(*(load(folder, cpu, torch.float32) for load in parts), 8)
    assert (found["background"], found["motion"]) == (1, 1)
    assert found["all"] >= 3 / 8  # 61 % of 64


# ---- a dataset of one's own


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory, make_clip: MakeClip) -> Path:
    """A dataset's folder of three wide clips, 9, 14 and 20 frames, trigger word "zwx"; never change it."""
    base = tmp_path_factory.mktemp("own")
    for frames, colour in ((9, "red"), (14, "green"), (20, "blue")):
        clip = make_clip(base / "given" / f"{colour}.mp4", frames, size=(96, 64), colour=colour)
        clip.with_suffix(".txt").write_text(f"a {colour} square moving right")
    dataset = Dataset.create(Workspace.open(base / "workspace"), "Own", trigger_word="zwx")
    dataset.import_files([base / "given"])
    return dataset.folder


def clips_of(own: Path, work: Path, held_out: int = 1) -> tiny_dataset.DatasetClips:
    """Clips of 5x32x32 at the dataset's own rate, eight windows of each."""
    return tiny_dataset.DatasetClips(own, tiny_dataset.legal_shape(5, 32, 32, 8), held_out, 8, 0, work)


def train(own: Path, folder: Path, *more: str) -> None:
    """Two steps of each stage, in this process, with the dataset alone."""
    command = ["--dataset", str(own), "--shape", "5x24x32", "--fps", "4", "--held-out", "1", "--renditions", "2"]
    command += [
        "--out",
        str(folder / "model"),
        "--work",
        str(folder / "work"),
        "--threads",
        str(torch.get_num_threads()),
    ]
    command += ["--tokenizer-steps", "2", "--transformer-steps", "2", "--critic-part", "0.5", "--check-clips", "4"]
    command += ["--tokenizer-batch", "2", "--transformer-batch", "2"]
    assert train_tiny_phenaki.main([*command, *more]) == 0


def test_a_model_is_trained_on_a_dataset_from_random_weights(
    tmp_path: Path, own: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_drawing(*_: object) -> None:
        raise AssertionError("a clip was drawn")

    monkeypatch.setattr(tiny_world, "draw", no_drawing)
    train(own, tmp_path / "at once")
    assert "tokenizer: trained PSNR" in (printed := capsys.readouterr().out)
    assert "held-out PSNR" in printed
    for steps in ("1", "2"):  # one of the tokenizer; its other and one of the transformer
        train(own, tmp_path / "killed", "--stop-after", steps)
        assert not (tmp_path / "killed" / "model").exists()
    train(own, tmp_path / "killed")
    for part in ("vae", "transformer"):
        file = f"model/{part}/diffusion_pytorch_model.safetensors"
        assert (tmp_path / "at once" / file).read_bytes() == (tmp_path / "killed" / file).read_bytes()

    out = tmp_path / "killed" / "model"
    family, model = find_model(str(out))
    assert (family.name, model.frames, model.height, model.width, model.fps) == ("phenaki", 5, 24, 32, 4)
    assert sampled(out, 5, 24, 32).shape == (1, 3, 5, 24, 32)


def test_the_words_may_be_those_of_another_text_encoder(tmp_path: Path, own: Path, toy_model: Model) -> None:
    train(own, tmp_path, "--text", toy_model.source)
    out, cpu = tmp_path / "model", torch.device("cpu")
    family, _ = find_model(str(out))
    text = family.encode_text(family.load_text_encoder(out, cpu, torch.float32), ["a cat"])
    width = family.load_transformer(out, cpu, torch.float32).config.text_width
    assert text["prompt_embeds"].shape[-1] == width != 64


def test_a_training_goes_on_with_the_clips_and_captions_that_it_began_with(tmp_path: Path, own: Path) -> None:
    copied = shutil.copytree(own, tmp_path / "workspace" / "datasets" / "own")
    train(copied, tmp_path, "--stop-after", "1")
    dataset = Dataset(copied)
    before = dataset.clips[0].text
    dataset.set_caption(dataset.clips[0].id, "something else")
    with pytest.raises(SystemExit, match="give another --work"):
        train(copied, tmp_path, "--stop-after", "1")
    dataset.set_caption(dataset.clips[0].id, before)
    train(copied, tmp_path, "--stop-after", "1")
    with pytest.raises(SystemExit, match="give another --work"):
        train_tiny_phenaki.main(["--work", str(tmp_path / "work"), "--out", str(tmp_path / "model")])


def test_batches_are_windows_from_anywhere_in_the_clips_that_are_trained_on(tmp_path: Path, own: Path) -> None:
    clips = clips_of(own, tmp_path)
    assert (len(clips.trained), len(clips.held_out)) == (2, 1)
    colours = [clip.source_name.removesuffix(".mp4") for clip in clips.trained]
    assert clips.captions == [[f"zwx a {colour} square moving right" for colour in colours]]
    for number, clip in enumerate(clips.trained):
        whole = media.read_frames(own / clip.file_name, range(clip.frames), (32, 48))
        legal = {
            whole[start : start + 5, :, left : left + 32].tobytes(): (start, left)
            for start in range(clip.frames - 4)
            for left in range(17)
        }
        found = {legal[window.numpy().tobytes()] for window in clips.windows[:, number]}
        assert len({start for start, _ in found}) > 1
        assert len({left for _, left in found}) > 1

    generator = torch.Generator().manual_seed(3)
    batch, known = clips.tokenizer_batch(16, generator), tiny_dataset.as_clips(clips.windows.flatten(0, 1))
    used = {next(number for number, window in enumerate(known) if torch.equal(window, clip)) for clip in batch}
    assert len(used) > 4  # of sixteen windows
    assert batch.shape == (16, 3, 5, 32, 32)
    assert -1 <= float(batch.min()) < 0 < float(batch.max()) <= 1
    assert torch.equal(torch.cat(list(clips.pool())), known)
    (tmp_path / "new").mkdir()
    again = clips_of(own, tmp_path)  # reads windows.pt
    assert torch.equal(again.tokenizer_batch(16, torch.Generator().manual_seed(3)), batch)
    assert np.array_equal(clips_of(own, tmp_path / "new").windows, clips.windows)


@pytest.mark.parametrize(("frames", "fps"), [(9, 8), (40, 8), (40, 30), (41, 23.976), (20, 2.4), (300, 59.94)])
def test_a_window_may_begin_wherever_its_frames_fit(frames: int, fps: float) -> None:
    shape = tiny_dataset.legal_shape(9, 40, 40, 8)
    clip = Clip(file_name="a.mp4", frames=frames, fps=fps, width=64, height=48)
    last = tiny_dataset.last_start(clip, shape)
    windows = [take(clip, shape, Taking("start", skip_start=start))[0] for start in (0, last, last + 1)]
    assert [bool(window.dropped) for window in windows] == [False, False, True]
    assert windows[1].indices[0] == last
    assert windows[1].indices[-1] in (frames - 1, frames - 2)  # of a slow clip the last frame is not always taken


def test_what_cannot_be_trained_on_is_refused_in_a_sentence(
    tmp_path: Path, own: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ConfigError, match="use 9 or 11"):
        tiny_dataset.legal_shape(10, 40, 40, 8)
    with pytest.raises(DataError, match="3 clips are to be held out and 3 can be used"):
        clips_of(own, tmp_path, held_out=3)
    with pytest.raises(ConfigError, match="is no dataset"):
        clips_of(tmp_path, tmp_path)
    with pytest.raises(SystemExit):
        train_tiny_phenaki.parse(["--shape", "9x48x48"])
    assert "give --dataset" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        train_tiny_phenaki.parse(["--dataset", str(own)])
    assert "the built-in model's folder" in capsys.readouterr().err
    clips = tiny_dataset.DatasetClips(own, tiny_dataset.legal_shape(11, 40, 40, 8), 0, 1, 0, tmp_path)
    assert len(clips.trained) == 2
    assert "red.mp4 is left out: too short" in capsys.readouterr().out
