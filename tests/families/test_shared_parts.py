"""Models that share parts with a folder beside them: read as if they had all of them, and whole for stock diffusers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from diffusers import CogVideoXImageToVideoPipeline, WanPipeline
from safetensors.torch import save_file

from workbench.errors import ConfigError, ModelUnavailable
from workbench.families import find_model, model_files
from workbench.families.base import ResolvedModel
from workbench.families.model_files import SHARED

CPU = torch.device("cpu")
OWN = ("transformer",)
PARTS = ("vae", "text_encoder", "tokenizer", "scheduler")


@pytest.fixture(scope="module")
def layered(tmp_path_factory: pytest.TempPathFactory) -> ResolvedModel:
    """A random Wan told of frames, with a first layer of its own and all else from the text model beside it."""
    home = tmp_path_factory.mktemp("wan")
    family, _ = find_model("wan2.1-t2v-1.3b")
    family.toy(home / "text", "text")
    folder = home / "image"
    (folder / "transformer").mkdir(parents=True)
    config = model_files.config(home / "text", "transformer") | {"in_channels": 36}
    (folder / "transformer" / "config.json").write_text(json.dumps(config))
    first = torch.randn(24, 36, 1, 2, 2, generator=torch.Generator().manual_seed(0))
    save_file({"patch_embedding.weight": first}, folder / "transformer" / "first_layer.safetensors")
    index = model_files.index(home / "text") | {"_class_name": "WanImageToVideoPipeline"}
    (folder / "model_index.json").write_text(json.dumps(index | {"image_encoder": [None, None]}))
    (folder / SHARED).write_text(json.dumps(dict.fromkeys((*OWN, *PARTS), "text")))
    return find_model(str(folder))


def test_a_part_is_read_where_it_is() -> None:
    text, image = (Path(find_model(name).model.source) for name in ("tiny-cogvideox", "tiny-cogvideox-i2v"))
    assert model_files.shared_parts(text) == {}
    assert model_files.shared_parts(image) == {part: text / part for part in PARTS}
    for part in PARTS:
        assert not (image / part).exists()
        assert model_files.part_folder(image, part) == text / part
    assert model_files.part_folder(image, "transformer") == image / "transformer"


def test_models_that_share_an_encoder_share_what_is_encoded() -> None:
    text, image = find_model("tiny-cogvideox").model, find_model("tiny-cogvideox-i2v").model

    def identities(part: str) -> set[str]:
        return {model_files.part_identity(model, Path(model.source), part) for model in (text, image)}

    assert all(len(identities(part)) == 1 for part in PARTS)
    assert len(identities("transformer")) == 2


def test_stock_diffusers_loads_the_whole_folder() -> None:
    image = find_model("tiny-cogvideox-i2v")
    folder = image.whole_folder()
    assert folder != Path(image.model.source)
    assert model_files.is_complete(folder)
    pipeline = CogVideoXImageToVideoPipeline.from_pretrained(folder)
    ours = image.family.load_vae(image.fetch(), CPU, torch.float32)
    for name, tensor in ours.state_dict().items():
        assert torch.equal(pipeline.vae.state_dict()[name], tensor), name
    text = find_model("tiny-cogvideox")
    assert text.whole_folder() == Path(text.model.source)


def test_a_models_own_tensors_go_before_those_that_it_shares(layered: ResolvedModel) -> None:
    family, model = layered
    folder = layered.fetch()
    text = family.load_transformer(folder.with_name("text"), CPU, torch.float32)
    ours = family.load_transformer(folder, CPU, torch.float32)
    assert (ours.config.in_channels, layered.facts.in_channels) == (36, 36)
    assert not family.refusal(model, "first+last")
    assert model_files.shapes(folder, "transformer")["patch_embedding.weight"] == (24, 36, 1, 2, 2)
    assert ours.patch_embedding.weight.shape == (24, 36, 1, 2, 2)
    differing = {name for name, one in text.state_dict().items() if not _same(one, ours.state_dict()[name])}
    assert differing == {"patch_embedding.weight"}
    identity = model_files.part_identity(model, folder, "transformer")
    assert "first_layer.safetensors=" in identity
    assert f"{folder.with_name('text')}/transformer:" in identity
    stock = family.load_transformer(layered.whole_folder(), CPU, torch.float32)
    assert all(torch.equal(one, ours.state_dict()[name]) for name, one in stock.state_dict().items())


def test_a_whole_model_of_another_part_holds_the_layers_too(layered: ResolvedModel, tmp_path: Path) -> None:
    folder = layered.fetch()
    shutil.copytree(folder.with_name("text") / "vae", tmp_path / "vae")
    model_files.complete(tmp_path, folder, "vae", {})
    assert not (tmp_path / SHARED).exists()
    assert model_files.is_complete(tmp_path)
    again = model_files.tensors(tmp_path, "transformer")
    assert {name: one.shape for name, one in again.items()} == {
        name: one.shape for name, one in model_files.tensors(folder, "transformer").items()
    }
    assert isinstance(WanPipeline.from_pretrained(folder.with_name("text")), WanPipeline)


def test_what_is_shared_must_be_beside_the_folder(layered: ResolvedModel, tmp_path: Path) -> None:
    alone = Path(shutil.copytree(layered.fetch(), tmp_path / "alone"))
    with pytest.raises(ModelUnavailable, match="takes its .* from .*text, which is missing: restore the folder"):
        model_files.part_folder(alone, "vae")
    with pytest.raises(ConfigError, match="which is missing: restore the folder"):
        find_model(str(alone))
    for name in ("../text", "..", "/etc", 3, ""):
        (alone / SHARED).write_text(json.dumps({"vae": name}))
        with pytest.raises(ModelUnavailable, match="name a folder next to this one"):
            model_files.shared_parts(alone)


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.shape == other.shape and torch.equal(one, other)
