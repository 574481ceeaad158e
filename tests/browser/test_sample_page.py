"""The Sample tab, alone on its page, in a real browser with the real worker: ask, see it come, cancel, reload."""

from __future__ import annotations

import os
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import expect

from tests.browser.server import unfold
from tests.loras.making import layer, put_lora
from tests.serving import serve
from workbench import jobs
from workbench.families import find_model
from workbench.sampler import queue
from workbench.sampler.samples import Samples, new_id, video_path, write_sample
from workbench.sampler.settings import SampleSettings
from workbench.workspace import Workspace

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.long]
MODEL_AND_NEGATIVE = ("model", "negative_prompt")
SHOTS = os.environ.get("WORKBENCH_SHOTS", "")  # a folder: how the tab looks is left there


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Workspace, str]]:
    """A workspace and the address of its page."""
    workspace = Workspace.open(tmp_path / "workspace")
    server, address = serve("tests.browser.sample_page", workspace.root)
    yield workspace, address
    server.kill()
    server.communicate()
    jobs.kill(queue.worker_folder(workspace))


def shot(page: Page, name: str) -> None:
    if SHOTS:
        page.screenshot(path=Path(SHOTS) / f"{name}.png", full_page=True)


def field(page: Page, name: str, value: str) -> None:
    page.locator(f"#{name} input, #{name} textarea").first.fill(value)


def test_a_request_comes_live_can_be_cancelled_and_survives_a_reload(
    served: tuple[Workspace, str], page: Page, tmp_path: Path
) -> None:
    workspace, url = served
    page.goto(url)
    page.locator("#sample-result .empty-state").wait_for()
    page.locator("#SampleSettings-image").wait_for(state="hidden")  # the model takes the prompt alone
    assert not page.locator("#drop-image").is_visible()
    for name in ("negative_prompt", "frames", "height", "width"):
        assert page.locator(f"#SampleSettings-{name}").is_visible(), name
    field(page, "SampleSettings-guidance_scale", "1")
    page.locator("#SampleSettings-negative_prompt").wait_for(state="hidden")
    field(page, "SampleSettings-guidance_scale", "")
    page.locator("#SampleSettings-negative_prompt").wait_for()

    # A model brings its own negative prompt.
    model, negative = (page.locator(f"#SampleSettings-{one} :is(input, textarea)").first for one in MODEL_AND_NEGATIVE)
    for name in ("wan2.1-t2v-1.3b", "ltx-video-2b-0.9.5", "tiny-cogvideox"):
        model.fill(name)
        model.press("Enter")
        expect(negative).to_have_value(find_model(name)[1].negative_prompt)

    seed = page.locator("#SampleSettings-seed :is(input, textarea)").first
    assert (seed.input_value(), seed.get_attribute("placeholder")) == ("", "random")

    # Three seeds: one is generated, one cancelled while it waits, one follows.
    field(page, "SampleSettings-prompt", "a red ring moves left on a black background")
    field(page, "SampleSettings-steps", "80")
    page.locator("#SampleSettings-seed button", has_text="Random").click()
    page.wait_for_function("!document.querySelector('#SampleSettings-seed input, #SampleSettings-seed textarea').value")
    field(page, "SampleSettings-seed", "5")
    field(page, "SampleSettings-videos", "3")
    page.locator("#generate").click()
    requests = page.locator("#sample-queue .requests > li")
    requests.nth(2).wait_for()
    field(page, "SampleSettings-seed", "")
    requests.nth(2).locator(".cancel").click()
    requests.nth(2).wait_for(state="detached")
    generating = page.locator("#sample-queue li[data-state=generating]")
    generating.locator("img.preview").wait_for()
    assert page.evaluate("document.querySelector('#sample-queue img.preview').naturalWidth") > 0
    generating.locator(".status", has_text="left").wait_for()
    shot(page, "generating")
    page.locator("#sample-result figure.result video").wait_for()
    page.locator("#sample-history .sample").nth(1).wait_for()
    requests.first.wait_for(state="detached")
    assert sorted(sample.settings.seed for sample in Samples(workspace).history()) == [5, 6]

    # A LoRA that is not there: refused with a sentence, and nothing is submitted.
    page.locator("#SampleSettings-loras .add").click()
    page.locator("#SampleSettings-loras select").select_option(label="A file, or one on the Hub …")
    page.locator("#SampleSettings-loras input[type=text]").fill("nobody.safetensors")
    page.locator("#SampleSettings-loras input[type=number]").fill("0.6")
    page.locator("#generate").click()
    page.locator(".problems", has_text="nobody.safetensors").wait_for()
    page.locator("#SampleSettings-loras .about.bad").wait_for()
    page.locator("#SampleSettings-loras .away").click()

    # The older one is opened, and the form goes on from it.
    page.locator("#sample-history .sample").nth(1).click()
    page.locator("#sample-result dd", has_text="5").first.wait_for()
    assert seed.input_value() == ""
    page.locator("#sample-result [data-do=seed]", has_text="Reuse this seed").click()
    page.wait_for_function("document.querySelector('#SampleSettings-seed :is(input, textarea)').value === '5'")
    page.locator("#sample-result [data-do=continue]").click()
    page.locator("#sample-input-files video").wait_for()
    page.locator("#sample-input-files [data-do=clear]").click()
    page.locator("#sample-input-files video").wait_for(state="detached")

    page.reload()
    page.locator("#sample-result figure.result").wait_for()
    page.wait_for_function(
        "document.querySelector('#SampleSettings-steps input, #SampleSettings-steps textarea')?.value === '80'"
    )
    page.locator("#sample-history .sample").nth(1).wait_for()
    shot(page, "done")

    picture = tmp_path / "mine.png"
    Image.new("RGB", (64, 64), "navy").save(picture)
    page.locator("#SampleSettings-model input").click()
    page.get_by_role("option", name="Tiny CogVideoX, image to video").first.click()
    page.locator("#SampleSettings-image").wait_for()
    drop = page.locator("#drop-image")
    drop.locator("input[type=file]").set_input_files(picture)
    page.locator("#sample-first-frame img").wait_for()
    drop.wait_for(state="hidden")
    (copied,) = (workspace.samples / "inputs").iterdir()
    assert copied.read_bytes() == picture.read_bytes()
    shot(page, "first-frame")
    page.locator("#sample-first-frame [data-do=clear]").click()
    drop.wait_for()

    for theme in ("light", "dark"):
        page.set_viewport_size({"width": 390, "height": 844})
        page.goto(f"{url}?__theme={theme}")
        page.locator("#sample-result figure.result").wait_for()
        page.locator("#sample-history .sample").nth(1).wait_for()
        unfold(page, "#prompt-enhancer button")
        page.locator("#write-prompt").wait_for()
        shot(page, f"narrow-{theme}")
        assert page.evaluate("document.scrollingElement.scrollWidth") <= 390


