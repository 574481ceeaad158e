"""The LoRA library on the page: LoRAs are merged, moved to the bin and brought back, imported, published."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser.conftest import Site
from tests.fake_hub import TOKEN, FakeHub
from tests.loras.making import layer, put_lora, write_lora
from tests.patience import PATIENCE

if TYPE_CHECKING:
    from playwright.sync_api import Page

MILLISECONDS = PATIENCE * 1000
LAYER = layer("transformer_blocks.0.attn1.to_q", 4, 64, 64)


@pytest.fixture(scope="module", autouse=True)
def loras(site: Site) -> None:
    for name in ("ring", "lion", "boat"):
        put_lora(site.workspace, name, LAYER, 8.0, trigger=f"{name}word")


@pytest.fixture(autouse=True)
def patient(page: Page) -> None:
    page.set_default_timeout(MILLISECONDS)


def test_a_card_is_found_opened_and_closed(site: Site, page: Page) -> None:
    site.open(page, "#/loras")
    page.wait_for_selector(".tile.lora >> nth=2")
    page.fill("input[type=search]", "lionword")
    page.wait_for_function("document.querySelectorAll('.tile.lora').length === 1")
    page.click(".tile.lora a.one-line")
    page.wait_for_selector("wb-lora h2:text('lion')")
    assert page.evaluate("location.hash") == "#/loras/loras%2Flion"
    page.wait_for_function("document.title.startsWith('lion')")
    page.click("wb-lora [aria-label=Close]")
    page.wait_for_selector("wb-lora", state="detached")


def test_a_repair_shows_what_it_measured(site: Site, page: Page) -> None:
    small = layer("transformer_blocks.0.attn1.to_q", 2, 128, 128) | layer("proj_out", 2, 128, 64)
    put_lora(site.workspace, "wide", small, 0.05)
    site.open(page, "#/loras/loras%2Fwide")
    page.click("wb-lora :text('Repair…')")
    page.fill(
        "wb-lora-task [name=prompts]", "\n".join(f"a ring moves {way}" for way in ("up", "down", "left", "right"))
    )
    page.fill("wb-lora-task [name=others]", "a circle moves up")
    page.click("wb-lora-task summary:text('More')")
    page.fill("wb-lora-task [name=steps]", "1")
    page.click("wb-lora-task .primary")
    page.wait_for_selector(".lora-work li:has-text('others has 1 prompt, at least 4 are needed')")
    page.click("wb-lora :text('Repair…')")
    page.fill(
        "wb-lora-task [name=prompts]", "\n".join(f"a ring moves {way}" for way in ("up", "down", "left", "right"))
    )
    page.fill(
        "wb-lora-task [name=others]", "\n".join(f"a circle moves {way}" for way in ("up", "down", "left", "right"))
    )
    page.click("wb-lora-task summary:text('More')")
    page.fill("wb-lora-task [name=steps]", "1")
    page.click("wb-lora-task .primary")
    page.click(".lora-work summary:text('Figures and map')")
    page.wait_for_selector(
        "wb-repair section[aria-label='Effect on its own prompts'] li:has-text('Before'):has-text('100%')"
    )
    assert page.locator("wb-repair section[aria-label='Drift of other prompts'] li").count() == 3
    assert page.locator("wb-repair .heat tbody th").all_inner_texts() == ["Block 0", "Other layers"]
    cells = page.locator("wb-repair .heat tbody td")
    assert cells.count() == 2 * 6
    assert "block 0, noise level 0.3: effect" in (cells.first.get_attribute("title") or "")


def test_chosen_ones_are_merged(site: Site, page: Page) -> None:
    site.open(page, "#/loras")
    for name in ("ring", "lion"):
        page.check(f"[aria-label='Choose {name}']")
    page.click(".floating :text('Merge')")
    weight = page.get_by_label("Scale of lion", exact=True)
    weight.wait_for()
    page.get_by_label("Scale of lion, slider").fill("0.5")
    page.wait_for_function("(field) => field.value === '0.50'", arg=weight.element_handle())
    page.get_by_label("Blocks of lion").click()
    page.get_by_role("group", name="Blocks of lion").locator("input[type=range]").first.fill("0")
    page.select_option("wb-lora-task select[name=loras]", "loras/boat")
    page.get_by_label("Remove boat").click()
    page.get_by_label("Scale of boat", exact=True).wait_for(state="detached")
    page.fill("wb-lora-task [name=name]", "both")
    page.fill("wb-lora-task [name=rank]", "0")
    page.wait_for_selector("wb-lora-task [role=alert]:has-text('rank is 0')")
    page.fill("wb-lora-task [name=rank]", "8")
    page.click("wb-lora-task .primary")
    page.click(".lora-work :text('Open')")
    page.wait_for_selector("wb-lora h2:text('both')")
    page.wait_for_selector("wb-lora .lora-facts:has-text('0.5 × '):has-text('[0:0]')")


def test_what_is_moved_to_the_bin_comes_back_by_undo(site: Site, page: Page) -> None:
    site.open(page, "#/loras")
    page.check("[aria-label='Choose boat']")
    page.click(".floating :text('Move to the bin')")
    page.wait_for_selector("[aria-label='Choose boat']", state="detached")
    page.click(".toast :text('Undo')")
    page.wait_for_selector("[aria-label='Choose boat']")
    page.click("[aria-label='Choose boat']")
    page.click(".floating :text('Move to the bin')")
    page.wait_for_selector("[aria-label='Choose boat']", state="detached")
    page.click(".head summary")
    page.click(".menu :text('Open the bin')")
    page.click("dialog :text('Restore')")
    page.wait_for_selector("dialog :text('The bin is empty.')")


def test_a_dropped_file_is_imported(site: Site, page: Page, tmp_path: Path) -> None:
    path = write_lora(tmp_path / "wolf.safetensors", LAYER, 8.0, base_model="tiny-cogvideox")
    site.open(page, "#/loras")
    page.click(".head .button:has-text('Import')")
    with page.expect_file_chooser() as chosen:
        page.click("wb-lora-task .dropzone")
    chosen.value.set_files(str(path))
    page.wait_for_selector(".lora-work :text('Import')")
    page.wait_for_selector(".lora-work .good:has-text('Import'), .lora-work .bad:has-text('Import')")


@pytest.fixture(scope="module")
def hub(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[FakeHub, Path]]:
    """A Hub that the page's server talks to, and the folder of its login; nobody is logged in."""
    home = tmp_path_factory.mktemp("login")
    before = dict(os.environ)
    with FakeHub("ann").serving() as served:
        for name in [name for name in os.environ if name.startswith("HF_")]:
            del os.environ[name]
        os.environ |= {"HF_ENDPOINT": served.url, "HF_HOME": str(home), "HF_HUB_DISABLE_XET": "1"}
        site.server.kill()
        site.server.start()
        yield served, home
        os.environ.clear()
        os.environ.update(before)


def test_a_lora_is_published(site: Site, page: Page, hub: tuple[FakeHub, Path]) -> None:
    served, home = hub
    site.open(page, "#/loras/loras%2Flion")
    page.wait_for_selector("wb-publish:has-text('hf auth login')")
    assert page.is_disabled("wb-push .button:has-text('Publish')")
    (home / "token").write_text(TOKEN)  # as `hf auth login` does, in a terminal
    page.wait_for_selector("wb-publish:has-text('Logged in as ann')")
    page.wait_for_selector("wb-push summary:has-text('to the model repository ann/lion (private)')")
    page.fill("wb-push [name=repo_id]", "ann/lions")
    page.wait_for_selector("wb-push summary:has-text('to the model repository ann/lions (private)')")
    page.click("wb-push .button:has-text('Publish ·')")
    page.wait_for_selector("wb-push .good:has-text('Published')")
    assert served.private == {"ann/lions"}
    assert TOKEN not in page.content()
