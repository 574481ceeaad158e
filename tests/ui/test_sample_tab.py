"""What the Sample tab shows and fills in, on folders that the queue's and the samples' own writers made."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import gradio as gr
import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import save_file

from tests.written_run import write_run
from workbench import policy
from workbench.errors import ConfigError, ExitCode
from workbench.form_rules import without_effect
from workbench.sampler import queue, view
from workbench.sampler.inputs import kept
from workbench.sampler.samples import Sample, Samples, new_id, video_path
from workbench.sampler.settings import SampleSettings
from workbench.ui.core.lora_stack import choices, facts
from workbench.ui.sample import result
from workbench.ui.sample import tab as sample_tab
from workbench.ui.sample.comparison import SideBySide
from workbench.ui.sample.history import PAGE, ChosenSamples, PageOfSamples, ToDownload
from workbench.workspace import Workspace, write_json
from workbench.workspace.lora_names import FILE

REPORT = {
    "name": "ring",
    "scale": 0.8,
    "matched": 30,
    "layers": 32,
    "left_out": [{"why": "a layer that the model lacks", "count": 2, "names": ["blocks.9.<q>", "blocks.9.k"]}],
    "rank": 4,
    "alpha": 8.0,
    "base_model": "Some <Model>",
    "origin": "ComfyUI",
}


@pytest.fixture
def tab(workspace: Workspace) -> sample_tab.SampleTab:
    async def build() -> sample_tab.SampleTab:
        with gr.Blocks():
            return sample_tab.SampleTab(workspace)

    return asyncio.run(build())  # outside of a loop Gradio makes one and never closes it


def finished(workspace: Workspace, record: dict[str, Any] | None = None, **settings: Any) -> str:
    """A finished sample; its video is never played here."""
    video = video_path(workspace, new_id())
    video.parent.mkdir(exist_ok=True)
    video.touch()
    settings_used = SampleSettings().changed(**settings).model_dump(mode="json")
    write_json(video.with_suffix(".json"), {"settings": settings_used, "seed": settings_used["seed"], **(record or {})})
    return video.stem


def sample(workspace: Workspace, *arguments: Any, **settings: Any) -> Sample:
    return Samples(workspace).get(finished(workspace, *arguments, **settings))


def requested(workspace: Workspace, into: str = "", **settings: Any) -> str:
    """A request that waits for a worker that nobody started."""
    request, name = {"settings": SampleSettings().changed(**settings).model_dump(mode="json"), "into": into}, new_id()
    write_json(queue.worker_folder(workspace) / queue.REQUESTS / f"{name}.json", request)
    return name


def lora(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    zeros = np.zeros((4, 8), np.float32)
    save_file(
        {"transformer.a.lora_A.weight": zeros, "transformer.a.lora_B.weight": zeros.T.copy()},
        path,
        {"base_model": "tiny-cogvideox", "trigger_word": "zwx"},
    )


# ---- what is under way


def test_requests_are_shown_in_order_and_failures_until_they_are_dismissed(
    workspace: Workspace, tab: sample_tab.SampleTab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "revive", lambda workspace: None)  # no worker shall come
    first = requested(workspace, prompt="a cat", seed=3)
    lost = requested(workspace, prompt="a dog", loras=["ring"])
    requested(workspace, into="grids/one/cells/a", prompt="a grid")
    folder = queue.worker_folder(workspace)
    queue.fail(folder, lost, "the LoRA ring does not fit", ExitCode.BAD_CONFIG)
    value = tab.strip.value([first, lost], now=True)
    (card,) = value["requests"]
    assert (card["id"], card["state"], card["subtitle"]) == (first, "waiting", "base model, seed 3")
    assert value["elsewhere"] == 1
    (failure,) = value["failed"]
    assert (failure["id"], failure["can_retry"], failure["can_force"]) == (lost, True, True)
    assert "does not fit" in failure["message"]
    assert tab.strip.value([first])["failed"] == []
    assert tab.strip.waiting() == [first]  # what "cancel all" gives up: no cell of a grid
    queue.cancel(workspace, first)
    assert tab.strip.value([first], now=True)["requests"] == []
    assert tab.strip.value([first])["failed"] == []  # who cancels knows it


# ---- what came out


def test_a_sample_says_what_made_it_and_how_its_loras_fitted(workspace: Workspace) -> None:
    record = {"loras": [REPORT], "seconds": 75.0, "frames": 9, "fps": 8.0, "steps": 4, "guidance_scale": 3.0}
    shown = result.html(sample(workspace, record, prompt="a <b>ring</b>", loras=["ring=0.8"], seed=5), "a ring")
    assert '<td class="bad">30 of 32 layers</td>' in shown
    assert "left out: blocks.9.&lt;q&gt;, blocks.9.k: a layer that the model lacks" in shown
    for words in (
        "a &lt;b&gt;ring",
        "Some &lt;Model&gt; · written by ComfyUI",
        "1 min 15 s",
        "9 frames, 1.1 s",
        "Written by a language model from: a ring",
        "Change this video",
    ):
        assert words in shown
    assert "<b>ring" not in shown
    assert "No LoRA" not in shown
    assert "generated by the base model" in result.html(sample(workspace))
    assert "Change this video" not in result.html(sample(workspace, model="tiny-cogvideox-i2v"))
    live = result.html(sample(workspace, {"run": "first", "step": 40}))
    assert "run first, step 40, while training" in live


def test_a_sample_leads_to_the_next_one(workspace: Workspace) -> None:
    one = sample(workspace, {"seed": 77}, prompt="a ring", seed=None, video="/old.mp4")
    assert sample_tab.continued("seed", one) == {"seed": 77}
    again = sample_tab.continued("settings", one)
    assert (again["seed"], again["video"], again["prompt"]) == (77, "/old.mp4", "a ring")
    changed, further = sample_tab.continued("change", one), sample_tab.continued("continue", one)
    assert (changed["video"], changed["continue_from"]) == (str(one.path), "")
    assert (further["video"], further["continue_from"]) == ("", str(one.path))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("ring", "ring"),
        ("runs/ring@250=0.5", "ring@250 at 0.5"),
        ("/w/runs/ring/checkpoints/step-00000250/lora.safetensors=2", "ring@250 at 2"),
        ("/somewhere/style.safetensors", "style"),
        ("/somewhere/style/lora.safetensors", "style"),
        ("someone/some-lora", "someone/some-lora"),
    ],
)
def test_loras_are_called_as_people_call_them(text: str, shown: str) -> None:
    assert view.short_name(text) == shown


def test_the_history_has_pages_and_finds_by_prompt_model_and_lora(
    workspace: Workspace, tab: sample_tab.SampleTab
) -> None:
    ids = [finished(workspace, prompt=f"cat number {n}", loras=["ring"] if n == 2 else []) for n in range(PAGE + 2)]
    history = tab.history
    first, second = (history.page(PageOfSamples(page=page)) for page in (0, 1))
    assert [card["id"] for card in (*first["samples"], *second["samples"])] == ids[::-1]
    assert first["matching"] == PAGE + 2
    assert history.page(PageOfSamples(page=99))["page"] == 1
    (found,) = history.page(PageOfSamples(search="RING cat"))["samples"]
    assert (found["id"], found["about"]) == (ids[2], "ring")
    assert history.page(PageOfSamples(search="no such words"))["samples"] == []
    assert found["created"] == Samples(workspace).get(ids[2]).created
    history.star(ChosenSamples(ids=[ids[2], ids[0]]))
    starred = history.page(PageOfSamples(show="starred"))["samples"]
    assert [(card["id"], card["starred"]) for card in starred] == [(ids[2], True), (ids[0], True)]
    assert history.page(PageOfSamples(search="RING cat"))["samples"][0]["starred"]
    history.star(ChosenSamples(ids=[ids[2]], starred=False))
    before = history.value("")
    history.remove(ChosenSamples(ids=ids[:3]))
    assert [card["id"] for card in history.page(PageOfSamples(show="removed"))["samples"]] == ids[2::-1]
    assert history.value("") != before
    assert history.sample(ids[0]) is None
    history.restore(ChosenSamples(ids=ids[:3]))
    assert history.page(PageOfSamples())["matching"] == len(ids)
    assert history.download(ToDownload(ids=ids[:2], kind="zip"))["url"].endswith(".zip")
    before = history.value("")
    Samples(workspace).remove(ids[-1])
    history.listing(now=True)
    assert history.value("") != before
    assert tab._sample(ids[-1]) == tab._sample(None)  # one that is gone gives way to the newest


def test_chosen_samples_stand_side_by_side_under_what_tells_them_apart(workspace: Workspace) -> None:
    record = {"fps": 8.0, "frames": 9, "width": 64, "height": 48}
    made = [sample(workspace, {**record, "seed": seed}, prompt="a ring", loras=["cats"], seed=seed) for seed in (5, 6)]
    value = SideBySide().value(made)
    assert [head["text"] for head in value["heads"][0]] == ["seed 5", "seed 6"]
    assert (value["rows"][0]["prompt"], value["fps"], value["frames"], value["width"]) == ("a ring", 8.0, 9, 64)
    assert all(cell["url"].endswith(f"{one.id}.mp4") for cell, one in zip(value["cells"][0], made, strict=True))
    other = sample(workspace, record, prompt="a very long prompt " * 9, seed=5)
    heads = [head["text"] for head in SideBySide().value([made[0], other])["heads"][0]]
    assert heads[0] == "a ring · cats"
    assert heads[1].endswith("… · base model")
    for number in (1, 5):
        with pytest.raises(ConfigError, match="must be 2 to 4"):
            SideBySide().value([other] * number)


# ---- the form


def test_the_form_leaves_out_what_the_model_does_not_take() -> None:
    base = SampleSettings().model_dump()
    absent = {"image", "image_scale", "strength", "force_loras", "guidance_scale_2", "flow_shift", "temperature"}
    assert set(without_effect(SampleSettings, base)) == absent
    guided = {"negative_prompt", "dynamic_guidance", "guidance_from", "guidance_until", "guidance_rescale", "zero_star"}
    unguided = without_effect(SampleSettings, {**base, "guidance_scale": 1.0})
    assert set(unguided) - set(without_effect(SampleSettings, base)) == guided
    assert {"height", "width"} <= set(without_effect(SampleSettings, {**base, "model": "cogvideox-5b-i2v"}))
    given = {**base, "model": "tiny-cogvideox-i2v", "loras": ["ring"]}
    own = {"guidance_scale_2", "flow_shift", "temperature"}
    assert set(without_effect(SampleSettings, given)) == {"video", "strength", *own}
    assert "temperature" not in without_effect(SampleSettings, {**base, "model": "tiny-phenaki"})


def test_only_files_below_the_roots_may_be_named_and_they_are_kept(
    workspace: Workspace, tab: sample_tab.SampleTab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy, "_roots", [workspace.root.resolve()])
    outside, inside = tmp_path / "outside.png", workspace.root / "inside.png"
    for path in (outside, inside):
        Image.new("RGB", (8, 8), "red").save(path)
    form = tab.form

    def requests(**values: Any) -> list[SampleSettings]:
        held = SampleSettings().changed(**values).model_dump(mode="json")
        many, _ = form.each(form.parse([update["value"] for update in form.write(held)]), True, 3.0, False)
        assert len(many) == 3
        return many[:1]

    with pytest.raises(ConfigError, match="this page may not read"):
        requests(image=str(outside))
    (settings,) = kept(workspace, requests(image=str(inside), loras=["ring=0.5"], seed=7))
    assert settings.loras == ("ring=0.5",)
    inside.unlink()
    assert Path(settings.image).parent == workspace.samples / "inputs"
    assert kept(workspace, [settings]) == [settings]
    with pytest.raises(ConfigError, match="cannot be used"):
        kept(workspace, [settings.changed(image=str(workspace.root / "gone.png"))])
    with pytest.raises(ConfigError, match="videos is 0"):
        form.each(SampleSettings(), False, 0, False)


def test_the_picker_offers_exports_and_checkpoints_and_says_what_each_is(workspace: Workspace) -> None:
    run = write_run(workspace, "cats")
    name = run.name
    lora(run.folder / FILE)
    for step in (20, 100):
        lora(run.folder / "checkpoints" / f"step-{step:08d}" / FILE)
        (run.folder / "checkpoints" / f"step-{step:08d}" / "MANIFEST.json").touch()
    offered = [(one["name"], one["group"]) for one in choices(workspace)]
    assert offered[0] == (f"runs/{name}", "Finished runs")
    mine = [one for one, group in offered if group == f"Checkpoints of {name}"]
    assert mine.index(f"runs/{name}@20") < mine.index(f"runs/{name}@100")
    assert "rank: 4" in facts(workspace, name)
    assert "trigger word: zwx" in facts(workspace, f"runs/{name}@20")
    assert "made for tiny-cogvideox" in facts(workspace, str(run.folder / FILE))
    assert "Hub" in facts(workspace, "someone/some-lora")
    with pytest.raises(ConfigError, match="there is no LoRA"):
        facts(workspace, "nobody")


def test_a_seed_is_random_unless_it_is_given_and_the_result_offers_it(workspace: Workspace) -> None:
    assert SampleSettings().seed is None
    one = Samples(workspace).get(finished(workspace, seed=77))
    assert ("seed", "77") in view.facts(one)
    assert ("seed", "Reuse this seed") in view.actions(one)
