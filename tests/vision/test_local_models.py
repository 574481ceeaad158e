"""How a model is named, found and downloaded, from a local Hub server over HTTP."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests import fake_hub, tiny_vision
from tests.fake_hub import FakeHub
from workbench.errors import ConfigError, ModelUnavailable
from workbench.vision import local_models, segmenting
from workbench.vision.depth_and_pose import DEPTH_MODELS, DETECTORS, POSE_MODELS
from workbench.vision.local_models import KnownModel

EVERY = (*DEPTH_MODELS, *POSE_MODELS, *DETECTORS, *segmenting.MODELS)


def test_every_known_model_has_a_commit_size_and_license() -> None:
    assert all(len(one.revision) == 40 and one.download_gb > 0 and one.license for one in EVERY)


def test_an_invalid_model_is_rejected_before_loading(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"model is 'x', neither a known model nor a folder .*: choose one of facebook/sam2"
    ):
        local_models.check("x", segmenting.MODELS, any_of_hub=True)
    with pytest.raises(ConfigError, match="neither a known model nor a folder"):
        local_models.check("some/model", segmenting.MODELS)
    local_models.check("some/model@v2", segmenting.MODELS, any_of_hub=True)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"detector is .*, a folder without .safetensors files: convert its weights"):
        local_models.check(str(tmp_path), DETECTORS, "detector", any_of_hub=True)


def test_a_model_is_downloaded_once_after_logging_its_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tiny_vision.make_depth(tmp_path / "source")
    hub = FakeHub()
    hub.repos["some/depth"] = {path.name: path.read_bytes() for path in source.iterdir()}
    hub.repos["some/pickle"] = {"config.json": b"{}", "pytorch_model.bin": b"x"}
    known = (KnownModel("some/depth", "Some depth", hub.head("some/depth"), 1, 0.1, "MIT"),)
    with hub.serving() as running:
        fake_hub.login(monkeypatch, running, tmp_path / "hf")
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
        assert not known[0].at_hand
        assert local_models.opening("some/depth", known) == "Some depth, downloading 0.1 GB"
        found = local_models.fetch("some/depth", known)
        assert capsys.readouterr().out == "Downloading Some depth, about 0.1 GB, once ...\n"
        assert {"config.json", "model.safetensors"} <= {path.name for path in found.iterdir()}
        assert known[0].at_hand
        assert local_models.opening("some/depth", known) == "Some depth"
        assert local_models.fetch("some/depth", known) == found
        assert capsys.readouterr().out == ""
        assert local_models.fetch(f"some/depth@{known[0].revision}", (), any_of_hub=True) == found
        with pytest.raises(ConfigError, match="some/pickle has no .safetensors files"):
            local_models.fetch("some/pickle", (), any_of_hub=True)
        with pytest.raises(ModelUnavailable, match="some/nothing is not on the Hub"):
            local_models.fetch("some/nothing", (), any_of_hub=True)


def test_a_failed_download_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeHub().serving() as gone:
        fake_hub.login(monkeypatch, gone, tmp_path / "hf")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(time, "sleep", lambda seconds: None)  # huggingface_hub waits between its tries
    with pytest.raises(
        ModelUnavailable, match=r"cannot be downloaded .*: check the network .*, or set model to a folder"
    ):
        local_models.fetch(segmenting.MODELS[0].id, segmenting.MODELS)
