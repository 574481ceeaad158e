"""Encoders that do not fit the device: the text encoder works on the processor, clips are encoded in tiles."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from workbench.dataset_builder import Dataset
from workbench.families import find_model
from workbench.families.model import Model
from workbench.runs.data import load_data
from workbench.runs.settings import TrainSettings
from workbench.trainer.encoder import Cache, Encoder, Piece
from workbench.workspace import Workspace

CPU = torch.device("cpu")


def encoder(workspace: Workspace, model: Model) -> Encoder:
    family, found = find_model(str(model.source))
    return Encoder(family, found, Path(found.source), Cache(workspace.cache), CPU, "fp32")


def no_memory() -> torch.OutOfMemoryError:
    return torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9.00 GiB")


def test_a_text_encoder_too_large_for_the_device_works_on_the_processor(
    workspace: Workspace, toy_model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = encoder(workspace, toy_model)
    load, places = made.family.load_text_encoder, []

    def small(folder: Path, device: torch.device, dtype: torch.dtype) -> Any:
        places.append(device)
        if len(places) == 1:
            raise no_memory()
        return load(folder, device, dtype)

    monkeypatch.setattr(made.family, "load_text_encoder", small)
    made.encode_captions(["a red circle"], lambda *_: None)
    assert places[1] == CPU
    assert made.caption_key("a red circle") in made.cache


def test_a_clip_too_large_for_the_device_is_encoded_in_tiles_and_those_after_it(
    workspace: Workspace, dataset: Dataset, toy_model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = encoder(workspace, toy_model)
    settings = TrainSettings(dataset="squares", model=str(toy_model.source), held_out=0)
    items = load_data(workspace, settings).train[:2]
    encode, tried = made.family.encode_video, []

    def small(vae: Any, video: torch.Tensor) -> Any:
        tried.append(vae.use_tiling)
        if not vae.use_tiling:
            raise no_memory()
        vae.disable_tiling()  # a miniature has no tiles
        try:
            return encode(vae, video)
        finally:
            vae.enable_tiling()

    monkeypatch.setattr(made.family, "encode_video", small)
    made.encode_clips(map(Piece, items), lambda *_: None)
    assert tried == [False, True, True]
    assert all(made.clip_key(item) in made.cache for item in items)


def test_pictures_are_encoded_in_tiles_too_and_their_encoder_is_loaded_once(
    workspace: Workspace, dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Wan picture is a whole clip to its VAE; CLIP was read from the disk for every clip."""
    family = find_model("wan2.1-t2v-1.3b")[0]
    made = encoder(workspace, family.toy(tmp_path / "toy", "image-2.1"))
    settings = TrainSettings(dataset="squares", model=str(made.folder), held_out=0)
    items = load_data(workspace, settings).train[:2]
    encode, load, tried, loaded = family.encode_video, family.load_image_encoder, [], []

    def small(vae: Any, video: torch.Tensor) -> Any:
        tried.append(vae.use_tiling)
        if not vae.use_tiling:
            raise no_memory()
        return encode(vae, video)

    def counted(*arguments: Any) -> Any:
        loaded.append(arguments)
        return load(*arguments)

    monkeypatch.setattr(made.family, "encode_video", small)
    monkeypatch.setattr(made.family, "load_image_encoder", counted)
    made.encode_clips([Piece(item, "picture") for item in items], lambda *_: None)
    assert tried == [False, True, True]
    assert len(loaded) == 1
