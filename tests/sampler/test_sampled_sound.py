"""Samples and previews of a model that makes sound: files with a sound track, latents of both, scenes joined."""

from __future__ import annotations

import wave
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tests.driving import create
from tests.sounds import pitch, tone
from workbench import jobs
from workbench.clips.media import probe
from workbench.clips.records import file_sha256
from workbench.clips.sound import has_sound, read_sound, write_sound
from workbench.dataset_builder import Dataset
from workbench.errors import ConfigError
from workbench.families.ltx2 import FAMILY
from workbench.families.sound import Sound
from workbench.jobs.devices import pick_device
from workbench.sampler.generate import GeneratedVideo, Sampler
from workbench.sampler.inputs import first_frames, inputs_of, kept
from workbench.sampler.samples import video_path, write_sample
from workbench.sampler.settings import SampleSettings
from workbench.sampler.worker import join
from workbench.trainer.loop import train
from workbench.trainer.previewer import decode_latents
from workbench.workspace import Workspace, read_object

VIDEO_SECONDS = 17 / 8


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> str:
    return FAMILY.toy(tmp_path_factory.mktemp("toys") / "text", "text").source


def settings_of(toy: str, **more: object) -> SampleSettings:
    shot = SampleSettings(model=toy, prompt="a red square", steps=2, seed=3, device="cpu", fps=8)
    return shot.changed(**more)


def heard(path: Path) -> np.ndarray:
    return read_sound(path, rate=24000)


def correlation(one: np.ndarray, other: np.ndarray) -> float:
    count = min(one.shape[1], other.shape[1])
    return float(np.corrcoef(one[:, :count].ravel(), other[:, :count].ravel())[0, 1])


def test_a_sample_has_its_sound_in_its_file_and_latents_decode_to_the_same(
    workspace: Workspace, toy: str, tmp_path: Path
) -> None:
    sampler = Sampler(toy, pick_device("cpu"))
    made = sampler.generate(workspace, settings_of(toy))
    assert made.sound is not None
    assert made.sound.samples.shape[0] == 2
    assert made.sound.samples.shape[1] / made.sound.rate == pytest.approx(VIDEO_SECONDS, abs=0.06)  # a token: 40 ms
    write_sample(tmp_path / "a.mp4", made.frames, made.fps, made.record, None, made.sound)
    assert probe(tmp_path / "a.mp4").frames == len(made.frames)
    found = heard(tmp_path / "a.mp4")
    assert np.abs(found).max() > 0.01
    assert correlation(found, made.sound.samples) > 0.9  # AAC

    denoised = sampler.denoise(workspace, settings_of(toy))
    sampler.write_latents(tmp_path / "b.mp4", denoised)
    again = sampler.decode(sampler.read_latents(tmp_path / "b.mp4"))
    assert again.sound is not None
    assert np.array_equal(again.sound.samples, made.sound.samples)
    assert np.array_equal(again.frames, made.frames)


def test_a_changed_clip_is_silent(workspace: Workspace, toy: str, dataset: Dataset) -> None:
    source = str(dataset.path_of(dataset.clips[0]))
    sampler = Sampler(toy, pick_device("cpu"))
    made: GeneratedVideo = sampler.generate(workspace, settings_of(toy, video=source, strength=0.5))
    assert made.sound is None


def write_wav(path: Path, samples: np.ndarray, rate: int = 16000) -> Path:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(samples.shape[0])
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes((samples.T * 32767).astype("<i2").tobytes())
    return path


def test_a_picture_for_a_given_sound_has_that_sound(workspace: Workspace, toy: str, tmp_path: Path) -> None:
    given = write_wav(tmp_path / "given.wav", tone(600.0, 1.5))
    (settings,) = kept(workspace, [settings_of(toy, given_sound=str(given))])
    assert Path(settings.given_sound).parent == workspace.samples / "inputs"
    sampler = Sampler(toy, pick_device("cpu"))
    made = sampler.generate(workspace, settings)
    assert made.sound is not None
    assert made.sound.samples.shape == (2, round(VIDEO_SECONDS * made.sound.rate))
    assert pitch(made.sound.samples[0, :60000], made.sound.rate) == pytest.approx(600, rel=0.01)
    assert np.abs(made.sound.samples[:, 74000:]).max() < 1e-3  # silence follows
    assert made.record["given_sound_sha256"] == file_sha256(given)
    assert not np.array_equal(made.frames, sampler.generate(workspace, settings_of(toy)).frames)
    # Latents that are decoded later have the file's sound, too, or the decoded one if the file is gone.
    denoised = sampler.denoise(workspace, settings)
    sampler.write_latents(tmp_path / "b.mp4", denoised)
    again = sampler.decode(sampler.read_latents(tmp_path / "b.mp4"))
    assert again.sound is not None
    assert np.array_equal(again.sound.samples, made.sound.samples)
    Path(settings.given_sound).unlink()
    later = sampler.decode(denoised)
    assert later.sound is not None
    assert later.sound.rate == 24000


