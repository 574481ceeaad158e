"""Training from scratch: a new model, its tokenizer first, then its transformer; pictures, then videos."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.driving import session
from tests.shell import Shell
from workbench import jobs
from workbench.clips import media
from workbench.clips.frame_plan import Taking, shape_for, take
from workbench.clips.records import Clip
from workbench.dataset_builder import Dataset
from workbench.errors import ExitCode
from workbench.families import find_model
from workbench.families.phenaki import FAMILY
from workbench.families.phenaki.models import TINY, NewModelSettings
from workbench.runs.from_scratch import BASE_MODEL, DEFAULTS, new_model
from workbench.runs.metrics import read_metrics
from workbench.runs.run import Run
from workbench.runs.settings import TrainSettings
from workbench.trainer import tokenizer
from workbench.trainer.loop import training_loop
from workbench.workspace import Workspace

SIZES = {"model_width": 16, "model_layers": 1, "model_heads": 2, "tokenizer_width": 16, "tokenizer_layers": 1}
SMALL = NewModelSettings(**SIZES, code_levels="4,4,4")
WEIGHTS = "diffusion_pytorch_model.safetensors"


def small_run(workspace: Workspace, name: str = "one", new: NewModelSettings = SMALL, **values: Any) -> Run:
    """A run of two steps of each part on the dataset "squares"."""
    usual = {"dataset": "squares", "steps": 2, "tokenizer_steps": 4, "held_out": 1, "height": 16, "width": 16}
    usual |= {"batch_size": 2, "tokenizer_batch_size": 2, "preview_steps": 2, "evaluate_every": 2, "frames": 5}
    wanted = TrainSettings(model="phenaki").changed(**{**usual, **values})
    with new_model(workspace, wanted, new, name, given={*usual, *values}) as settings:
        return Run.create(workspace, settings, name)


def test_the_tokenizer_is_trained_then_the_transformer_and_the_parts_are_a_model(
    workspace: Workspace, dataset: Dataset
) -> None:
    run = small_run(workspace, preview_every=2, preview_frames=1)
    made = session(run)
    training_loop(made)
    base, (_, new) = run.folder / BASE_MODEL, find_model(run.settings.model)
    assert (base / "vae" / WEIGHTS).read_bytes() != (Path(new.source) / "vae" / WEIGHTS).read_bytes()
    assert (base / "transformer" / WEIGHTS).read_bytes() == (Path(new.source) / "transformer" / WEIGHTS).read_bytes()
    family, model = find_model(str(base))
    assert (family, model.frames, model.height, model.width) == (FAMILY, 5, 16, 16)
    assert made.folder == base
    lines = read_metrics(base)
    assert [line["step"] for line in lines if "loss" in line] == [1, 2, 3, 4]
    assert {"trained_psnr", "held_out_psnr"} < lines[-1].keys()
    # Reconstructions are of the clips' length, previews of their own.
    videos = {path.name: media.probe(path).frames for path in (run.folder / "previews" / "step-00000000").glob("*.mp4")}
    assert (videos["reconstruction-0.mp4"], videos["0.mp4"]) == (5, 1)
    assert (run.folder / "transformer" / WEIGHTS).is_file()


def test_a_tokenizer_that_is_stopped_goes_on_to_the_same_weights(
    workspace: Workspace, dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, stopped = (small_run(workspace, name, horizontal_flip=0.5, preview_every=0) for name in ("whole", "stopped"))
    session(whole).close()
    with monkeypatch.context() as patch:
        train = tokenizer._Training._train

        def two_steps(self: tokenizer._Training, clips: Any) -> float:
            if self.step == 1:
                (stopped.folder / "control").mkdir(exist_ok=True)
                (stopped.folder / "control" / "stop").touch()
            return train(self, clips)

        patch.setattr(tokenizer._Training, "_train", two_steps)
        with pytest.raises(jobs.Stop, match="step 2 of 4 of the tokenizer"):
            session(stopped)
    session(stopped).close()
    first, second = ((run.folder / BASE_MODEL / "vae" / WEIGHTS).read_bytes() for run in (whole, stopped))
    assert first == second
    assert [line["step"] for line in read_metrics(stopped.folder / BASE_MODEL) if "loss" in line] == [1, 2, 3, 4]
    again = session(whole)  # nothing is trained twice
    assert (whole.folder / BASE_MODEL / "vae" / WEIGHTS).read_bytes() == first
    again.close()


def test_a_fork_takes_the_tokenizer_along(workspace: Workspace, dataset: Dataset) -> None:
    run = small_run(workspace, preview_every=0)
    training_loop(session(run))
    fork = run.fork(workspace, 2, run.settings.changed(steps=3))
    made = session(fork)
    assert made.step == 2
    assert (made.folder / "vae" / WEIGHTS).read_bytes() == (run.folder / BASE_MODEL / "vae" / WEIGHTS).read_bytes()
    made.close()


def test_pictures_come_first_then_videos(workspace: Workspace, dataset: Dataset) -> None:
    """Of clips one frame each; the second run begins with what the first has trained."""
    pictures = small_run(workspace, frames=1, preview_every=2)
    made = session(pictures)
    assert {len(item.plan.indices) for item in made.data.train} == {1}
    training_loop(made)
    assert {media.probe(preview.video).frames for preview in pictures.previews} == {1}
    trained = str(pictures.folder / BASE_MODEL)
    settings = pictures.settings.changed(model=trained, frames=5, preview_every=0)
    videos = session(Run.create(workspace, settings, "videos"))
    assert {len(item.plan.indices) for item in videos.data.train} == {5}
    before, after = (Path(one) / "vae" / WEIGHTS for one in (trained, videos.folder))
    assert before.read_bytes() != after.read_bytes()
    videos.close()


def test_sizes_critic_and_text_tokens_are_the_models(workspace: Workspace, dataset: Dataset) -> None:
    new = SMALL.changed(critic="token", critic_layers=2, text_tokens=40, patch=4, patch_frames=4)
    model = Path(small_run(workspace, new=new).settings.model)
    family, found = find_model(str(model))
    assert (found.size_multiple, found.frame_rule.step, family.facts(found).text_tokens) == (4, 4, 40)
    (tokens,) = family.caption_tokens(model, ["a red circle moves left on a blue background " * 9])
    assert tokens.limit == 40
    assert tokens.cut
    config = family.load_transformer(model, "cpu", None).config
    assert (config.critic, config.critic_layers, config.width) == ("token", 2, 16)
    assert family.caption_tokens(Path(TINY.source), ["a red circle"])[0].limit == 16


def test_a_run_has_defaults_of_its_own_for_a_new_model(workspace: Workspace, dataset: Dataset) -> None:
    wanted = TrainSettings(model="phenaki", dataset="squares", steps=7)
    with new_model(workspace, wanted, SMALL) as settings:
        assert settings.method == "full"
        assert settings.steps == 7
        assert settings.tokenizer_steps == DEFAULTS["tokenizer_steps"]
    with new_model(workspace, TrainSettings(model="phenaki", dataset="squares"), SMALL, given={"steps"}) as settings:
        assert settings.steps == TrainSettings().steps


@pytest.mark.parametrize(
    ("flags", "match"),
    [
        (("--model", "phenaki"), "model is phenaki, a family without published weights: add --from-scratch"),
        (
            ("--model", "tiny-phenaki", "--model-width", "64"),
            "--model-width is for a model that is trained from scratch",
        ),
        (
            ("--from-scratch", "--model", "tiny-phenaki"),
            "model is tiny-phenaki: to train from scratch, name a family",
        ),
        (("--from-scratch", "--clone", "other"), "--from-scratch makes a new model, but other already has one"),
        (("--from-scratch", "--model-width", "20"), "model_width is 20, must be a multiple of 8 and of model_heads"),
        (("--from-scratch", "--code-levels", "8;5"), "code_levels is '8;5': write 1 to 8 numbers"),
        (("--from-scratch", "--text-encoder", "nothing"), "text_encoder does not name a model: model is 'nothing'"),
        (("--from-scratch", "--frames", "10"), "frames is 10, .* use 9 or 11"),
        (("--from-scratch", "--preview-frames", "4"), "preview_frames is 4, .* use 3 or 5"),
    ],
)
def test_what_cannot_be_trained_is_refused_and_leaves_no_model(
    workspace: Workspace, dataset: Dataset, shell: Shell, flags: tuple[str, ...], match: str
) -> None:
    Run.create(workspace, TrainSettings(dataset="squares", held_out=1), "other")
    model = [] if {"--model", "--clone"} & {*flags} else ["--model", "phenaki"]
    answer = shell("train", "--dataset", "squares", "--held-out", "1", *model, *flags, "--detach")
    assert answer.code == ExitCode.BAD_CONFIG
    assert re.search(match, answer.err), answer.err
    assert not list((workspace.root / "models").glob("*"))
    assert [run.name for run in Run.all(workspace)] == ["other"]


@pytest.mark.parametrize(("frames", "fps"), [(9, 8), (40, 8), (40, 30), (41, 23.976), (20, 2.4), (300, 59.94)])
@pytest.mark.parametrize("needed", [1, 9])
def test_a_window_may_begin_wherever_its_frames_fit(frames: int, fps: float, needed: int) -> None:
    shape = shape_for(TINY, needed, 40, 40, 8)
    clip = Clip(file_name="a.mp4", frames=frames, fps=fps, width=64, height=48)
    last = tokenizer.last_start(frames, fps, 8, needed)
    windows = [take(clip, shape, Taking("start", skip_start=start))[0] for start in (0, last, last + 1)]
    assert [bool(window.dropped) for window in windows] == [False, False, True]
    assert windows[1].indices[0] == last
