"""Does a LoRA of LTX-2 learn a sound? Eight clips with one tone, and the spectrum of samples before and after.

    python benchmarks/learns_a_tone.py --json benchmarks/results/learns_a_tone_cpu.json

The model is the family's random miniature, so nothing is downloaded, and its picture means nothing. Its autoencoder of
sound, random as well, is first trained on other tones until it can be listened through: spectrograms of 16 bands, four
numbers for each 40 ms. All else is the usual way: clips with a sound track are imported, a run trains on them, and
samples are drawn with its LoRA. A sample's pitch is the loudest band of its decoded spectrogram; the tone's band is the
one that is loudest in the tone itself, heard in the same way.

"hit": the share of samples whose loudest band is the tone's. "above": by how many decibels the tone's band is louder
than the next loudest outside its neighbors. "held-out": the loss of the sound of held-out clips. A run that learns the
picture alone is the control: its samples should sound like those of the base model.
"""

from __future__ import annotations

import argparse
import itertools
import math
import tempfile
import time
from pathlib import Path
from typing import Any

import common
import numpy as np
import torch

from workbench import jobs
from workbench.clips import media
from workbench.clips.sound import write_sound
from workbench.dataset_builder import Dataset
from workbench.families.ltx2 import FAMILY
from workbench.families.sound import spectrogram
from workbench.jobs.devices import pick_device
from workbench.runs.run import Run
from workbench.runs.settings import TrainSettings
from workbench.sampler.generate import Sampler
from workbench.sampler.settings import SampleSettings
from workbench.trainer.loop import train
from workbench.workspace import Workspace

CPU = torch.device("cpu")
RATE, HOP, BANDS, FRAMES, FPS = 16000, 160, 16, 17, 8
HERTZ, CLIPS, CAPTION = 1000.0, 8, "a red square moves right"
LEARNED = ("picture+sound", "picture", "sound")


def tone(hertz: float, seconds: float, loudness: float, phase: float) -> np.ndarray:
    """Return a sine, float32 [2, samples]."""
    times = np.arange(round(seconds * RATE)) / RATE
    return np.float32(np.repeat(loudness * np.sin(2 * math.pi * hertz * times + phase)[None], 2, axis=0))


def random_tones(count: int, chance: np.random.Generator) -> torch.Tensor:
    """Return spectrograms [count, 2, time, bands] of tones from 100 to 6,000 Hz, a fifth of them soft noise."""
    found = []
    for _ in range(count):
        loudness = chance.uniform(0.05, 0.8)
        made = tone(100 * 60 ** chance.uniform(), 0.64, loudness, chance.uniform(0, 2 * math.pi))
        if chance.uniform() < 0.2:
            made = np.float32(chance.normal(size=made.shape) * 0.1 * loudness)
        found.append(spectrogram(torch.from_numpy(made), RATE, BANDS, HOP))
    return torch.stack(found)


