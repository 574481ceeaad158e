"""What tabs other than Train refuse stands at the button and at the field, which is in view, focused and announced."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser.server import Server, unfold
from tests.loras.making import layer, write_lora
from tests.written_run import write_run
from workbench.compare import Grid
from workbench.dataset_builder.dataset import Dataset
from workbench.families import find_model
from workbench.runs import checkpoints
from workbench.workspace import Workspace

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser


@pytest.fixture
def viewport() -> tuple[int, int]:
    """Wide enough for every panel of a dataset."""
    return 1900, 900


def fill(page: Page, field: str, value: str) -> None:
    typed = page.locator(f"#{field} :is(input, textarea)").first
    typed.fill(value)
    typed.press("Tab")


def refused(page: Page, button: str, field: str, sentence: str) -> None:
    page.locator(f"#{button}").click()
    page.locator(f"[id='{field}-problem']", has_text=sentence).wait_for()
    page.locator("[role=alert] li", has_text=sentence).wait_for()
    page.wait_for_function(f"document.activeElement.closest('[id=\"{field}\"]')")
    invalid = page.locator(f"#{field} [aria-invalid=true]")
    assert invalid.get_attribute("aria-describedby") == f"{field}-problem"
    in_view = "box => box.top >= 0 && box.bottom <= innerHeight"
    page.wait_for_function(f"({in_view})(document.getElementById('{field}').getBoundingClientRect())")


def gone(page: Page) -> None:
    page.locator("[role=alert] li").first.wait_for(state="hidden")
    assert not page.locator("[aria-invalid]").count()


def test_every_tab_says_what_it_refuses_where_it_is_wrong(server: Server, page: Page, tmp_path: Path) -> None:
    workspace = Workspace.open(server.workspace)
    server.start()
    page.goto(f"{server.url}&tab=dataset")
    refused(page, "create-dataset", "dataset-title", "the title is empty")
    fill(page, "dataset-title", "Cats")
    gone(page)
    page.locator("#create-dataset").click()
    page.get_by_role("heading", name="Cats").wait_for()
    page.locator("#dataset-title").wait_for(state="hidden")  # the fold is open only while there is no dataset
    fill(page, "dataset-path", "/no/such/folder")
    refused(page, "import-clips", "dataset-path", "does not exist on this machine")
    fill(page, "dataset-path", "")
    gone(page)
    Dataset.create(workspace, "Dogs")
    unfold(page, "#about-dataset button")
    fill(page, "dataset-new-title", "Dogs")
    refused(page, "rename-dataset", "dataset-new-title", "there is a dataset 'dogs' already")
    assert {one.name for one in Dataset.all(workspace)} == {"cats", "dogs"}

    page.get_by_role("tab", name="Sample", exact=True).click()
    fill(page, "SampleSettings-steps", "0")
    refused(page, "generate", "SampleSettings-steps", "steps is 0")
    fill(page, "SampleSettings-steps", "3")

    page.get_by_role("tab", name="Compare", exact=True).click()
    unfold(page, "#grid-form > button")  # closed while there is no LoRA to compare
    refused(page, "grid-make", "GridSettings-prompts", "prompts is empty")
    fill(page, "GridSettings-prompts", "a cat")
    fill(page, "GridSettings-model", "tiny-cogvideox-i2v")
    page.locator("#grid-make").click()
    page.locator(".refusal", has_text="Not generated yet: image is empty").wait_for()
    page.locator("#grid-generate", has_text="Generate the missing video").wait_for()
    assert [grid.settings.prompts for grid in Grid.all(workspace)] == [("a cat",)], "the grid is kept"

    page.get_by_role("tab", name="LoRAs", exact=True).click()
    unfold(page, "#lora-take-fold > button")
    refused(page, "lora-take", "LoraImportSettings-source", "there is nothing to import")
    fill(page, "LoraImportSettings-source", "/no/such.safetensors")
    page.locator("[id='LoraImportSettings-source-problem']").wait_for(state="hidden")
    # What of a LoRA does not fit its model is said as it is imported, and with the LoRA from then on.
    family, model = find_model("tiny-cogvideox")
    layers = {name: linear for name, linear in family.facts(model).named() if ".attn1." in name or ".ff." in name}
    foreign = layer("transformer_blocks.99.attn1.to_q", 4, 128, 128)
    for name, linear in layers.items():
        foreign |= layer(name, 4, linear.inputs, linear.outputs)
    fill(page, "LoraImportSettings-source", str(write_lora(tmp_path / "fast.safetensors", foreign, 4.0)))
    fill(page, "LoraImportSettings-model", "tiny-cogvideox")
    page.locator("#lora-take").click()
    for place in ("#lora-work", "#lora-detail"):
        for said in (
            f"{len(layers)} of {len(layers) + 1}",
            "transformer_blocks.99.attn1.to_q: a layer that the model lacks",
        ):
            page.locator(place, has_text=said).wait_for()
        if place == "#lora-work":
            page.get_by_role("checkbox", name="Choose fast").check()


def test_what_a_button_without_a_form_refuses_stays_below_it(server: Server, page: Page) -> None:
    run = write_run(Workspace.open(server.workspace), "cats", 20, keep_checkpoints=1)
    server.start()
    page.goto(f"{server.url}&tab=train")
    unfold(page, "#checkpoints > button")
    page.locator("#remove-checkpoints").click()
    page.locator("#removing", has_text="1 would go").wait_for()
    checkpoints.star(run.folder, 10)  # meanwhile, in a shell
    page.locator("#remove-for-good").click()
    page.locator(".refusal", has_text="nothing was removed: the checkpoint of step 10 is kept by now").wait_for()
    page.locator("#remove-for-good").wait_for(state="hidden")
    assert page.locator(".refusal").is_visible()
    page.locator(".refusal .close").click()
    assert run.checkpoints == [10, 20]

    # A fork of other settings than those that were listed.
    said = page.locator(".refusal", has_text="nothing was started: run, step or form is not what was listed")
    page.locator("#copy-run").click()
    page.wait_for_function("document.querySelector('#TrainSettings-steps input')?.value === '20'")
    page.locator("#compare-fork").click()
    page.locator("#start-fork", has_text="Fork from step 20 and start").wait_for()
    fill(page, "TrainSettings-steps", "30")
    page.locator("#start-fork").click()
    said.wait_for()
    assert said.evaluate("box => Boolean(box.closest('#checkpoints'))")
    assert [one.name for one in Workspace.open(server.workspace).runs.iterdir()] == ["cats"]
    page.locator("#compare-fork").click()
    page.locator("#fork-differences td", has_text="30").wait_for()
    said.get_by_label("Close").click()

    shutil.rmtree(run.folder / "checkpoints")
    page.locator("#star-checkpoint").click()
    said = page.locator(".refusal", has_text="cats has no checkpoint yet")
    said.wait_for()
    page.locator("[data-testid=toast-body]", has_text="cats has no checkpoint yet").wait_for(state="hidden")
    below = "box => box.previousElementSibling.contains(document.getElementById('star-checkpoint'))"
    assert said.evaluate(below)
    assert said.get_attribute("role") == "alert"