def test_the_whole_form_is_in_sight_and_fields_of_a_row_end_at_one_height(
    served: tuple[Workspace, str], page: Page
) -> None:
    page.set_viewport_size({"width": 1280, "height": 800})
    page.goto(served[1])
    page.locator("#sample-result .empty-state").wait_for()
    page.locator("#SampleSettings-image").wait_for(state="hidden")
    # To the end of the button; below it is the guide. 452 pixels; 501 while a line below the model had its facts.
    page.wait_for_function(
        """() => {
            const [side, button] = ['.sample-side', '#generate'].map((one) => document.querySelector(one));
            const height = button.getBoundingClientRect().bottom - side.getBoundingClientRect().top;
            return button.offsetParent && height > 0 && height <= 460;
        }"""
    )
    page.locator("#SampleSettings-model .help-button").click()
    page.locator("#SampleSettings-model .info-text", has_text="Chosen: text to video, 2.47M parameters").wait_for()
    page.locator("#SampleSettings-model .help-button").click()

    def line(*names: str) -> list[dict[str, float]]:
        fields = [page.locator(f"#SampleSettings-{name} :is(input, textarea)").first for name in names]
        return [box for field in fields if (box := field.bounding_box())]

    for names in (("guidance_scale", "steps", "seed"), ("frames", "height", "width", "videos")):
        assert len({round(box["y"]) for box in line(*names)}) == 1, names
        assert len({round(box["y"] + box["height"]) for box in line(*names)}) == 1, names
    for name in ("model", "prompt", "negative_prompt", "loras"):
        assert page.locator(f"#SampleSettings-{name}").is_visible(), name
    assert page.locator("#generate").is_visible()

    # Help of a narrow field is as wide as its row; what is below moves down and is not covered.
    page.locator("#SampleSettings-width .help-button").click()
    text, generate = (page.locator(one) for one in ("#SampleSettings-width .info-text", "#generate"))
    text.wait_for()
    assert text.bounding_box()["width"] > 300
    generate.click(trial=True)
    assert text.bounding_box()["y"] + text.bounding_box()["height"] <= generate.bounding_box()["y"]
    shot(page, "form")

    unfold(page, ".sample-side .more > button")
    for name in ("speed", "each_line", "device"):
        page.locator(f"#SampleSettings-{name}").wait_for()
    page.locator("#sample-again").wait_for()


