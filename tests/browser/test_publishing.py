"""Publishing in a real browser: who is logged in, what would go, the push, and the token nowhere on the page."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser.server import ROOT
from tests.fake_hub import TOKEN, FakeHub
from tests.loras.making import layer, write_lora
from tests.patience import PATIENCE
from tests.publishing.conftest import run  # noqa: F401 - a fixture
from workbench.runs.run import Run
from workbench.workspace import Workspace

if TYPE_CHECKING:
    from playwright.sync_api import Browser

MILLISECONDS = PATIENCE * 1000


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    """A LoRA without samples."""
    tensors = layer("transformer_blocks.0.attn1.to_q", 4, 8, 8)
    return write_lora(tmp_path / "lora.safetensors", tensors, 8.0, base_model="tiny-cogvideox", trigger_word="zwx")


@pytest.fixture
def page_of(workspace: Workspace, tmp_path: Path) -> Iterator[tuple[str, FakeHub, Path]]:
    """(address of the part's page, the Hub, where a login goes); nobody is logged in."""
    home = tmp_path / "login"
    home.mkdir()
    with FakeHub("ann").serving() as hub:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
        environment |= {"HF_ENDPOINT": hub.url, "HF_HOME": str(home), "HF_HUB_DISABLE_XET": "1"}
        command = [sys.executable, "-m", "tests.browser.publishing_page", str(workspace.root), "runs/cats"]
        server = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment
        )
        assert server.stdout is not None
        yield server.stdout.readline().strip(), hub, home
        server.kill()
        server.communicate()


def test_a_lora_is_pushed_from_the_page(run: Run, page_of: tuple[str, FakeHub, Path], browser: Browser) -> None:  # noqa: F811
    address, hub, home = page_of
    page = browser.new_page(viewport={"width": 390, "height": 900})
    page.set_default_timeout(MILLISECONDS)
    page.goto(address)
    page.wait_for_selector("#publish-account :text('hf auth login')")
    assert page.is_disabled("#push-lora")
    (home / "token").write_text(TOKEN)  # as `hf auth login` does, in a terminal
    page.wait_for_selector("#publish-account :text('ann')")
    page.click("#show-plan-lora")
    page.wait_for_selector("#plan-lora td:text('pytorch_lora_weights.safetensors')")
    assert "to the model repository ann/cats (private)" in page.inner_text("#plan-lora")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.fill("#LoraPush-repo_id :is(input, textarea)", "ann/lions")
    page.click("#push-lora")
    page.wait_for_selector("#plan-lora [role=alert] :text('the form has changed since its plan was shown')")
    assert "to the model repository ann/lions (private)" in page.inner_text("#plan-lora")
    assert not hub.repos
    page.click("#push-lora")
    page.wait_for_selector("#progress-lora :text('Pushed')")
    assert hub.private == {"ann/lions"}
    with urllib.request.urlopen(f"{address}config") as config:
        assert TOKEN not in config.read().decode() + page.content()
    page.close()
