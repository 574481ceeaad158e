"""What is measured on fixed noise: it moves with the weights and with nothing else."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import torch

from workbench.families import families
from workbench.families.model import Model
from workbench.families.model_inputs import Given
from workbench.runs.settings import TrainSettings
from workbench.trainer import lora
from workbench.trainer.evaluation import EvaluationInput, PriorDrift, held_out_by_band

CPU = torch.device("cpu")
FAMILY = families()[0]


class Toy:
    """A miniature with a LoRA, and probes for it."""

    def __init__(self, model: Model) -> None:
        self.folder, self.model = Path(model.source), model
        self.transformer = FAMILY.load_transformer(self.folder, CPU, torch.float32)
        settings = TrainSettings(dataset="x", rank=2)
        self.trainable = lora.attach(FAMILY, self.transformer, settings, seed=0)
        self.schedule = FAMILY.noise_schedule(self.folder, CPU)
        self.encoder = FAMILY.load_text_encoder(self.folder, CPU, torch.float32)
        self.calls = 0
        self.transformer.register_forward_hook(self._count)

    def _count(self, *_: Any) -> None:
        self.calls += 1

    def probe(self, caption: str, frames: int | None = None, clip: bool = False) -> EvaluationInput:
        model = self.model
        shape = FAMILY.latents_shape(self.folder, frames or model.frames, model.height, model.width)
        drawn = torch.randn(2, *shape, generator=torch.Generator().manual_seed(len(caption)))
        moments = {"mean": drawn[:1], "std": drawn[1:].abs()} if clip else None
        given = Given(beside=torch.zeros(1, *shape)) if model.task == "image-to-video" else None
        return EvaluationInput(caption, shape, FAMILY.encode_text(self.encoder, [caption]), moments, given)

    def train(self, size: float) -> None:
        for name, parameter in self.trainable:
            if "lora_B" in name:
                parameter.data.normal_(std=size, generator=torch.Generator().manual_seed(1))

    @contextlib.contextmanager
    def without(self) -> Iterator[None]:
        self.transformer.disable_adapters()
        yield
        self.transformer.enable_adapters()

    def held_out(self, *probes: EvaluationInput, seed: int = 1) -> tuple[float, ...]:
        return held_out_by_band(FAMILY, self.transformer, self.schedule, iter(probes), seed, CPU).bands


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Model]:
    folder = tmp_path_factory.mktemp("toys")
    return {name: FAMILY.toy(folder / name, name) for name in ("rotary", "image-1.5")}


@pytest.fixture(params=["rotary", "image-1.5"])
def toy(request: pytest.FixtureRequest, models: dict[str, Model]) -> Toy:
    return Toy(models[request.param])


def test_held_out_loss_depends_on_content_and_weights_alone(toy: Toy) -> None:
    one, other = toy.probe("a red circle", clip=True), toy.probe("a blue square", toy.model.frames - 8, clip=True)
    bands = toy.held_out(one, other)
    assert len(bands) == 5
    torch.manual_seed(99)
    assert toy.held_out(other, one) == pytest.approx(bands, rel=1e-6)
    both = zip(toy.held_out(one), toy.held_out(other), strict=True)
    assert [fmean(pair) for pair in both] == pytest.approx(bands, rel=1e-6)
    assert toy.held_out(one, seed=2) != toy.held_out(one)
    before = toy.held_out(one)
    toy.train(0.3)
    assert toy.held_out(one) != before


def test_the_leak_grows_with_the_lora_and_is_nothing_without_one(toy: Toy) -> None:
    own = [toy.probe("a red circle sks"), toy.probe("a blue circle sks")]
    others = [toy.probe("a square moves left"), toy.probe("a video")]
    drift = PriorDrift(FAMILY, toy.schedule, own, others, 1, CPU)
    assert drift.measure(toy.transformer, toy.without) == (0.0, 0.0)
    asked = toy.calls
    toy.train(0.1)
    small = drift.measure(toy.transformer, toy.without)
    assert toy.calls - asked == 4, "one forward a probe: the base model was asked before"
    toy.train(0.5)
    large = drift.measure(toy.transformer, toy.without)
    assert 0 < small[0] < large[0]
    assert 0 < small[1] < large[1]
    assert PriorDrift(FAMILY, toy.schedule, own, others, 1, CPU).measure(toy.transformer, toy.without) == large


def test_the_change_is_what_it_says(toy: Toy) -> None:
    """|with - without| / |without| on pure noise at the last timestep, where the schedule holds no signal."""
    assert float(toy.schedule.alphas_cumprod[-1]) == pytest.approx(0.0, abs=1e-6)
    toy.train(0.3)
    probe = toy.probe("a red circle")
    heard: list[Any] = []
    toy.transformer.register_forward_hook(
        lambda _, arguments, given, output: heard.append((given, output[0].float())), with_kwargs=True
    )
    own, _ = PriorDrift(FAMILY, toy.schedule, [probe], [probe], 1, CPU).measure(toy.transformer, toy.without)
    (given, base), (_, trained) = heard[0], heard[2]
    assert given["timestep"].tolist() == [999]
    assert float(given["hidden_states"][:, :, : probe.shape[1]].std()) == pytest.approx(1.0, abs=0.1)
    assert own == pytest.approx(float((trained - base).norm() / base.norm()))