def test_a_prompt_without_the_loras_trigger_word_is_warned_of(served: tuple[Workspace, str], page: Page) -> None:
    workspace, url = served
    put_lora(workspace, "cat", layer("blocks.0.to_q", 4, 8, 8), trigger="ohwx")
    page.goto(url)
    page.locator("#sample-result .empty-state").wait_for()
    field(page, "SampleSettings-prompt", "a cat")
    page.locator("#SampleSettings-loras .add").click()
    page.locator("#SampleSettings-loras select").select_option("loras/cat")
    page.locator("#trigger-missing", has_text="The prompt lacks ohwx").wait_for()
    page.locator("#insert-trigger", has_text="Insert ohwx").click()
    page.locator("#insert-trigger").wait_for(state="hidden")
    assert page.locator("#SampleSettings-prompt textarea").input_value() == "ohwx a cat"
    shot(page, "trigger")

    put_lora(workspace, "dog", layer("blocks.0.to_q", 4, 8, 8), trigger="sks")
    page.locator("#SampleSettings-loras .add").click()
    page.locator("#SampleSettings-loras select").nth(1).select_option("loras/dog")
    page.locator("#insert-trigger", has_text="Insert sks").wait_for()
    unfold(page, ".sample-side .more > button")
    page.locator("#SampleSettings-each_line input").check()
    field(page, "SampleSettings-prompt", "ohwx sks one\na sks two")
    page.locator("#insert-trigger", has_text="Insert ohwx").click()
    page.locator("#insert-trigger").wait_for(state="hidden")
    assert page.locator("#SampleSettings-prompt textarea").input_value() == "ohwx sks one\nohwx a sks two"


def put_samples(workspace: Workspace, *prompts: str) -> list[str]:
    """Finished samples, the last one newest."""
    made = []
    for number, prompt in enumerate(prompts):
        frames = np.full((16, 48, 64, 3), 40 * number, np.uint8)
        frames[:, :, ::8] = np.arange(0, 240, 15, dtype=np.uint8)[:, None, None, None]
        settings = SampleSettings(prompt=prompt, seed=number)
        record = {
            "settings": settings.model_dump(mode="json"),
            "seed": number,
            "fps": 8.0,
            "frames": 16,
            "width": 64,
            "height": 48,
        }
        made.append(new_id())
        write_sample(video_path(workspace, made[-1]), frames, 8, record)
    return made