def test_a_sound_for_a_given_video_leaves_its_picture(workspace: Workspace, toy: str, dataset: Dataset) -> None:
    source = dataset.path_of(dataset.clips[0])
    sampler = Sampler(toy, pick_device("cpu"))
    made = sampler.generate(workspace, settings_of(toy, given_video=str(source)))
    assert np.array_equal(made.frames, first_frames(source, 17, 8, 64, 64))
    assert made.record["decoded"] == "given"
    assert made.sound is not None
    other = sampler.generate(workspace, settings_of(toy, given_video=str(dataset.path_of(dataset.clips[1]))))
    assert other.sound is not None
    assert not np.allclose(other.sound.samples, made.sound.samples, atol=1e-4)


def test_inputs_that_contradict_each_other_are_refused(
    workspace: Workspace, toy: str, dataset: Dataset, tmp_path: Path
) -> None:
    clip = str(dataset.path_of(dataset.clips[0]))
    text = tmp_path / "a.wav"
    text.write_text("no sound", encoding="utf-8")
    for more, wanted in (
        ({"given_video": clip, "video": clip}, "video and given_video are both given"),
        ({"given_video": clip, "given_sound": clip}, "given_sound and given_video are both given"),
        ({"given_sound": clip}, "given_sound is .*mp4, which cannot be used: no sound"),
        ({"given_sound": str(text)}, "given_sound is a.wav, which cannot be used"),
        ({"given_sound": clip, "model": "tiny-cogvideox"}, "given_sound is .*, a setting that .* does not have"),
    ):
        with pytest.raises(ConfigError, match=wanted):
            inputs_of(workspace, settings_of(toy, **more))


@pytest.mark.parametrize("learned", ["picture for sound", "sound for picture"])
def test_previews_have_the_given_stream_and_can_be_sampled_again(
    workspace: Workspace, dataset: Dataset, toy: str, learned: str
) -> None:
    for number, clip in enumerate(dataset.clips):
        write_sound(dataset.path_of(clip), tone(500.0 + 100 * number, clip.frames / clip.fps), 16000)
    run = create(
        workspace, toy, sound=learned, steps=2, preview_every=2, preview_steps=2, preview_guidance=1.0,
        preview_prompts=("a red square",), preview_controls=0, preview_inputs=False, device="cpu", held_out=1,
    )  # fmt: skip
    with jobs.Job(run.folder) as job:
        train(job)
    assert job.exit_code == 0, jobs.log_tail(run.folder)
    record = read_object(run.folder / "previews" / "step-00000002" / "0.json")
    given = "given_sound" if learned == "picture for sound" else "given_video"
    assert record["told"].startswith("the sound of" if given == "given_sound" else "the picture of")
    assert Path(record["settings"][given]).is_file()
    video = run.folder / "previews" / "step-00000002" / "0.mp4"
    if given == "given_sound":
        assert pitch(heard(video)[0, 4000:40000], 24000) % 100 == pytest.approx(0, abs=5)
        assert correlation(heard(video), heard(Path(record["settings"][given]))) > 0.9
    else:
        shown = first_frames(Path(record["settings"][given]), 17, 8, 64, 64)
        found = first_frames(video, 17, 8, 64, 64)
        assert np.abs(found.astype(int) - shown).mean() < 3
    again = settings_of(toy).changed(**{**record["settings"], "device": "cpu"})
    assert inputs_of(workspace, again).settings == again


def test_joined_scenes_keep_their_sounds(workspace: Workspace, tmp_path: Path) -> None:
    frames = np.zeros((8, 64, 64, 3), np.uint8)
    ids = ["20260101-000000-000000-0001", "20260101-000000-000000-0002", "20260101-000000-000000-0003"]
    for number, one in enumerate(ids):
        path = video_path(workspace, one)
        path.parent.mkdir(parents=True, exist_ok=True)
        sound = None if number == 1 else Sound(tone(400.0 + 200 * number, 1.0, 24000), 24000)
        write_sample(path, frames, 8.0, {"kept_frames": 2, "frames": 8, "prompt": "a"}, None, sound)
    join(workspace, ids, settings_of("tiny-cogvideox"), tmp_path / "joined.mp4")
    found = read_sound(tmp_path / "joined.mp4", rate=24000)
    assert found.shape[1] / 24000 == pytest.approx(1 + 0.75 + 0.75, abs=0.05)  # two frames are the scene's before
    assert pitch(found[0, 2000:22000], 24000) == pytest.approx(400, rel=0.01)
    assert np.abs(found[:, 26000:40000]).max() < 0.01
    assert pitch(found[0, 44000:58000], 24000) == pytest.approx(800, rel=0.01)


@pytest.mark.parametrize("latents_only", [False, True])
def test_previews_have_sound(workspace: Workspace, dataset: Dataset, toy: str, latents_only: bool) -> None:
    run = create(
        workspace, toy, steps=2, preview_every=2, preview_steps=2, preview_prompts=("a red square",),
        preview_guidance=1.0, preview_controls=0, preview_inputs=False, device="cpu", held_out=0,
        preview_latents_only=latents_only,
    )  # fmt: skip
    with jobs.Job(run.folder) as job:
        train(job)
    assert job.exit_code == 0, jobs.log_tail(run.folder)
    folder = run.folder / "previews" / "step-00000002"
    if latents_only:
        tensors = load_file(folder / "0.safetensors")
        assert tensors["sound"].ndim == 3
        assert torch.isfinite(tensors["sound"]).all()
        assert decode_latents(run.folder, pick_device("cpu")) == 2
    assert has_sound(folder / "0.mp4")
    assert np.abs(heard(folder / "0.mp4")).max() > 0.01
