"""The vision-language captioner with real transformers processors and models, on miniatures with random weights.

The processors need torchvision, which the project itself does not install. `python tests/caption_environment.py`
creates an environment that has it and runs this file there.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.dataset_builder import tiny_vision_language as tiny
from tests.drawing import draw
from tests.patience import PATIENCE
from workbench import jobs
from workbench.captioners import vision_language
from workbench.captioners.vision_language import CHOICES, VisionLanguage, check_torchvision
from workbench.dataset_builder import Dataset
from workbench.dataset_builder.settings import CaptionSettings
from workbench.errors import ConfigError
from workbench.jobs import gpu_lock
from workbench.workspace import Workspace

HAS_TORCHVISION = importlib.util.find_spec("torchvision") is not None
needs_torchvision = pytest.mark.skipif(
    not HAS_TORCHVISION, reason="no torchvision here: run python tests/caption_environment.py"
)
Make = Callable[[Path], Path]


def captioner(folder: Path, workspace: Workspace) -> VisionLanguage:
    return VisionLanguage(CaptionSettings(model=str(folder), device="cpu", longest_answer=12), workspace)


@needs_torchvision
@pytest.mark.parametrize("make", [tiny.make_qwen, tiny.make_smol])
def test_frames_are_captioned(make: Make, workspace: Workspace, tmp_path: Path) -> None:
    model = captioner(make(tmp_path / "model"), workspace)
    model.open()
    try:
        frames = draw(5, (64, 48))
        said = model.caption(frames, 2.0, "Describe it")
        assert isinstance(said, str)
        assert said
        assert model.caption(frames, 2.0, "Describe it") == said
        forward, backward = (model._inputs(video, 2.0, "Describe it") for video in (frames, frames[::-1].copy()))
        assert (model._model(**forward).logits != model._model(**backward).logits).any()
        assert model.caption(frames[:1], 2.0, "Describe it")
    finally:
        model.close()
    assert gpu_lock.holder(workspace.locks) is None


@needs_torchvision
def test_the_processor_keeps_our_frames_and_timestamps(workspace: Workspace, tmp_path: Path) -> None:
    model = captioner(tiny.make_qwen(tmp_path / "model"), workspace)
    model.open()
    inputs = model._inputs(draw(6, (64, 48)), 2.0, "Describe it")
    asked = model._processor.decode(inputs["input_ids"][0])
    # Two frames per patch: 0 and 0.5 s, 1 and 1.5 s, 2 and 2.5 s.
    assert [part.split(" ")[0] for part in asked.split("<")[1:] if " seconds>" in part] == ["0.2", "1.2", "2.2"]
    assert inputs["video_grid_thw"][0, 0] == 3
    assert "Describe it" in asked
    model.close()


@needs_torchvision
def test_the_job_captions_a_dataset_in_its_own_process(dataset: Dataset, tmp_path: Path) -> None:
    for clip in dataset.clips[:2]:
        dataset.set_caption(clip.file_name, "")
    settings = CaptionSettings(model=str(tiny.make_smol(tmp_path / "tiny-smol")), device="cpu", longest_answer=12)
    settings.save(dataset.folder / ".caption" / jobs.CONFIG)
    jobs.start(dataset.folder / ".caption", "workbench.dataset_builder")
    status = jobs.wait(dataset.folder / ".caption", PATIENCE)
    assert status.state == jobs.State.FINISHED, jobs.log_tail(status.folder)
    assert dataset.task("caption").result["counts"]["captioned"] == 2
    assert all(clip.text and clip.caption_by == "vision_language" for clip in dataset.clips[:2])
    assert dataset.history[-1].what == "captions by tiny-smol"


@needs_torchvision
def test_a_models_own_code_is_never_run(workspace: Workspace, tmp_path: Path) -> None:
    folder = tiny.make_smol(tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "own", "auto_map": {"AutoConfig": "own.Own", "AutoModelForImageTextToText": "own.Own"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "own.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    with pytest.raises(ConfigError, match="which transformers cannot load"):
        captioner(folder, workspace).open()
    assert not (tmp_path / "ran").exists()


@needs_torchvision
def test_a_missing_package_is_named(workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers.models.smolvlm import processing_smolvlm

    folder = tiny.make_smol(tmp_path / "model")
    monkeypatch.setattr(processing_smolvlm, "num2words", None)
    with pytest.raises(ConfigError, match=r"num2words.*: install the extra: pip install 'video-lora-workbench\[cap"):
        captioner(folder, workspace).open()


def test_missing_torchvision_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchvision", None)
    with pytest.raises(ConfigError, match=r"need torchvision, which is not installed: install the extra: pip install"):
        check_torchvision()


def test_a_torchvision_for_another_torch_has_its_own_message(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "torchvision.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')")
    monkeypatch.delitem(sys.modules, "torchvision", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match=r"built for another torch \(operator torchvision::nms does not exist\)"):
        check_torchvision()


def test_every_choice_is_pinned_including_the_default(workspace: Workspace) -> None:
    assert all(len(choice.revision) == 40 for choice in CHOICES)
    assert len({choice.id for choice in CHOICES}) == len(CHOICES) == 7
    assert CaptionSettings().model in {choice.id for choice in CHOICES}
    assert VisionLanguage(CaptionSettings(), workspace).model_name == "Qwen3-VL 4B"
    assert vision_language.CAPTIONER is VisionLanguage
    assert np.isfinite([choice.memory_gb for choice in CHOICES]).all()
