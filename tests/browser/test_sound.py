"""Sound in the browser: muted until a speaker is pressed, one video at a time, remembered; cut by ear."""

from __future__ import annotations

import re

import numpy as np
import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Site
from tests.dataset_builder.foreign import write_video
from tests.drawing import draw
from tests.sounds import tone
from tests.written_grid import run_to_compare
from workbench.clips import sound
from workbench.compare import Grid, GridSettings
from workbench.dataset_builder import Dataset
from workbench.sampler.samples import write_sample

HEARD = "() => [...document.querySelectorAll('video')].filter((one) => !one.muted).length"
LEVELS = 600  # of the waveform


@pytest.fixture(scope="module", autouse=True)
def _dataset(site: Site, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("noises")
    pause = np.zeros((1, 44100), np.float32)
    for name, color, wave in (
        ("whistle", "red", np.concatenate([tone(880, 1.0, 44100), pause, tone(440, 1.0, 44100)], axis=1)),
        ("hum", "green", tone(220, 3.0, 44100)),
        ("mute", "blue", False),
    ):
        write_video(folder / f"{name}.mkv", draw(72, color=color), fps=24, sound=wave)
    Dataset.create(site.workspace, "Noises").import_files([folder])


def test_a_clip_is_heard_when_its_speaker_is_pressed_and_one_at_a_time(site: Site, page: Page) -> None:
    site.open(page, "#/dataset/noises")
    cards = page.locator(".clip")
    expect(cards).to_have_count(3)
    expect(cards.filter(has_text="mute.mkv").get_by_role("button", name="Play the sound")).to_have_count(0)
    assert page.evaluate(HEARD) == 0
    page.get_by_role("button", name="Play the sound of whistle.mkv").click()
    expect(cards.filter(has_text="whistle.mkv").get_by_role("button", name="Mute", exact=True)).to_be_visible()
    assert page.evaluate(HEARD) == 1
    page.get_by_role("button", name="Play the sound of hum.mkv").click()
    expect(cards.filter(has_text="hum.mkv").get_by_role("button", name="Mute", exact=True)).to_be_visible()
    assert page.evaluate(HEARD) == 1
    page.get_by_role("button", name="Mute", exact=True).click()
    expect(page.get_by_role("button", name="Mute", exact=True)).to_have_count(0)
    assert page.evaluate(HEARD) == 0


def test_the_choice_is_remembered_and_the_clip_editor_shows_what_is_heard(site: Site, page: Page) -> None:
    site.open(page, "#/dataset/noises")
    page.locator(".clip a", has=page.locator("video")).filter(has=page.locator("[aria-label*='whistle']")).first.click()
    wave = page.locator(".film .wave path")
    expect(wave).to_have_attribute("d", re.compile(r"^M0 100L"))
    outline = [float(pair.split()[1]) for pair in (wave.get_attribute("d") or "")[2:].split("Z")[0].split("L")[1:]]
    levels = 99 - np.array(outline[:LEVELS])
    assert [round(float(part.mean()) / 10) for part in np.array_split(levels, 3)] == [5, 0, 5], "sound, pause, sound"
    expect(page.locator(".about-clip")).to_contain_text("3.0 s, 44.1 kHz, mono")

    speaker = page.locator(".stage").get_by_role("button", name="Play the sound")
    speaker.click()
    expect(page.locator(".stage").get_by_role("button", name="Mute")).to_be_visible()
    page.get_by_role("link", name="Next clip").or_(page.get_by_role("link", name="Previous clip")).first.click()
    expect(page.get_by_role("heading", level=1)).not_to_have_text("whistle.mkv")
    page.go_back()
    expect(page.locator(".stage").get_by_role("button", name="Mute")).to_be_visible()
    page.reload()
    page.locator("main h1").first.click()  # browsers stay silent until a person has done something
    expect(page.locator(".stage").get_by_role("button", name="Mute")).to_be_visible()
    assert page.evaluate(HEARD) == 1, "only the clip is heard, not the videos beside it"


def test_videos_of_a_grid_play_together_and_one_is_heard(site: Site, page: Page) -> None:
    run_to_compare(site.workspace, ("a dog barks",))
    grid = Grid.create(site.workspace, GridSettings(run="first"))
    for number, cell in enumerate(grid.state().cells[0]):
        record = {"settings": cell.settings.model_dump(mode="json"), "loras": [], "seconds": 1.0, "steps": 2}
        write_sample(grid.video(cell.key), draw(24), 12, record)
        sound.write_sound(grid.video(cell.key), tone(220 * (1 + number), 2.0), 16000)
    site.open(page, f"#/compare/{grid.name}")
    speakers = page.locator(".cell").get_by_role("button", name="Play the sound")
    expect(speakers).to_have_count(3)
    assert page.evaluate(HEARD) == 0
    speakers.nth(1).click()
    expect(page.locator(".cell").nth(1).get_by_role("button", name="Mute")).to_be_visible()
    expect(page.locator("dialog[open]")).to_have_count(0)
    assert page.evaluate(HEARD) == 1
    page.locator("wb-scrubber input").fill("5")
    together = "one.paused && Math.abs(one.currentTime - all[0].currentTime) < 0.01"
    page.wait_for_function(f"[...document.querySelectorAll('.cell video')].every((one, at, all) => {together})")
    page.locator(".cell").nth(2).get_by_role("button", name="Play the sound").click()
    expect(page.locator(".cell").nth(2).get_by_role("button", name="Mute")).to_be_visible()
    assert page.evaluate(HEARD) == 1
