"""Does a LoRA of LTX-2 make the sound that belongs to a picture, and the picture that belongs to a sound?

    python benchmarks/follows_the_other_stream.py --json benchmarks/results/follows_the_other_stream_cpu.json

Eight clips of two kinds, a red block on gray with a tone of 1 kHz and a blue one on white with a tone of 400 Hz, all
with the same caption, so that nothing but the other stream tells the kinds apart. A run with sound "sound for picture"
is given 16 new pictures of both kinds, one with "picture for sound" 16 new sounds. The model is the family's random
miniature with an autoencoder of sound that was trained first, as in learns_a_tone.py.

"right": the share of samples of the kind that was given. A sound's kind is the tone whose band is the louder of the
two, a picture's the kind whose mean latents are nearer. "loudest": the share of sounds whose loudest band of all is the
right tone's. The base model and a LoRA that learned both streams without being given one are the controls.
"""

from __future__ import annotations

import itertools
import tempfile
import time
from pathlib import Path
from typing import Any

import common
import learns_a_tone as tones
import numpy as np
import torch

from workbench import jobs
from workbench.clips import media
from workbench.clips.sound import write_sound
from workbench.dataset_builder import Dataset
from workbench.families.ltx2 import FAMILY
from workbench.jobs.devices import pick_device
from workbench.runs.run import Run
from workbench.runs.settings import TrainSettings
from workbench.sampler.generate import Sampler
from workbench.sampler.settings import SampleSettings
from workbench.trainer.loop import train
from workbench.workspace import Workspace, slugify

HERTZ, COLORS, GROUNDS = (1000.0, 400.0), ((200, 30, 30), (30, 30, 200)), (60, 220)
CAPTION = "a block moves"
LEARNED = ("sound for picture", "picture for sound", "picture+sound")
SECONDS = tones.FRAMES / tones.FPS


def write_clip(path: Path, kind: int, chance: np.random.Generator) -> None:
    """Write a clip of a kind, with its tone: block, place, loudness and phase vary."""
    frames = np.full((tones.FRAMES, 64, 64, 3), GROUNDS[kind], np.uint8)
    top, size, start = chance.integers(4, 24), chance.integers(20, 32), chance.integers(0, 8)
    for index in range(tones.FRAMES):
        left = start + index if kind == 0 else 32 - index
        frames[index, top : top + size, left : left + size] = COLORS[kind]
    media.encode(frames, path, tones.FPS)
    write_sound(path, tones.tone(HERTZ[kind], SECONDS, chance.uniform(0.3, 0.6), chance.uniform(0, 6.28)), tones.RATE)


def made_clips(folder: Path, count: int, seed: int) -> list[tuple[Path, int]]:
    """Write clips of both kinds in turn."""
    folder.mkdir()
    chance, found = np.random.default_rng(seed), []
    for number in range(count):
        path, kind = folder / f"{number}.mp4", number % 2
        write_clip(path, kind, chance)
        path.with_suffix(".txt").write_text(CAPTION, encoding="utf-8")
        found.append((path, kind))
    return found


def trained(workspace: Workspace, toy: str, learned: str, options: Any, seed: int) -> tuple[str, float, float]:
    """Train a run; return its LoRA, and the first and last held-out loss."""
    values: dict[str, Any] = {"model": toy, "dataset": "blocks", "sound": learned, "targets": "all-linear"}
    values |= {"steps": options.steps, "rank": 16, "alpha": 16.0, "learning_rate": options.rate, "seed": seed}
    values |= {"held_out": 2, "preview_every": 0, "save_every": options.steps, "device": "cpu", "warmup_steps": 10}
    values |= {"evaluate_every": options.steps, "frames": tones.FRAMES, "fps": float(tones.FPS)}
    run = Run.create(workspace, TrainSettings().changed(**values, lr_schedule="linear"), slugify(f"{learned} {seed}"))
    with jobs.Job(run.folder) as job:
        train(job)
    assert job.exit_code == 0, jobs.log_tail(run.folder)
    losses = [line["held_out_loss"] for line in run.metrics if "held_out_loss" in line]
    return f"runs/{run.name}", round(losses[0], 3), round(losses[-1], 3)


