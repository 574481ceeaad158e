"""Phenaki's tokenizer, objective and sampling, including every bug of the seed's package."""

from __future__ import annotations

import math
import shutil
import socket
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from workbench.errors import ConfigError
from workbench.families.denoising import DenoiseInputs, Guidance
from workbench.families.model_inputs import ModelInputs
from workbench.families.noise_schedules import NoiseSettings, TrainPart
from workbench.families.phenaki import FAMILY
from workbench.families.phenaki.maskgit import (
    MASKED,
    MEAN_RATIO,
    Filling,
    MaskSchedule,
    ids,
    losses,
    points,
    sample_codes,
)
from workbench.families.phenaki.tokenizer import PhenakiTokenizer
from workbench.families.phenaki.transformer import PhenakiTransformer
from workbench.runs.settings import TrainSettings
from workbench.trainer import lora

LEVELS = (4, 3, 2)
SHAPE = (3, 3, 2, 2)  # 12 codes


@pytest.fixture(scope="module")
def tokenizer() -> PhenakiTokenizer:
    torch.manual_seed(0)
    return PhenakiTokenizer(width=16, heads=2, spatial_layers=1, temporal_layers=1, patch=4, levels=LEVELS).eval()


def transformer(critic: str = "self") -> PhenakiTransformer:
    torch.manual_seed(0)
    made = PhenakiTransformer(LEVELS, width=16, heads=2, layers=1, text_width=8, critic=critic, critic_layers=1)
    torch.nn.init.normal_(made.proj_out.weight)
    return made


def inputs(count: int = 2, quantile: float = 0.5) -> ModelInputs:
    generator = torch.Generator().manual_seed(1)
    codes = torch.randint(24, (count, *SHAPE[1:]), generator=generator)
    text = {"prompt_embeds": torch.randn(count, 5, 8, generator=generator), "mask": torch.ones(count, 5)}
    noise = torch.randn(count, *SHAPE, generator=generator)
    times = MaskSchedule().timesteps(torch.full((count,), quantile), SHAPE)
    return ModelInputs(points(codes, LEVELS), text, noise, times)


# ---- codes and tokenizer


def test_codes_are_points_and_back_and_a_masked_one_is_none_of_them() -> None:
    numbers = torch.arange(24).view(1, 2, 3, 4)
    found = points(numbers, LEVELS)
    assert torch.equal(ids(found.to(torch.bfloat16), LEVELS), numbers)  # however latents are kept
    assert len(found.flatten(2)[0].T.unique(dim=0)) == 24
    found[:, 0] = MASKED
    assert (ids(found, LEVELS) == 24).all()


def test_later_frames_change_neither_codes_nor_pixels_of_earlier_ones(tokenizer: PhenakiTokenizer) -> None:
    """The seed's tokenizer mixes time and batch on the way, so that every code depends on all frames."""
    clip = torch.rand(2, 3, 7, 8, 12, generator=torch.Generator().manual_seed(0)) * 2 - 1
    other = clip.clone()
    other[:, :, 3:] = -other[:, :, 3:]
    with torch.no_grad():
        whole, changed = tokenizer.encode(clip), tokenizer.encode(other)
        assert whole.shape == (2, 3, 4, 2, 3)
        torch.testing.assert_close(tokenizer.encode(clip[:, :, :3]), whole[:, :, :2])
        torch.testing.assert_close(changed[:, :, :2], whole[:, :, :2])
        assert not torch.equal(changed, whole)
        torch.testing.assert_close(tokenizer.decode(whole[:, :, :2]), tokenizer.decode(whole)[:, :, :3])


# ---- the objective


def test_exactly_the_rounded_share_is_masked_and_the_share_is_a_cosine() -> None:
    schedule, noise = MaskSchedule(), torch.randn(1, 3, 5, 4, 4, generator=torch.Generator().manual_seed(0))
    for quantile in (0.0, 0.01, 0.3, 0.5, 0.9, 1.0):
        times = schedule.timesteps(torch.tensor([quantile]), (3, 5, 4, 4))
        ratio = math.cos(math.pi / 2 * (1 - quantile))
        assert float(times) == pytest.approx(ratio, abs=1e-6)
        masked = schedule.masked(noise, times)
        assert int(masked.sum()) == max(round(80 * ratio), 1)
        mixed = schedule.mix(torch.zeros_like(noise), noise, times)
        assert torch.equal(mixed[:, 0] == MASKED, masked)
    assert masked.all()
    one, other = (schedule.masked(torch.randn(1, 3, 5, 4, 4), torch.tensor([0.5])) for _ in range(2))
    assert not torch.equal(one, other)


