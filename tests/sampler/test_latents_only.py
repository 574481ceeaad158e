"""Samples that are kept as latents: nothing is decoded, and what is decoded later is the video sampled directly."""

from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open

from tests.shell import run_command
from workbench.clips import media
from workbench.errors import ConfigError
from workbench.families import families
from workbench.families.base import Family
from workbench.jobs.devices import pick_device
from workbench.sampler import queue
from workbench.sampler.generate import Sampler
from workbench.sampler.samples import Samples
from workbench.sampler.settings import SampleSettings
from workbench.workspace import Workspace

ASKED = SampleSettings(prompt="a red circle moves left", seed=3, steps=2, frames=9, device="cpu")
EACH = [(family, family.toys[0]) for family in families()]


@pytest.mark.parametrize(("family", "variant"), EACH, ids=[f"{one.name}-{toy}" for one, toy in EACH])
def test_latents_that_were_saved_decode_to_the_video_sampled_directly(
    family: Family, variant: str, tmp_path: Path
) -> None:
    model = family.toy(tmp_path / "toy", variant)
    workspace, sampler = Workspace.open(tmp_path / "work"), Sampler(model.id, pick_device("cpu"), lambda _: None)
    asked = SampleSettings(model=model.id, prompt="a dog", seed=1, steps=2, device="cpu")
    direct = sampler.generate(workspace, asked)
    sampler.write_latents(tmp_path / "kept.mp4", sampler.denoise(workspace, asked))
    kept = sampler.read_latents(tmp_path / "kept.mp4")
    later = sampler.decode(kept)
    assert np.array_equal(later.frames, direct.frames)
    same = ("settings", "seed", "frames", "fps", "decoded", "model")
    assert {name: later.record[name] for name in same} == {name: direct.record[name] for name in same}
    with safe_open(tmp_path / "kept.safetensors", "np") as file:
        assert file.metadata()["model"] == model.id
        assert file.get_tensor("codes" if family.name == "phenaki" else "latents").ndim == (
            3 if family.name == "phenaki" else 4
        )


def test_a_request_for_latents_leaves_no_video_until_it_is_decoded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    workspace = Workspace.open(tmp_path)
    direct, kept = queue.submit_all(workspace, [ASKED, ASKED.changed(latents_only=True)])
    try:
        ended = [queue.wait(workspace, name, 300) for name in (direct, kept)]
        assert [one.state for one in ended] == [queue.RequestState.DONE] * 2, ended
        sample = Samples(workspace).get(kept)
        assert sample.latents_only
        assert not sample.path.with_suffix(".mp4").exists()
        with safe_open(sample.path, "np") as file:
            about = file.metadata()
            assert file.get_tensor("latents").ndim == 4
        assert (about["frames"], about["scaled"], about["layout"]) == ("9", "true", "C f h w")
        listed = run_command(capsys, "--workspace", tmp_path, "samples")
        assert f"{ASKED.prompt} (latents only)" in listed.out
        with pytest.raises(ConfigError, match="latents only: decode it first"):
            _ = sample.video
        Samples(workspace).remove(kept)
        assert not sample.path.exists()
        Samples(workspace).restore(kept)

        decoded = run_command(capsys, "--workspace", tmp_path, "samples", "decode", kept)
        assert decoded.code == 0, decoded.err
        one, other = (Samples(workspace).get(name) for name in (direct, kept))
        assert not other.latents_only
        assert other.settings == one.settings
        frames = [media.read_frames(found.video, range(9)) for found in (one, other)]
        assert np.array_equal(*frames)
        queue.decode(workspace, kept)
        assert not queue.pending(workspace), "what is decoded is not decoded again"
    finally:
        queue.stop_worker(workspace)


def test_latents_that_nobody_could_go_on_from_are_refused(tmp_path: Path) -> None:
    workspace, asked = Workspace.open(tmp_path), ASKED.changed(latents_only=True)
    with pytest.raises(ConfigError, match="leave it off for scenes"):
        queue.submit_all(workspace, [asked, asked], chains=1)
    with pytest.raises(ConfigError, match="a grid shows videos"):
        queue.submit(workspace, asked, into="grids/one/cells/two")