def judged(
    sampler: Sampler, workspace: Workspace, vae: Any, loras: list[str], asked: str, others: Any, options: Any
) -> dict[str, Any]:
    """Generate for every new clip's picture or sound, and count the samples of its kind."""
    heard = (torch.from_numpy(tones.tone(one, SECONDS, 0.5, 0.0)) for one in HERTZ)
    bands = [int(tones.spectrum(vae, FAMILY.encode_sound(vae, one)["sound"]).argmax()) for one in heard]
    given = "given_video" if asked == "sound" else "given_sound"
    right, loudest = [], []
    for number, (path, kind) in enumerate(others):
        shot = SampleSettings(model=sampler.name, prompt=CAPTION, steps=options.sample_steps, seed=number, device="cpu")
        shot = shot.changed(loras=loras, frames=tones.FRAMES, fps=tones.FPS, guidance_scale=1.0, **{given: str(path)})
        found = sampler.denoise(workspace, shot)
        if asked == "sound":
            assert found.sound is not None
            levels = tones.spectrum(vae, found.sound)
            right.append(levels[bands[kind]] > levels[bands[1 - kind]])
            loudest.append(int(levels.argmax()) == bands[kind])
        else:
            apart = [float((found.latents - one).square().mean()) for one in MEANS]
            right.append(apart[kind] < apart[1 - kind])
    share = {"right": float(sum(right) / len(right))}
    return {**share, "loudest": sum(loudest) / len(loudest) if loudest else ""}


MEANS: list[torch.Tensor] = []  # of the latents of either kind


def learn_means(sampler: Sampler, clips: list[tuple[Path, int]]) -> None:
    """Encode the clips, and keep the mean latents of either kind."""
    shape = FAMILY.latents_shape(sampler.folder, tones.FRAMES, 64, 64)
    found: tuple[list[torch.Tensor], list[torch.Tensor]] = ([], [])
    for path, kind in clips:
        pixels = torch.from_numpy(media.read_frames(path, range(tones.FRAMES))).permute(3, 0, 1, 2)[None]
        moments = FAMILY.encode_video(sampler._vae, pixels.float() / 127.5 - 1)
        found[kind].append(FAMILY.sample_latents(moments, torch.zeros(1, *shape)))
    MEANS[:] = [torch.cat(one).mean(0, keepdim=True) for one in found]


def main() -> None:
    options = tones.parsed(__doc__, samples=2)
    with tempfile.TemporaryDirectory() as temporary:
        home = Path(temporary)
        workspace = Workspace.open(home / "workspace")
        toy = str(FAMILY.toy(home / "toy", "text").source)
        vae, error = tones.listening_autoencoder(options.autoencoder_steps, seed=0)
        vae.save_pretrained(home / "toy" / "audio_vae")
        vae.eval().requires_grad_(False)
        clips = made_clips(home / "clips", tones.CLIPS + 2, seed=1)
        others = made_clips(home / "others", options.samples, seed=2)
        Dataset.create(workspace, "blocks").import_files([home / "clips"])
        sampler = Sampler(toy, pick_device("cpu"))
        learn_means(sampler, clips)
        rows: list[dict[str, Any]] = []
        about = {"hertz": HERTZ, "autoencoder_error": error, "steps": options.steps, "samples": options.samples}
        for seed, learned in itertools.product(range(options.seeds), ("", *LEARNED)):
            if not learned and seed:
                continue
            began = time.perf_counter()
            lora, before, after = trained(workspace, toy, learned, options, seed) if learned else ("", "", "")
            for asked in ("sound", "picture"):
                if learned in LEARNED[:2] and not learned.startswith(asked):
                    continue
                found = judged(sampler, workspace, vae, [lora] if lora else [], asked, others, options)
                row = {"case": learned or "base model", "asked for": asked, "seed": seed if learned else ""}
                row |= {**found, "held-out before": before, "held-out after": after}
                rows.append({**row, "seconds": round(time.perf_counter() - began)})
                print(rows[-1], flush=True)
            if options.json:
                common.write(rows, options.json, **about)
        common.report(rows, options.json, **about)


if __name__ == "__main__":
    main()
