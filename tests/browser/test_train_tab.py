"""The Train tab in a real browser with a real server and small real runs: search, queue, the fork of a failed run."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser.server import Server, choose, open_again, unfold
from tests.browser.stripes import few_clips
from tests.loras.making import layer, put_lora
from tests.patience import PATIENCE
from tests.written_run import ended
from workbench.clips.records import METADATA, read_info, write_info
from workbench.errors import ExitCode
from workbench.jobs import queue
from workbench.runs.run import Run
from workbench.runs.settings import TrainSettings
from workbench.workspace import Workspace

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.long]
QUICK = {"preview_every": 0, "evaluate_every": 0, "save_every": 2, "batch_size": 1, "held_out": 0, "rank": 2}
SEARCH = "#new-run input[type=search]"


@pytest.fixture
def settings(server: Server) -> TrainSettings:
    """Settings of a run that takes no longer than its model does to load."""
    return few_clips(Workspace.open(server.workspace)).changed(**QUICK)


def shown_fields(page: Page) -> set[str]:
    """Names of the settings that can be seen."""
    found = page.locator("[id^=TrainSettings-]").evaluate_all(
        "blocks => blocks.filter(block => block.offsetParent).map(block => block.id)"
    )
    return {name.removeprefix("TrainSettings-") for name in found}


def fill(page: Page, name: str, value: str) -> None:
    field = page.locator(f"#TrainSettings-{name} :is(input, textarea)").first
    field.fill(value)
    field.press("Tab")


def refused(page: Page, name: str, sentence: str) -> None:
    """Press the button; a setting is refused with a sentence at the button and at its field, which is focused."""
    page.locator("#start-training").click()
    page.locator("#new-run [role=alert] li", has_text=sentence).wait_for()
    field = page.locator(f"#TrainSettings-{name} [aria-invalid=true]")
    field.wait_for()
    page.wait_for_function(f"document.activeElement.closest('#TrainSettings-{name}')")
    assert sentence in page.locator(f"[id='{field.get_attribute('aria-describedby')}']").inner_text()
    in_view = "box => box.top >= 0 && box.bottom <= innerHeight"
    page.wait_for_function(f"({in_view})(document.querySelector('#TrainSettings-{name}').getBoundingClientRect())")


def fold(page: Page, opened: bool) -> None:
    """Open or close the advanced settings, whichever they are."""
    field = page.locator("#TrainSettings-max_grad_norm")
    if field.is_visible() != opened:
        page.locator("#new-run .more > button").dispatch_event("click")  # a list of choices may lie over it
    field.wait_for(state="visible" if opened else "hidden")


def test_what_is_refused_is_said_at_the_field_until_it_changes_and_a_restart_keeps_the_form(
    server: Server, page: Page, settings: TrainSettings
) -> None:
    workspace = Workspace.open(server.workspace)
    (workspace.datasets / "empty").mkdir()
    (workspace.datasets / "empty" / METADATA).touch()
    server.start()
    page.goto(f"{server.url}&tab=train")
    refused(page, "dataset", "dataset is empty: choose one")
    fill(page, "dataset", "empty")
    page.locator("#new-run [role=alert] li").wait_for(state="hidden")
    assert not page.locator("[aria-invalid]").count()
    refused(page, "dataset", "dataset empty has no clip that can be used (it has no clips)")
    # Filled from elsewhere, it is refused no longer, though the field is the same.
    shutil.copytree(workspace.dataset(settings.dataset), workspace.dataset("empty"), dirs_exist_ok=True)
    page.locator("#new-run [role=alert] li").wait_for(state="hidden")
    assert page.locator("#TrainSettings-dataset input").input_value() == "empty"
    assert not page.locator("[aria-invalid]").count()
    fill(page, "dataset", settings.dataset)

    fill(page, "model", "<b>no such model")
    refused(page, "model", "model is '<b>no such model'")
    page.locator("#TrainSettings-model input").click()
    lines = page.locator("#TrainSettings-model [role=option]")
    lines.filter(has_text="too large").first.wait_for()
    assert max(lines.evaluate_all("all => all.map(one => one.getBoundingClientRect().height)")) < 60, (
        "two lines at most"
    )
    fill(page, "model", settings.model)

    fold(page, opened=True)
    fill(page, "max_grad_norm", "-1")
    fill(page, "rank", "0")
    fold(page, opened=False)
    refused(page, "max_grad_norm", "max_grad_norm is -1")  # the first of two; the fold is open
    page.locator("#TrainSettings-rank [aria-invalid=true]").wait_for()
    fill(page, "rank", "4")
    page.locator("#new-run [role=alert] li", has_text="rank").wait_for(state="hidden")
    assert page.locator("#new-run [role=alert] li").count() == 1
    assert not list(workspace.runs.iterdir())

    page.locator("#run-name :is(input, textarea)").fill("mine")
    kept = "JSON.parse(localStorage.getItem('workbench-form-train') ?? '{}')"
    page.wait_for_function(f"{kept}.rank == 4 && {kept}.max_grad_norm == -1 && {kept}['name of the run'] == 'mine'")
    server.kill()
    server.start()
    open_again(page, f"{server.url}&tab=train")
    page.wait_for_function("document.querySelector('#TrainSettings-rank input')?.value == 4")
    page.wait_for_function("document.querySelector('#run-name :is(input, textarea)').value == 'mine'")
    assert page.locator("#TrainSettings-dataset input").input_value() == settings.dataset
    refused(page, "max_grad_norm", "max_grad_norm is -1")  # kept though it was folded away

    for name, value in (("max_grad_norm", "1"), ("model", "cogvideox-5b"), ("batch_size", "256")):
        fill(page, name, value)
    page.locator("#start-training").click()
    page.locator("#fit-question [role=alert]", has_text="It does not fit").wait_for()
    page.wait_for_function("document.activeElement.innerText === 'Keep editing'")
    page.keyboard.press("Enter")
    page.locator("#start-anyway").wait_for(state="hidden")
    assert not list(workspace.runs.iterdir())


def test_values_to_try_and_trigger_words_are_looked_at_beside_their_fields(
    server: Server, page: Page, settings: TrainSettings
) -> None:
    workspace = Workspace.open(server.workspace)
    dataset = workspace.dataset(settings.dataset)
    write_info(dataset, read_info(dataset).model_copy(update={"trigger_word": "zwx"}))
    put_lora(workspace, "cat", layer("blocks.0.to_q", 4, 8, 8), trigger="ohwx")
    server.start()
    page.goto(f"{server.url}&tab=train")
    fill(page, "dataset", settings.dataset)
    fill(page, "rank", "4")
    fill(page, "preview_prompts", "a zwx ball\na ring")
    page.locator("#preview-trigger-missing", has_text="A prompt lacks zwx, the dataset's trigger word").wait_for()
    page.locator("#preview-insert-trigger", has_text="Insert zwx").click()
    page.locator("#preview-insert-trigger").wait_for(state="hidden")
    assert page.locator("#TrainSettings-preview_prompts textarea").input_value() == "a zwx ball\nzwx a ring"

    unfold(page, "#sweep > button")
    sweep = page.locator("#sweep-values")
    sweep.locator(".add").click()
    sweep.locator(".setting").fill("rank")  # a label as well as a key, and in any case
    sweep.locator(".setting").press("Tab")
    sweep.locator(".hint", has_text="Now: 4.").wait_for()
    assert sweep.locator(".setting").input_value() == "Rank"
    sweep.locator(".values").fill("2, 0")
    sweep.locator(".values").press("Tab")
    sweep.locator(".field-problem", has_text="rank is 0, must be 1 to 1024").wait_for()
    assert sweep.locator(".values").get_attribute("aria-invalid") == "true"
    sweep.locator(".values").fill("2, 8")
    sweep.locator(".values").press("Tab")
    sweep.locator("[role=status]", has_text="2 runs will be started.").wait_for()
    sweep.locator(".add").click()
    other = sweep.locator(".sweep-row").nth(1)
    other.locator(".setting").fill("Learning-rate schedule")
    other.locator(".setting").press("Tab")
    ticked = other.locator(".ticks input:checked").evaluate_all("boxes => boxes.map(box => box.value)")
    assert ticked == [TrainSettings().lr_schedule]
    other.locator(".ticks input[value=linear]").check()
    sweep.locator("[role=status]", has_text="4 runs will be started.").wait_for()
    page.wait_for_function(
        "JSON.parse(localStorage.getItem('workbench-form-train') ?? '{}')['values to try']?.length == 2"
    )

    page.reload()
    unfold(page, "#sweep > button")
    sweep.locator("[role=status]", has_text="4 runs will be started.").wait_for()
    chosen = sweep.locator(".setting").evaluate_all("fields => fields.map(field => field.value)")
    assert chosen == ["Rank", "Learning-rate schedule"]
    sweep.locator(".away").nth(1).click()
    sweep.locator("[role=status]", has_text="2 runs will be started.").wait_for()

    page.goto(f"{server.url}&tab=compare")
    page.locator("#GridSettings-prompts textarea").fill("an ohwx cat\na dog")
    unfold(page, "#grid-form .more > button")
    page.locator("#GridSettings-loras input").fill("loras/cat=0.5")
    page.locator("#GridSettings-loras input").press("Enter")
    page.locator("#grid-trigger-missing", has_text="A prompt lacks ohwx").wait_for()
    page.locator("#grid-insert-trigger").click()
    page.locator("#grid-insert-trigger").wait_for(state="hidden")
    assert page.locator("#GridSettings-prompts textarea").input_value() == "an ohwx cat\nohwx a dog"


def wait_for_order(workspace: Workspace, names: list[str]) -> None:
    end = time.monotonic() + PATIENCE
    while queue.order(workspace) != names:
        assert time.monotonic() < end, queue.order(workspace)
        time.sleep(0.1)


def test_settings_are_found_as_one_types(server: Server, page: Page) -> None:
    server.start()
    page.goto(f"{server.url}&tab=train")
    page.locator(SEARCH).focus()
    page.keyboard.type("rate")
    page.locator("#TrainSettings-scale_learning_rate").wait_for()  # folded away before
    found = shown_fields(page)
    assert {"learning_rate", "scale_learning_rate", "lr_schedule", "fps"} <= found
    assert not found & {"seed", "rank"}
    page.keyboard.press("Enter")  # to the first that fits
    assert page.evaluate("document.activeElement.closest('[id^=TrainSettings-]')?.id") == "TrainSettings-learning_rate"
    for typed, setting in (("vram", "gradient_checkpointing"), ("wandb", "tracker")):  # words of other programs
        page.locator(SEARCH).fill(typed)
        page.locator(f"#TrainSettings-{setting}").wait_for()
        page.locator("#TrainSettings-seed").wait_for(state="hidden")
    page.locator(SEARCH).fill("flux capacitor")
    page.get_by_text("No setting is called “flux capacitor”.").wait_for()
    assert shown_fields(page) == set()
    page.locator(SEARCH).fill("")
    page.locator("#TrainSettings-rank").wait_for()
    assert "seed" not in shown_fields(page)  # folded away again


def test_a_search_typed_before_the_form_is_whole_finds_what_is_folded_away(server: Server, page: Page) -> None:
    server.start()
    early = f"""new MutationObserver((_, watching) => {{
      const search = document.querySelector('{SEARCH}');
      if (!search) return;
      watching.disconnect();
      search.value = 'rate';
      search.dispatchEvent(new Event('input'));
    }}).observe(document, {{childList: true, subtree: true}})"""
    page.add_init_script(early)
    page.goto(f"{server.url}&tab=train")
    page.locator("#TrainSettings-scale_learning_rate").wait_for()
    page.locator("#new-run .more > button").click()  # whoever closes it has it closed
    page.locator("#TrainSettings-scale_learning_rate").wait_for(state="hidden")
    page.wait_for_timeout(1000)
    assert page.locator("#TrainSettings-scale_learning_rate").is_hidden()


def test_settings_without_effect_are_left_out_and_keep_their_values(server: Server, page: Page) -> None:
    server.start()
    page.goto(f"{server.url}&tab=train")
    unfold(page, "#new-run .more > button")
    page.locator("#TrainSettings-dora").wait_for()
    page.wait_for_function("!document.querySelector('#TrainSettings-image_dropout').offsetParent")  # text-to-video
    page.locator("#TrainSettings-alpha input").fill("8")
    page.locator("#TrainSettings-alpha[data-changed]").wait_for()
    page.locator("#new-run .more [data-count='1 changed']").wait_for()
    # Another model: its family's settings come, and go with what they hold, which is said; what else was typed stays.
    own = [page.locator(f"#TrainSettings-{name}") for name in ("expert", "timestep_shift")]
    shown = {"tiny-phenaki": (False, False), "wan2.2-t2v-a14b": (True, True), "ltx-video-2b-0.9.5": (False, True)}
    for model, both in shown.items():
        fill(page, "model", model)
        for one, there in zip(own, both, strict=True):
            one.wait_for(state="visible" if there else "hidden")
    fill(page, "timestep_shift", "2")
    page.locator("#TrainSettings-timestep_shift[data-changed]").wait_for()
    fill(page, "model", "tiny-phenaki")
    page.locator("#TrainSettings-changed-by-model", has_text="Timestep shift was 2.0, is the model's own").wait_for()
    own[1].wait_for(state="hidden")
    assert page.locator("#TrainSettings-alpha input").input_value() == "8"
    page.locator("#TrainSettings-method input").click()
    page.get_by_role("option", name="full").click()
    page.locator("#TrainSettings-dora").wait_for(state="hidden")
    assert page.locator("#TrainSettings-alpha").is_visible()  # somebody gave it a value
    assert page.locator("#TrainSettings-alpha input").input_value() == "8"

    # The fields of a tab that was not open come one by one when it opens.
    page.get_by_role("tab", name="Sample", exact=True).click()
    page.locator("#SampleSettings-prompt").wait_for()
    page.locator("#SampleSettings-image").wait_for(state="hidden")


def test_the_queues_order_is_changed_and_a_waiting_run_removed(
    server: Server, page: Page, settings: TrainSettings
) -> None:
    workspace = Workspace.open(server.workspace)
    runs = {name: Run.create(workspace, settings.changed(steps=100_000), name) for name in ("one", "two", "three")}
    for run in runs.values():
        run.start()
    wait_for_order(workspace, ["two", "three"])
    server.start()
    page.goto(f"{server.url}&tab=train")
    page.get_by_role("radio", name="three").check()
    page.locator("#run-head .badge", has_text="waiting").wait_for()
    page.locator("#run-head", has_text="second in the queue, after run two").wait_for()
    page.locator("#queue-up").focus()
    page.keyboard.press("Enter")
    page.locator("#run-head", has_text="first in the queue").wait_for()
    wait_for_order(workspace, ["three", "two"])
    assert page.locator("#queue li").all_inner_texts() == ["three", "two"]
    page.locator("#queue-remove").click()
    page.locator("#run-head .badge", has_text="stopped").wait_for()
    wait_for_order(workspace, ["two"])
    assert runs["one"].status.state.alive


def test_a_failed_run_goes_on_by_the_button_of_its_failure(server: Server, page: Page, settings: TrainSettings) -> None:
    workspace = Workspace.open(server.workspace)
    run = Run.create(workspace, settings.changed(steps=4), "failed")
    run.start()
    run.wait(PATIENCE)
    assert run.checkpoints == [2, 4]
    # As if it had ended within step 3, on a smaller GPU.
    (run.folder / "checkpoints" / "step-00000004" / "MANIFEST.json").unlink()
    (run.folder / "lora.safetensors").unlink()
    ended(run.folder, "failed", int(ExitCode.OUT_OF_MEMORY), "CUDA out of memory. Tried to allocate 2.50 GiB.")
    server.start()
    page.goto(f"{server.url}&tab=train")
    page.locator("#run-ending h3", has_text="The GPU ran out of memory").wait_for()
    assert not page.locator("#start-training").is_visible()  # the run first; the form for a new one behind a button
    page.get_by_role("button", name="Fork from step 2 with gradient_checkpointing full").click()
    page.locator("#run-head h2", has_text="failed-2").wait_for()
    page.locator("#run-head .run-note", has_text="Goes on from step 2 of failed").wait_for()
    page.locator("#run-head .badge", has_text="finished").wait_for()
    fork = Run(workspace.runs / "failed-2")
    assert fork.settings == run.settings.changed(gradient_checkpointing="full")
    assert [line["step"] for line in fork.metrics if "loss" in line] == [3, 4]

    page.locator("#copy-run").click()  # the form opens with what it holds now
    page.wait_for_function("document.querySelector('#TrainSettings-dataset input')?.value")
    page.locator("#start-training").wait_for()
    assert page.locator("#TrainSettings-dataset input").input_value() == settings.dataset
    unfold(page, "#new-run > button")
    page.locator("#start-training").wait_for(state="hidden")


def test_a_recipe_fills_in_the_form_and_presets_are_saved_chosen_and_shared(
    server: Server, page: Page, tmp_path: Path
) -> None:
    def value(name: str) -> str:
        return page.locator(f"#TrainSettings-{name} input").input_value()

    server.start()
    page.goto(f"{server.url}&tab=train")
    choose(page, "recipe", "Effect")
    page.locator("#recipe-reasons", has_text="Measured on the built-in models").wait_for()
    page.wait_for_function("document.querySelector('#TrainSettings-steps input').value === '1400'")
    assert (value("learning_rate"), value("batch_size")) == ("0.002", "4")
    choose(page, "TrainSettings-model", "CogVideoX 5B")
    choose(page, "recipe", "Style")
    page.locator("#recipe-reasons", has_text="The best documented subject").wait_for()
    page.locator("#recipe-reasons summary", has_text="Why these values").click()
    page.locator("#recipe-reasons a[href*='cogvideox-disney']").first.wait_for()
    page.wait_for_function("document.querySelector('#TrainSettings-rank input').value === '64'")
    unfold(page, "#fit-more > button")
    choose(page, "fit-gpu", "8 GB")
    choose(page, "recipe", "Character")
    page.locator("#recipe-reasons", has_text="gradient checkpointing offloaded").wait_for()
    page.locator("#fit-line", has_text="of 8 GB").wait_for()
    page.wait_for_function("document.querySelector('#TrainSettings-learning_rate input').value === '0.0001'")
    choose(page, "recipe", "Style")
    page.wait_for_function("document.querySelector('#TrainSettings-learning_rate input').value === '0.0003'")

    unfold(page, "#guide > button")
    page.locator("#guide h1", has_text="How to train a LoRA that works").wait_for()
    page.locator("#guide a", has_text="AnimateDiff").first.wait_for()
    unfold(page, "#presets > button")
    page.locator("#preset-name input, #preset-name textarea").first.fill("My style")
    page.locator("#save-preset").click()
    with page.expect_download() as download:
        page.locator("#preset-file a", has_text="Download my-style.json").click()
    file = tmp_path / "shared.json"
    file.write_text(json.dumps({**json.loads(download.value.path().read_text()), "rank": 12}))
    page.locator("#presets input[type=file]").set_input_files(file)
    page.locator("#preset-file a", has_text="Download shared.json").wait_for()
    choose(page, "preset", "my-style")
    choose(page, "preset", "shared")
    page.wait_for_function("document.querySelector('#TrainSettings-rank input').value === '12'")
    assert value("learning_rate") == "0.0003"