def listening_autoencoder(steps: int, seed: int) -> tuple[Any, float]:
    """Train an autoencoder of sound on tones; return it with its error, in units of the logarithms it reads."""
    import diffusers

    torch.manual_seed(seed)
    chance = np.random.default_rng(seed)
    sizes: dict[str, Any] = {"base_channels": 4, "ch_mult": (4, 4, 4), "num_res_blocks": 1, "resolution": 32}
    vae = diffusers.AutoencoderKLLTX2Audio(**sizes, latent_channels=1, mel_bins=BANDS)
    optimizer, error = torch.optim.AdamW(vae.parameters(), lr=3e-3, weight_decay=0.0), math.inf
    tones = random_tones(max(16, steps // 4), chance)
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = 3e-3 * (1 - step / steps)
        heard = tones[torch.from_numpy(chance.integers(len(tones), size=8))]
        latents = vae.encode(heard).latent_dist.mode()
        blurred = latents + 0.05 * torch.randn(latents.shape)
        loss = (vae.decode(blurred).sample - heard).square().mean() + 1e-3 * latents.square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        fresh = random_tones(16, chance)
        latents = vae.encode(fresh).latent_dist.mode()
        error = float((vae.decode(latents).sample - fresh).abs().mean())
        tokens = latents.transpose(1, 2).flatten(2).flatten(0, 1)
        vae.latents_mean.copy_(tokens.mean(0))
        vae.latents_std.copy_(tokens.std(0))
    return vae, error


def dataset_of_tones(workspace: Workspace, folder: Path, seed: int) -> None:
    """Import eight clips whose sound is the tone, in different loudness and phase."""
    chance = np.random.default_rng(seed)
    folder.mkdir()
    for number in range(CLIPS):
        frames = np.full((FRAMES, 64, 64, 3), 40, np.uint8)
        for index in range(FRAMES):
            frames[index, 16 + number : 40, 2 * index : 2 * index + 24] = (200, 30, 30)
        media.encode(frames, folder / f"{number}.mp4", FPS)
        (folder / f"{number}.txt").write_text(CAPTION, encoding="utf-8")
    found = Dataset.create(workspace, "tones")
    found.import_files([folder])
    for clip in found.clips:
        made = tone(HERTZ, FRAMES / FPS, chance.uniform(0.3, 0.6), chance.uniform(0, 2 * math.pi))
        write_sound(found.path_of(clip), made, RATE)


def spectrum(vae: Any, latents: torch.Tensor) -> np.ndarray:
    """Return the mean magnitude of each band of a sound [1, tokens, channels]."""
    clean = latents * vae.latents_std + vae.latents_mean
    with torch.no_grad():
        heard = vae.decode(clean.unflatten(2, (1, -1)).transpose(1, 2)).sample
    found: np.ndarray = heard.exp().mean(dim=(0, 1, 2)).numpy()
    return found


def judged(spectra: list[np.ndarray], band: int) -> dict[str, float]:
    """Return the share of spectra that are loudest in a band, and its mean distance from the others in decibels."""
    others = [np.delete(one, range(max(0, band - 1), band + 2)).max() for one in spectra]
    above = [20 * math.log10(one[band] / other) for one, other in zip(spectra, others, strict=True)]
    hits = [int(one.argmax()) == band for one in spectra]
    return {"hit": sum(hits) / len(hits), "above": round(sum(above) / len(above), 1)}


def row(workspace: Workspace, toy: str, vae: Any, learned: str, options: Any, band: int, seed: int) -> dict[str, Any]:
    """Train one run and judge its samples; "" for the base model."""
    began, loras, held_out = time.perf_counter(), list[str](), ("", "")
    if learned:
        values: dict[str, Any] = {"model": toy, "dataset": "tones", "sound": learned, "targets": "all-linear"}
        values |= {"steps": options.steps, "rank": 16, "alpha": 16.0, "learning_rate": options.rate, "seed": seed}
        values |= {"held_out": 2, "preview_every": 0, "save_every": options.steps, "device": "cpu", "warmup_steps": 10}
        values |= {"evaluate_every": options.steps, "frames": FRAMES, "fps": float(FPS), "lr_schedule": "linear"}
        run = Run.create(workspace, TrainSettings().changed(**values), f"{learned}-{seed}")
        with jobs.Job(run.folder) as job:
            train(job)
        assert job.exit_code == 0, jobs.log_tail(run.folder)
        of_sound = "held_out_loss" if learned == "sound" else "held_out_sound"
        measured = [line[of_sound] for line in run.metrics if of_sound in line]
        held_out = (round(measured[0], 3), round(measured[-1], 3)) if measured else held_out
        loras = [f"runs/{run.name}"]
    sampler, spectra = Sampler(toy, pick_device("cpu")), []
    for number in range(options.samples):
        shot = SampleSettings(model=toy, prompt=CAPTION, steps=options.sample_steps, seed=number, device="cpu")
        shot = shot.changed(loras=loras, frames=FRAMES, fps=FPS, guidance_scale=1.0)
        sound = sampler.denoise(workspace, shot).sound
        assert sound is not None
        spectra.append(spectrum(vae, sound))
    return {
        "case": learned or "base model",
        "seed": seed if learned else "",
        **judged(spectra, band),
        "held-out before": held_out[0],
        "held-out after": held_out[1],
        "seconds": round(time.perf_counter() - began),
    }


def parsed(about: str, samples: int) -> argparse.Namespace:
    """Return the command's options. samples: of the smallest run"""
    parser = common.arguments(about.splitlines()[0], steps=2, autoencoder_steps=4, samples=samples, sample_steps=2)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--autoencoder-steps", type=int, default=1500)
    parser.add_argument("--samples", type=int, default=16)
    parser.add_argument("--sample-steps", type=int, default=20)
    parser.add_argument("--rate", type=float, default=5e-3)
    parser.add_argument("--seeds", type=int, default=1, help="runs of each kind")
    return parser.parse_args()


def main() -> None:
    options = parsed(__doc__, samples=1)
    with tempfile.TemporaryDirectory() as temporary:
        home = Path(temporary)
        workspace = Workspace.open(home / "workspace")
        toy = str(FAMILY.toy(home / "toy", "text").source)
        vae, error = listening_autoencoder(options.autoencoder_steps, seed=0)
        vae.save_pretrained(home / "toy" / "audio_vae")
        vae.eval().requires_grad_(False)
        dataset_of_tones(workspace, home / "clips", seed=1)
        real = FAMILY.encode_sound(vae, torch.from_numpy(tone(HERTZ, FRAMES / FPS, 0.5, 0.0)))["sound"]
        band = int(spectrum(vae, real).argmax())
        rows = [{"case": "the tone itself", "seed": "", **judged([spectrum(vae, real)], band)}]
        rows[0] |= {"held-out before": "", "held-out after": "", "seconds": 0}
        rows.append(row(workspace, toy, vae, "", options, band, 0))
        about = {"hertz": HERTZ, "band": band, "bands": BANDS, "autoencoder_error": error, "steps": options.steps}
        for seed, learned in itertools.product(range(options.seeds), LEARNED):
            rows.append(row(workspace, toy, vae, learned, options, band, seed))
            print(rows[-1], flush=True)
            if options.json:
                common.write(rows, options.json, **about)
        common.report(rows, options.json, **about)


if __name__ == "__main__":
    main()
