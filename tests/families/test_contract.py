"""The contract of every family, tested on its own random miniatures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.families.stock import told_nothing, unread, variants
from workbench.errors import ConfigError
from workbench.families import families, find_model
from workbench.families.base import Family
from workbench.families.denoising import DenoiseInputs, Guidance
from workbench.families.lora_files import plain_name, weights
from workbench.families.model import Model
from workbench.families.model_inputs import Given, ModelInputs
from workbench.families.other_families import family_of_layers
from workbench.runs.settings import TrainSettings
from workbench.trainer import lora

pytestmark = pytest.mark.long

CPU = torch.device("cpu")
LAYERS = (torch.nn.Linear, torch.nn.Conv2d, torch.nn.Conv3d)
TITLES = [family.title for family in families()]


class Toy:
    """A family's miniature, loaded, with one batch of two clips."""

    def __init__(self, family: Family, folder: Path, model: Model) -> None:
        self.family, self.folder, self.model = family, folder, model
        vae = family.load_vae(folder, CPU, torch.float32)
        self.vae = vae
        self.transformer = family.load_transformer(folder, CPU, torch.float32)
        self.text_encoder = family.load_text_encoder(folder, CPU, torch.float32)
        generator = torch.Generator().manual_seed(0)
        frames, height, width = self.model.frames, self.model.height, self.model.width
        self.video = torch.rand(2, 3, frames, height, width, generator=generator) * 2 - 1
        self.moments = family.encode_video(vae, self.video)
        self.text = family.encode_text(self.text_encoder, ["a red circle", "a blue square"])
        shape = family.latents_shape(folder, frames, height, width)
        self.noise = torch.randn(2, *shape, generator=generator)
        self.latents = family.sample_latents(self.moments, torch.randn(2, *shape, generator=generator))
        self.schedule = family.noise_schedule(folder, CPU)
        self.timesteps = self.schedule.timesteps(torch.tensor([0.1, 1.0]), shape)
        self.image = self.given = None
        if model.task == "image-to-video":
            self.image = self.video[:, :, 0]
            encoder = family.load_image_encoder(folder, CPU, torch.float32)
            image = family.encode_image(vae, encoder, self.image, frames, "pipeline")
            self.given = family.given(image, torch.randn(2, *family.one_frame(shape), generator=generator), shape)
        self.given = self.given or told_nothing(family, model, 2)

    @property
    def batch(self) -> tuple[Any, ...]:
        """The arguments of `loss` after the transformer."""
        inputs = ModelInputs(self.latents, self.text, self.noise, self.timesteps, self.given, self.model.fps)
        return (self.schedule, inputs)

    def loss(self) -> torch.Tensor:
        return self.family.loss(self.transformer, *self.batch)

    def drawn_by(self, transformer: Any, **more: Any) -> torch.Tensor:
        """Sample the latents of one clip."""
        more = {"given": first(self.given), "latents_shape": tuple(self.latents.shape[1:]), **more}
        text, negative = (
            {
                name: one.to(transformer.dtype) if one.is_floating_point() else one
                for name, one in self.family.encode_text(self.text_encoder, [caption]).items()
            }
            for caption in ("a red circle", "")
        )
        noise = torch.Generator().manual_seed(1)
        inputs = DenoiseInputs(
            self.folder, text=text, negative_text=negative, steps=2, guidance=Guidance(3.0), noise=noise, **more
        )
        return self.family.denoise(transformer, inputs)


def first(given: Given | None) -> Given | None:
    """Return the part for the first clip of a batch."""
    if given is None:
        return None
    beside, known, shown = (None if one is None else one[:1] for one in (given.beside, given.known, given.kept))
    return Given(beside, known, shown, {name: tensor[:1] for name, tensor in given.tokens.items()})