def test_samples_are_starred_chosen_compared_packed_removed_and_restored(
    served: tuple[Workspace, str], page: Page, tmp_path: Path
) -> None:
    workspace, url = served
    cat, dog, cow, old = put_samples(workspace, "a cat", "a dog", "a cow", "a horse")[:4]
    page.goto(url)
    history = page.locator("#sample-history")
    cards = history.locator(".sample")
    cards.nth(3).wait_for()
    card = {name: history.locator(f"[data-id='{name}']") for name in (cat, dog, cow, old)}
    assert card[cat].locator("time").inner_text().strip()
    assert page.locator("#sample-comparison .video-grid").is_hidden()

    # The keyboard: one tab stop among the samples, arrows between them, x and s on them.
    assert history.locator(".samples [tabindex='0'], .samples :is(button, input):not([tabindex])").count() == 1
    card[old].locator(".open").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("s")
    card[cow].locator(".star[aria-pressed=true]").wait_for()
    assert Samples(workspace).get(cow).starred
    page.keyboard.press("x")
    page.keyboard.press("End")
    page.keyboard.press("x")
    history.locator(".chosen", has_text="2 chosen").wait_for()

    # Side by side, on one clock.
    history.locator(".side-by-side").click()
    grid = page.locator("#sample-comparison .video-grid")
    grid.locator("figure video").nth(1).wait_for()
    assert grid.locator("thead th").all_inner_texts() == ["a cow · seed 2", "a cat · seed 0"]
    apart = "[...document.querySelectorAll('#sample-comparison figure video')].map((one) => one.currentTime)"
    page.wait_for_function(f"{apart}.every((time) => time > 0.3)")
    one, other = page.evaluate(apart)
    assert abs(one - other) < 3 / 8
    shot(page, "side-by-side")
    page.locator("#sample-comparison .close-comparison").click()
    grid.wait_for(state="hidden")

    # Packed, moved to the bin with a way back, found again.
    with page.expect_download() as packed:
        history.locator("button.zip").click()
    packed.value.save_as(tmp_path / "samples.zip")
    assert len(zipfile.ZipFile(tmp_path / "samples.zip").namelist()) == 4
    with page.expect_download() as animated:
        history.locator("button.gif").click()
    animated.value.save_as(tmp_path / "samples.gif")
    with Image.open(tmp_path / "samples.gif") as picture:
        assert picture.n_frames > 1
    history.locator("button.remove").click()
    history.locator(".done", has_text="2 samples are in the bin.").wait_for()
    card[cat].wait_for(state="detached")
    assert page.evaluate("document.activeElement.closest('#sample-history') !== null")
    history.locator(".undo").click()
    card[cat].wait_for()
    card[dog].locator(".open").focus()
    page.keyboard.press("Delete")
    card[dog].wait_for(state="detached")
    page.reload()
    cards.nth(2).wait_for()
    history.locator("select.show").select_option("starred")
    card[cow].wait_for()
    assert cards.count() == 1
    history.locator("select.show").select_option("removed")
    card[dog].locator("input").check()
    history.locator("button.restore").click()
    history.locator(".done", has_text="back in the history").wait_for()
    history.locator("select.show").select_option("all")
    cards.nth(3).wait_for()
    history.locator("input[type=date]").nth(1).fill("2020-01-01")
    history.locator(".message", has_text="No sample has these words and dates").wait_for()
    history.locator("input[type=date]").nth(1).fill("")
    cards.nth(3).wait_for()
    shot(page, "history")
    page.locator("#sample-result [data-do=star]").click()
    page.locator("#sample-result [data-do=unstar]").wait_for()
    card[old].locator(".star[aria-pressed=true]").wait_for()


def test_what_a_button_fills_in_and_what_is_typed_into_a_list_is_kept(
    served: tuple[Workspace, str], page: Page
) -> None:
    kept = "(value) => JSON.parse(localStorage['workbench-form-sample'] ?? '{}')[value[0]] === value[1]"
    page.goto(served[1])
    page.locator("#sample-result .empty-state").wait_for()
    seed, model = (page.locator(f"#SampleSettings-{name} :is(input, textarea)").first for name in ("seed", "model"))
    seed.fill("5")
    page.wait_for_function(kept, arg=["seed", "5"])
    model.fill("a-folder/of-mine")  # no choice of the list: it counts once the field is left
    model.press("Tab")
    page.wait_for_function(kept, arg=["model", "a-folder/of-mine"])
    page.reload()
    expect(seed).to_have_value("5")
    expect(model).to_have_value("a-folder/of-mine")
    page.get_by_role("button", name="Random").click()
    page.wait_for_function(kept, arg=["seed", ""])
    page.reload()
    expect(model).to_have_value("a-folder/of-mine")
    expect(seed).to_have_value("")


def test_latents_that_are_decoded_become_a_video_in_place(served: tuple[Workspace, str], page: Page) -> None:
    workspace, url = served
    settings = SampleSettings(prompt="a red square", model="tiny-cogvideox", steps=2, latents_only=True)
    kept = queue.submit(workspace, settings)
    queue.wait(workspace, kept)
    page.goto(url)
    card = page.locator(f'.sample-history [data-id="{kept}"]')
    expect(card.locator(".prompt")).to_have_text("a red square (latents only)")
    assert card.locator("video").get_attribute("src") is None
    page.locator("#sample-result").get_by_text("latents only, not decoded").wait_for()
    page.locator("#sample-result").get_by_role("button", name="Decode it").click()
    expect(card.locator(".prompt")).to_have_text("a red square", timeout=120_000)
    expect(card.locator("video")).to_have_attribute("src", re.compile(r"\.mp4"))
    expect(page.locator("#sample-result video")).to_have_attribute("src", re.compile(r"\.mp4"))
    expect(page.locator("#sample-result").get_by_role("button", name="Decode it")).to_have_count(0)