@pytest.mark.parametrize("critic", ["self", "token", "none"])
def test_the_loss_equals_its_definition(critic: str) -> None:
    """Cross-entropy of masked codes, from codes that are masked; and which codes were masked, asked of the critic about
    the clip with the generator's samples in their place."""
    made, given, quantile = transformer(critic), inputs(3, 0.7), 0.7
    with torch.no_grad():
        numbers = (((given.latents + 1) / 2) * (torch.tensor(LEVELS).view(1, -1, 1, 1, 1) - 1)).round().long()
        codes = numbers[:, 0] + numbers[:, 1] * LEVELS[0] + numbers[:, 2] * LEVELS[0] * LEVELS[1]
        masked = torch.zeros_like(codes, dtype=torch.bool)
        for clip, order in enumerate(given.noise[:, 0].flatten(1).argsort(dim=1)):
            masked[clip].view(-1)[order[: round(12 * math.cos(math.pi / 2 * (1 - quantile)))]] = True
        text, mask = given.text["prompt_embeds"], given.text["mask"]
        logits = made(torch.where(masked, 24, codes), text, mask)
        uniform = torch.special.ndtr(given.noise[:, 1].double())
        filled = codes.clone()
        for clip, frame, row, column in masked.nonzero().tolist():
            edges = logits[clip, :, frame, row, column].softmax(0).cumsum(0)
            code = int((edges < uniform[clip, frame, row, column]).sum())
            filled[clip, frame, row, column] = min(code, 23)
        wanted = (F.cross_entropy(logits, codes, reduction="none") * masked).flatten(1).sum(1) / (MEAN_RATIO * 12)
        if critic != "none":
            scores = made.criticise(filled, text, mask)
            asked = F.binary_cross_entropy_with_logits(scores, masked.float(), reduction="none")
            wanted = wanted + asked.flatten(1).mean(1)
        torch.testing.assert_close(losses(made, MaskSchedule(), given), wanted, rtol=1e-6, atol=1e-6)


def trained_by(made: PhenakiTransformer, part: TrainPart) -> set[str]:
    losses(made, MaskSchedule(NoiseSettings(part=part)), inputs()).sum().backward()
    found = {name.split(".")[0] for name, p in made.named_parameters() if p.grad is not None and p.grad.abs().sum() > 0}
    made.zero_grad()
    return found


def test_each_part_is_trained_alone_or_both_together() -> None:
    made, generator = transformer("token"), {"embed", "transformer_blocks", "norm_out", "proj_out"}
    critic = {"critic_embed", "critic_blocks", "critic_norm", "critic_out"}
    assert trained_by(made, "generator") == generator
    assert trained_by(made, "critic") == critic
    assert trained_by(made, "both") == generator | critic
    assert trained_by(transformer("self"), "critic") == generator - {"proj_out"} | {"critic_out"}
    assert trained_by(transformer("none"), "both") == generator
    schedule = FAMILY.noise_schedule(Path(), torch.device("cpu"), NoiseSettings(part="critic"))
    assert isinstance(schedule, MaskSchedule)
    assert schedule.part == "critic"


def test_codes_are_drawn_as_often_as_their_logits_say() -> None:
    logits = torch.tensor([0.0, 1.0, 2.0]).view(1, 3, 1, 1, 1).expand(1, 3, 1, 1, 30_000)
    sampled = sample_codes(logits, torch.rand(1, 1, 1, 30_000, generator=torch.Generator().manual_seed(0)))
    shares = sampled.flatten().bincount(minlength=3) / 30_000
    torch.testing.assert_close(shares, torch.tensor([0.0, 1.0, 2.0]).softmax(0), atol=0.01, rtol=0)
    assert (sample_codes(logits / 1e-6, torch.rand(1, 1, 1, 30_000)) == 2).all()


# ---- sampling


def filling(made: PhenakiTransformer, guidance: float = 1.0, **more: Any) -> Filling:
    given = inputs(1)
    negative = {"prompt_embeds": torch.zeros_like(given.text["prompt_embeds"]), "mask": given.text["mask"]}
    noise = torch.Generator().manual_seed(3)
    return Filling(made, DenoiseInputs(Path(), given.text, negative, SHAPE, 6, Guidance(guidance), noise, **more))


def test_each_step_masks_fewer_codes_by_the_cosine_the_most_doubtful_first() -> None:
    one = filling(transformer())
    codes, free = torch.zeros(1, *SHAPE[1:], dtype=torch.long), torch.ones(1, *SHAPE[1:], dtype=torch.bool)
    doubt = torch.arange(12.0).view(codes.shape)
    for step in range(1, 6):
        masked = (one._masked(codes, doubt, free, step, 6) == 24).flatten()
        assert int(masked.sum()) == max(round(12 * math.cos(math.pi / 2 * step / 6)), 1)
        assert masked[12 - int(masked.sum()) :].all()
    free[:, 2] = False
    masked = one._masked(codes, doubt, free, 1, 6) == 24
    assert int(masked.sum()) == round(8 * math.cos(math.pi / 12))
    assert not masked[:, 2].any()


def test_the_critic_decides_and_a_model_without_one_uses_its_own_probabilities() -> None:
    results = []
    for critic in ("self", "token", "none"):
        made = transformer(critic)
        results.append(filling(made).run())
        asked = []
        if critic != "none":
            original = made.criticise
            made.criticise = lambda *a, original=original, asked=asked: asked.append(1) or original(*a)  # type: ignore
            filling(made).run()
            assert len(asked) == 5  # after the last step nothing is masked again
    assert not torch.equal(results[0], results[2])