@pytest.fixture(scope="module", params=variants(*families()))
def toy(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Toy:
    family, variant = request.param
    folder = tmp_path_factory.mktemp(variant)
    return Toy(family, folder, family.toy(folder, variant))


@pytest.fixture(scope="module", params=families(), ids=lambda family: family.name)
def usual(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Toy:
    """One miniature a family, for what no variant does in its own way."""
    family, folder = request.param, tmp_path_factory.mktemp("usual")
    return Toy(family, folder, family.toy(folder, family.toys[0]))


# ---- a family


def test_encoding_and_loss_are_deterministic(usual: Toy) -> None:
    again = usual.family.encode_video(usual.vae, usual.video)
    assert all(torch.equal(again[name], usual.moments[name]) for name in again)
    assert torch.equal(usual.loss(), usual.loss())


def test_a_lora_that_aims_at_nothing_is_refused(usual: Toy) -> None:
    transformer = usual.family.load_transformer(usual.folder, CPU, torch.float32)
    with pytest.raises(ConfigError, match="targets is 'no_such_layer'"):
        lora.attach(usual.family, transformer, TrainSettings(dataset="x", targets="no_such_layer"), seed=0)


# ---- each of its variants


def test_a_folder_is_recognized_and_its_facts_are_legal(toy: Toy) -> None:
    family, model = find_model(str(toy.folder))
    assert family is toy.family
    model.check_shape(model.frames, model.height, model.width)
    with pytest.raises(ConfigError, match="use"):
        model.check_shape(model.frames + 1, model.height, model.width)


def test_its_facts_are_those_of_its_weights(toy: Toy) -> None:
    family, model, found = toy.family, toy.model, toy.family.facts(toy.model)
    assert found.on_disk
    assert found.values == sum(value.numel() for value in toy.transformer.state_dict().values())
    assert found.vae.values == sum(value.numel() for value in toy.vae.state_dict().values())
    encoders = [one.model for one in (toy.text_encoder, toy.text_encoder.second) if one is not None]
    stored = {id(value): value for one in encoders for value in one.state_dict(keep_vars=True).values()}
    assert found.text_encoder_values == sum(value.numel() for value in stored.values())
    shapes = {name: tuple(one.shape[1:]) for name, one in toy.text.items()}
    assert shapes == family.text_shapes(found)
    assert shapes.keys() == {"prompt_embeds", *(["mask"] if family.text_mask else []), *family.more_text}
    shape = family.latents_shape(toy.folder, model.frames, model.height, model.width)
    sides = shape[family.frame_axis - 1], shape[family.channel_axis - 1], *shape[2:]
    assert found.latents(model.frames, model.height, model.width) == sides
    layers = {name: one.weight.numel() for name, one in toy.transformer.named_modules() if isinstance(one, LAYERS)}
    assert {name: layer.values for name, layer in found.named()} == layers


def test_what_is_cut_from_a_caption_is_never_read(toy: Toy) -> None:
    short, long = "a red circle", "the blue square moves right on the red background, " * 60
    first, second = toy.family.caption_tokens(toy.folder, [short, long])
    assert first.cut == ""
    assert first.count <= first.limit < second.count
    assert long.strip().endswith(second.cut)
    read = long.strip().removesuffix(second.cut)
    whole, kept, more = (toy.family.encode_text(toy.text_encoder, [text]) for text in (long, read, read[:-6]))
    assert all(torch.equal(whole[name], kept[name]) for name in whole)
    assert not all(torch.equal(whole[name], more[name]) for name in whole)
    assert toy.family.on_disk(toy.model) == toy.folder


def test_the_loss_is_per_sample(toy: Toy) -> None:
    text = {k: v[:1] for k, v in toy.text.items()}
    inputs = ModelInputs(toy.latents[:1], text, toy.noise[:1], toy.timesteps[:1], first(toy.given), toy.model.fps)
    one = toy.family.loss(toy.transformer, toy.schedule, inputs)
    torch.testing.assert_close(toy.loss()[:1], one, rtol=1e-4, atol=1e-5)


def test_gradients_reach_the_lora_alone_and_its_file_works_in_the_stock_pipeline(toy: Toy, tmp_path: Path) -> None:
    """Of all linear layers, the attention's among them."""
    family, transformer = toy.family, toy.family.load_transformer(toy.folder, CPU, torch.float32)
    settings = TrainSettings(dataset="x", rank=2, alpha=8.0, targets="all-linear")
    trainable = lora.attach(family, transformer, settings, seed=0)
    before = family.loss(transformer, *toy.batch)
    torch.testing.assert_close(before, toy.loss(), rtol=1e-5, atol=1e-6)  # a fresh LoRA changes nothing
    optimizer = torch.optim.AdamW([parameter for _, parameter in trainable], lr=0.05)
    for _ in range(3):
        family.loss(transformer, *toy.batch).mean().backward()
        optimizer.step()
    touched = {name for name, parameter in transformer.named_parameters() if parameter.grad is not None}
    names = {name for name, _ in trainable}
    assert touched <= names
    assert all(unread(family, name) for name in names - touched)

    path = tmp_path / "lora.safetensors"
    lora.write(family, transformer, path, {"run": "test"})
    trained = toy.drawn_by(transformer)
    fresh = family.load_transformer(toy.folder, CPU, torch.float32)
    pipeline = family.load_pipeline(toy.folder, fresh)
    base = toy.drawn_by(fresh)
    pipeline.load_lora_weights(tmp_path, weight_name=path.name, adapter_name="test")  # alpha is in the file
    loaded = toy.drawn_by(fresh)
    assert (loaded - base).abs().max() > 1e-3
    torch.testing.assert_close(loaded, trained, rtol=0, atol=1e-4)


def test_none_of_its_files_is_taken_for_another_familys(toy: Toy) -> None:
    tensors = {}
    for name, linear in toy.family.facts(toy.model).named():
        if "blocks" in name:
            tensors[f"{name}.lora_A.weight"] = torch.ones(2, linear.inputs)
            tensors[f"{name}.lora_B.weight"] = torch.ones(linear.outputs, 2)
    assert tensors
    for format in toy.family.lora_formats:
        if format.id != "sat":  # the attention alone
            assert family_of_layers(toy.family.export_lora(weights(tensors, {}, "x"), format.id)[0], TITLES) == ""


def precisions(transformer: Any) -> dict[str, torch.dtype]:
    """Return the dtype of every weight and buffer of the base model, by its name without a LoRA."""
    every = (*transformer.named_parameters(), *transformer.named_buffers())
    return {plain_name(name): one.dtype for name, one in every if "lora_" not in name}


def test_what_diffusers_keeps_precise_stays_so_in_training_and_sampling(toy: Toy) -> None:
    made = toy.family.load_transformer(toy.folder, CPU, torch.bfloat16)
    theirs = precisions(type(made).from_pretrained(toy.folder / "transformer", dtype=torch.bfloat16))
    # A table in float64 is used in the weights' precision anyway, so it is cast once.
    theirs = {name: torch.bfloat16 if dtype == torch.float64 else dtype for name, dtype in theirs.items()}
    assert torch.bfloat16 in theirs.values()
    assert precisions(made) == theirs
    assert toy.drawn_by(made).isfinite().all()
    assert precisions(made) == theirs
    lora.attach(toy.family, made, TrainSettings(dataset="x", rank=2), seed=0)
    toy.family.loss(made, *toy.batch).mean().backward()
    assert precisions(made) == theirs


def test_what_is_drawn_decodes_to_a_video_and_a_clip_can_be_continued(toy: Toy) -> None:
    """From one picture, and from several frames."""
    frames, height, width = toy.model.frames, toy.model.height, toy.model.width
    before = toy.drawn_by(toy.transformer)
    assert before.shape == toy.latents[:1].shape
    video = toy.family.decode(toy.vae, before)
    assert video.shape == (1, 3, frames, height, width)
    assert video.min() >= -1
    assert video.max() <= 1
    for count in {1, frames - toy.model.frame_rule.step}:
        shape = toy.family.latents_shape(toy.folder, count, height, width)
        moments = toy.family.encode_video(toy.vae, toy.video[:1, :, :count])
        prefix = toy.family.sample_latents(moments, torch.zeros(1, *shape))
        continued = toy.drawn_by(toy.transformer, prefix=prefix)
        assert continued.shape == before.shape
        known = toy.given is not None and toy.given.known is not None  # its condition is that very frame
        assert torch.equal(continued, before) == (known and count == 1)
    assert torch.equal(toy.drawn_by(toy.transformer), before)
    with pytest.raises(ConfigError, match="generate more frames, or continue from fewer"):
        toy.drawn_by(toy.transformer, prefix=toy.latents)


def test_a_picture_is_generated_as_a_clip_of_one_frame(toy: Toy) -> None:
    """Text-to-video models only: an image-to-video model already has the picture."""
    if toy.model.task == "image-to-video":
        with pytest.raises(ConfigError, match="frames is 1"):
            toy.model.check_shape(1, toy.model.height, toy.model.width)
        return
    toy.model.check_shape(1, toy.model.height, toy.model.width)
    shape = toy.family.latents_shape(toy.folder, 1, toy.model.height, toy.model.width)
    given = told_nothing(toy.family, toy.model, frames=1)
    video = toy.family.decode(toy.vae, toy.drawn_by(toy.transformer, latents_shape=shape, given=given))
    assert video[:, :, -1:].isfinite().all()
    assert video.shape[3:] == (toy.model.height, toy.model.width)


def test_a_clip_can_be_changed_more_or_less(toy: Toy) -> None:
    """At full strength only the first noise level keeps a trace of the clip; at half strength the clip dominates."""
    weak, strong = (toy.drawn_by(toy.transformer, source=toy.latents[:1], strength=part) for part in (0.5, 1.0))
    assert (weak - toy.latents[:1]).abs().mean() < (strong - toy.latents[:1]).abs().mean()


def test_one_frame_is_a_clip_too(toy: Toy) -> None:
    """For images among the clips of a run."""
    family, model = toy.family, toy.model
    shape = family.latents_shape(toy.folder, 1, model.height, model.width)
    latents = family.sample_latents(family.encode_video(toy.vae, toy.video[:, :, :1]), torch.zeros(2, *shape))
    given = told_nothing(family, model, 2, frames=1)
    if toy.image is not None:
        encoder = family.load_image_encoder(toy.folder, CPU, torch.float32)
        image = family.encode_image(toy.vae, encoder, toy.image, 1, "pipeline")
        given = family.given(image, torch.zeros(2, *family.one_frame(shape)), shape)
    axis = family.frame_axis
    noise = toy.noise.narrow(axis, 0, shape[axis - 1])
    inputs = ModelInputs(latents, toy.text, noise, toy.timesteps, given, toy.model.fps)
    loss = family.loss(toy.transformer, toy.schedule, inputs)
    assert latents.shape[1:] == noise.shape[1:]
    assert loss.isfinite().all()
    assert family.decode(toy.vae, latents).shape == (2, 3, 1, model.height, model.width)


def test_an_image_is_asked_for_where_it_is_needed_alone(toy: Toy) -> None:
    if toy.family.joins_conditioning(toy.model):
        with pytest.raises(ConfigError, match="needs conditioning"):
            toy.drawn_by(toy.transformer, given=None)
    elif toy.given is None:
        with pytest.raises(ConfigError, match="takes text only"):
            toy.drawn_by(toy.transformer, given=Given(beside=toy.latents[:1]))
    elif toy.given.beside is not None:
        with pytest.raises(ConfigError, match="starts from a first frame"):
            toy.drawn_by(toy.transformer, given=None)
