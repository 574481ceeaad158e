"""Encoders that do not fit the device: the text encoder works on the processor, clips are encoded in tiles."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.patience import PATIENCE, until
from workbench import jobs
from workbench.dataset_builder import Dataset
from workbench.families import find_model
from workbench.families.model import Model
from workbench.jobs import State, shards
from workbench.jobs.shards import Shards
from workbench.runs.data import load_data
from workbench.runs.settings import TrainSettings
from workbench.trainer.encoder import Cache, Encoder, Piece, encoding_work
from workbench.trainer.encoding_job import MODULE, EncodeSettings, plan_encoding
from workbench.workspace import Workspace, read_json, write_json

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


# ---- Encoding by many processes: real ones, one killed in the middle; every clip is encoded once, and nothing is lo


def keys(encoding: Path) -> Counter[str]:
    """What the workers say they encoded."""
    logs = [log.read_text().splitlines() for log in encoding.parent.glob("*/worker-*.log")]
    return Counter(line.removeprefix("encoded ") for lines in logs for line in lines if line.startswith("encoded "))


def test_a_killed_worker_loses_its_shard_and_no_clip_is_encoded_twice(
    workspace: Workspace, dataset: Dataset, toy_model: Model
) -> None:
    settings = TrainSettings(
        model=toy_model.source, dataset="squares", frames=9, horizontal_flip=0.5, held_out=1, device="cpu"
    )
    work = encoding_work(settings, load_data(workspace, settings))
    total = len(work.captions) + len(work.pieces)
    encoding = plan_encoding(workspace, settings, EncodeSettings(processes=2, clips_a_shard=2))
    jobs.start(encoding, MODULE)
    end = time.monotonic() + PATIENCE
    while not (claims := [p for p in encoding.parent.glob("shards/*.0.claim") if p.name > "00001"]):
        assert jobs.status(encoding).state.alive, jobs.log_tail(encoding)
        assert time.monotonic() < end
        time.sleep(0.002)
    os.kill(read_json(claims[0])["pid"], signal.SIGKILL)
    number = claims[0].name.split(".")[0]
    assert not (claims[0].parent / f"{number}.done").exists()
    status = jobs.wait(encoding, PATIENCE)
    assert status.state == State.FINISHED, jobs.log_tail(encoding)
    assert (status.step, status.total) == (total, total)
    assert (claims[0].parent / f"{number}.1.claim").exists()
    found = keys(encoding)
    assert set(found.values()) == {1}
    there = {path.stem for path in workspace.cache.glob("*.safetensors")}
    assert set(found) <= there
    assert len(there) == total
    assert len(there) - len(found) <= 1  # what was encoded, but not said any more, by the one that was killed
    assert len(Shards(encoding.parent, 0).finished()) == len(list((encoding.parent / "shards").glob("*.done")))

    # Asked for again, nothing is done again; finished shards are not even looked at.
    before = keys(encoding)
    again = plan_encoding(workspace, settings, EncodeSettings(processes=1))
    assert again == encoding
    jobs.start(again, MODULE)
    assert jobs.wait(again, PATIENCE).state == State.FINISHED
    assert keys(encoding) == before


def test_a_shard_has_one_holder_and_is_taken_over_when_that_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = Shards(tmp_path, 1), Shards(tmp_path, 1)
    held = ours.claim()
    assert theirs.claim() is None
    # Of a worker on another machine only the claim is known: it is gone once that is unchanged for a whole lease.
    path = next((tmp_path / "shards").glob("*.claim"))
    write_json(path, {**read_json(path), "host": "another", "pid": 1, "beat": 1})
    monkeypatch.setattr(shards, "LEASE_SECONDS", 0.1)
    assert theirs.claim() is None
    time.sleep(0.15)
    write_json(path, {**read_json(path), "beat": 2})
    assert theirs.claim() is None
    time.sleep(0.15)
    taken = theirs.claim()
    assert ours.claim() is None
    monkeypatch.setattr(shards, "BEAT_SECONDS", 0.01)
    with held, pytest.raises(shards.Overtaken):
        until(lambda: held.piece())
    assert ours.claim() is None  # what the first one gave back is no longer its own
    taken.piece()
    taken.finish()
    assert ours.finished() == {0: 1}
    assert ours.claim() is None