def test_without_a_critic_what_a_step_kept_stays_as_in_maskgit() -> None:
    """The transformer's probability of a visible code was never trained."""
    made, kept = transformer("none"), list[torch.Tensor]()
    original = Filling._masked

    def masked(self: Filling, codes: torch.Tensor, *rest: Any) -> torch.Tensor:
        found = original(self, codes, *rest)
        kept.append(torch.where(found == 24, -1, codes))
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Filling, "_masked", masked)
        # Far above the others wherever they are shown: to remask by probability would take the shown ones again.
        patch.setattr(made, "forward", lambda ids, *_: 9 * F.one_hot((ids + 1) % 24, 24).float().movedim(-1, 1))
        last = filling(made).run()
    assert len(kept) == 5
    for before, after in pairwise([*kept, ids(last, LEVELS)]):
        assert torch.equal(after[before >= 0], before[before >= 0])


def test_the_frames_of_a_clip_to_continue_stay_as_they_are() -> None:
    prefix = points(torch.randint(24, (1, 1, 2, 2), generator=torch.Generator().manual_seed(9)), LEVELS)
    made = transformer()
    sampled = filling(made, prefix=prefix).run()
    torch.testing.assert_close(sampled[:, :, :1], prefix)
    assert not torch.equal(sampled, filling(made).run())


def test_guidance_and_the_caption_change_what_is_generated_and_one_by_one_is_the_same() -> None:
    """The seed's package never leaves out a caption in training, and guides all the same."""
    made = transformer()
    with torch.no_grad():
        made.transformer_blocks[0].attn2.to_out[0].weight.mul_(20)
    plain, guided = filling(made).run(), filling(made, 6.0).run()
    assert not torch.equal(plain, guided)
    assert torch.equal(filling(made, 6.0, sequential_guidance=True).run(), guided)
    assert torch.equal(filling(made, 6.0).run(), guided)


def test_without_temperature_each_code_is_the_most_probable_and_with_more_of_it_others_are() -> None:
    made, free = transformer(), torch.ones(1, *SHAPE[1:], dtype=torch.bool)
    masked = torch.full(free.shape, 24)
    with torch.no_grad():
        given = inputs(1).text
        best = made(masked, given["prompt_embeds"], given["mask"]).argmax(1)
        cold, usual, hot = (filling(made, temperature=value)._filled(masked, 0, 6)[0] for value in (0.0, None, 9.0))
        last = filling(made, temperature=9.0)._filled(masked, 5, 6)[0]
    assert torch.equal(cold, best)
    assert not torch.equal(hot, best)
    assert torch.equal(usual, filling(made, temperature=0.9)._filled(masked, 0, 6)[0])
    assert torch.equal(last, best), "it has fallen to 0"


def test_padding_is_not_looked_at() -> None:
    made, given = transformer(), inputs(1)
    text, mask = given.text["prompt_embeds"], given.text["mask"].clone()
    mask[:, 3:] = 0
    other = text.clone()
    other[:, 3:] = 7.0
    codes = ids(given.latents, LEVELS)
    with torch.no_grad():
        assert torch.equal(made(codes, text, mask), made(codes, other, mask))
        assert not torch.equal(made(codes, text, mask), made(codes, text, given.text["mask"]))


# ---- the family


def test_a_folder_is_all_that_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The seed's package asks the Hub for a text encoder's size even where it is given one."""

    def refuse(*_: Any) -> None:
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    FAMILY.toy(tmp_path, "token")
    encoder = FAMILY.load_text_encoder(tmp_path, torch.device("cpu"), torch.float32)
    text = FAMILY.encode_text(encoder, ["a red circle", ""])
    made = FAMILY.load_transformer(tmp_path, torch.device("cpu"), torch.float32)
    codes = torch.zeros(2, 1, 2, 2, dtype=torch.long)
    assert made(codes, text["prompt_embeds"], text["mask"]).shape == (2, 64, 1, 2, 2)


def test_a_damaged_folder_is_refused_with_a_remedy(tmp_path: Path) -> None:
    FAMILY.toy(tmp_path / "whole", "self")
    damaged = shutil.copytree(tmp_path / "whole", tmp_path / "damaged")
    (damaged / "vae" / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match="create it again"):
        FAMILY.describe_folder(damaged)


def test_the_code_of_a_model_card_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, cpu = FAMILY.toy(tmp_path / "model", "self"), torch.device("cpu")
    made = FAMILY.load_transformer(tmp_path / "model", cpu, torch.float32)
    lora.attach(FAMILY, made, TrainSettings(dataset="x", rank=2), seed=0)
    lora.write(FAMILY, made, tmp_path / "lora.safetensors", {})
    monkeypatch.chdir(tmp_path)
    exec(FAMILY.usage(model, tmp_path / "model", "lora.safetensors", "a red circle", (9, 32, 32)), {})
    assert (tmp_path / "video.mp4").stat().st_size > 0
