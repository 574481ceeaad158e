"""LoRAs on a model that stays loaded: other trainers' files, those that half fit, those of the Hub, and many."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from tests.fake_hub import FakeHub, login
from tests.sampler.conftest import WriteLora
from workbench.clips.records import file_sha256
from workbench.errors import ConfigError, ModelUnavailable
from workbench.jobs.devices import pick_device
from workbench.sampler.generate import GeneratedVideo, Sampler
from workbench.sampler.settings import SampleSettings
from workbench.workspace import Workspace


@pytest.fixture(scope="module")
def sampler(toy_folder: Path) -> Sampler:
    return Sampler(str(toy_folder), pick_device("cpu"))


def generate(sampler: Sampler, workspace: Workspace, *loras: str, **more: object) -> GeneratedVideo:
    base = SampleSettings(model=sampler.name, prompt="x", steps=2, seed=0, device="cpu")
    asked = base.changed(loras=list(loras), **more)
    return sampler.generate(workspace, asked)


def metadata_of(path: Path) -> dict[str, str]:
    with safe_open(path, "pt") as file:
        return dict(file.metadata())


def test_a_lora_that_half_fits_is_taken_when_forced(
    sampler: Sampler, workspace: Workspace, write_lora: WriteLora, tmp_path: Path
) -> None:
    lora = write_lora(tmp_path / "one.safetensors", 1)
    tensors = load_file(lora)
    strange = {name.replace("blocks.1.", "blocks.9."): tensor for name, tensor in tensors.items()}
    save_file(strange, tmp_path / "half.safetensors")
    with pytest.raises(ConfigError, match="layers match, 95% are needed"):
        generate(sampler, workspace, f"{tmp_path}/half.safetensors")
    forced = generate(sampler, workspace, f"{tmp_path}/half.safetensors", force_loras=True)
    (facts,) = forced.record["loras"]
    assert facts["matched"] == sum("blocks.1." not in name for name in tensors) / 2 < facts["layers"]
    assert facts["left_out"][0]["why"] == "a layer that the model lacks"
    assert facts["left_out"][0]["count"] == facts["layers"] - facts["matched"]
    save_file({k: v for k, v in tensors.items() if "blocks.1." not in k}, tmp_path / "kept.safetensors")
    assert np.array_equal(forced.frames, generate(sampler, workspace, f"{tmp_path}/kept.safetensors").frames)


def test_weights_trained_beside_a_lora_come_and_go_with_it(
    sampler: Sampler, workspace: Workspace, write_lora: WriteLora, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = write_lora(tmp_path / "alone.safetensors", 1)
    notes = {"base_model": "toy", "step": "7", "seed": "0"}
    lora, also = tmp_path / "run" / "lora.safetensors", tmp_path / "run" / "also.safetensors"
    lora.parent.mkdir()
    save_file(load_file(alone), lora, {**metadata_of(alone), **notes})
    own = sampler.transformer.proj_out.weight
    before, trained = own.detach().clone(), own.detach() * 1.5
    plain = generate(sampler, workspace, f"{alone}").frames
    half = generate(sampler, workspace, f"{alone}=0.5").frames

    save_file({"proj_out.weight": trained}, also, notes)
    found = generate(sampler, workspace, f"{lora}")
    assert found.record["loras"][0]["also_trained_sha256"] == file_sha256(also)
    assert torch.equal(own, trained)
    generate(sampler, workspace)
    assert torch.equal(own, before), "the model's own again"
    own.data.copy_(trained)  # by hand, as the model card's code does it
    assert np.array_equal(generate(sampler, workspace, f"{alone}").frames, found.frames)
    own.data.copy_(before)
    assert not np.array_equal(found.frames, plain)

    generate(sampler, workspace, f"{lora}=0.5")
    assert torch.allclose(own, before * 1.25)
    assert np.array_equal(generate(sampler, workspace, f"{lora}=0").frames, generate(sampler, workspace).frames)
    save_file({"proj_out.weight": trained}, also, notes | {"step": "8"})  # of another checkpoint
    assert np.array_equal(generate(sampler, workspace, f"{lora}=0.5").frames, half)
    save_file({"nowhere.weight": trained}, also, notes)
    with pytest.raises(ConfigError, match=r"together with the model's nowhere.weight.*speed other than low-memory"):
        generate(sampler, workspace, f"{lora}")
    assert torch.equal(own, before)

    save_file({"proj_out.weight": trained}, also, notes)
    with FakeHub().serving() as hub:
        login(monkeypatch, hub, tmp_path / "login")
        hub.repos["ann/rings"] = {"pytorch_lora_weights.safetensors": lora.read_bytes(), also.name: also.read_bytes()}
        assert np.array_equal(generate(sampler, workspace, "ann/rings").frames, found.frames)


def test_blocks_of_a_lora_have_their_own_strengths(
    sampler: Sampler, workspace: Workspace, write_lora: WriteLora, tmp_path: Path
) -> None:
    lora = write_lora(tmp_path / "one.safetensors", 1)
    tensors = load_file(lora)
    for name, tensor in tensors.items():
        if "lora_B" in name:
            tensor *= 0.5 if "blocks.0." in name else 0.0
    save_file(tensors, tmp_path / "baked.safetensors", metadata_of(lora))
    whole = generate(sampler, workspace, f"{lora}")
    mixed = generate(sampler, workspace, f"{lora}[0:0.5, 1:0]")
    assert mixed.record["loras"][0]["blocks"] == "[0:0.5,1:0]"
    assert np.array_equal(mixed.frames, generate(sampler, workspace, f"{tmp_path}/baked.safetensors").frames)
    assert not np.array_equal(mixed.frames, whole.frames)
    assert np.array_equal(generate(sampler, workspace, f"{lora}").frames, whole.frames), "the next request has none"
    half = generate(sampler, workspace, f"{lora}=0.5").frames
    assert np.array_equal(generate(sampler, workspace, f"{lora}[0-99:0.5]").frames, half)
    with pytest.raises(ConfigError, match=r"has a factor for 7-9, but its blocks are 0 to 1: name some of these"):
        generate(sampler, workspace, f"{lora}[7-9:0]")
    assert np.array_equal(generate(sampler, workspace).frames, generate(sampler, workspace, f"{lora}=0").frames)


def test_a_lora_of_the_hub_is_fetched_and_checked(
    sampler: Sampler, workspace: Workspace, write_lora: WriteLora, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lora = write_lora(tmp_path / "one.safetensors", 1)
    with FakeHub().serving() as hub:
        login(monkeypatch, hub, tmp_path / "login")
        hub.repos["ann/cats"] = {"README.md": b"", "cats.safetensors": lora.read_bytes()}
        hub.repos["ann/many"] = {name: lora.read_bytes() for name in ("a.safetensors", "b.safetensors")}
        here = generate(sampler, workspace, f"{lora}")
        for name in ("ann/cats", "ann/cats:cats.safetensors@main", "ann/many:b.safetensors"):
            there = generate(sampler, workspace, f"{name}=1")
            assert np.array_equal(there.frames, here.frames), name
            assert there.record["loras"][0]["name"] == name
        with pytest.raises(ConfigError, match="2 .safetensors files: name one, as ann/many:FILE .a.safetensors, b"):
            generate(sampler, workspace, "ann/many")
        with pytest.raises(ModelUnavailable, match="ann/dogs is not on the Hub, or private"):
            generate(sampler, workspace, "ann/dogs")
