"""Every state has a tone and an icon, and its word stands beside them on each face."""

from __future__ import annotations

import re

import pytest

from tests.written_run import ended, write_run
from workbench.compare.grid import CellState
from workbench.display import html, inline_html, states
from workbench.jobs import State
from workbench.runs.display import run_html
from workbench.sampler.queue import RequestState
from workbench.workspace import Workspace

WORDS = sorted({*map(str, (*State, *RequestState, *CellState)), "waiting"})


@pytest.mark.parametrize("word", WORDS)
def test_a_badge_is_a_word_a_tone_and_an_icon_that_is_not_read_out(word: str) -> None:
    path = states.icon_path(word)
    assert re.fullmatch(r"[MLlHhVvazAZ0-9 .-]+", path)
    for made in (html.badge(word), inline_html.badge(word)):
        assert made.endswith(f"</svg>{word}</span>")
        assert f'<path d="{path}"/>' in made
        assert 'aria-hidden="true"' in made
    assert f'class="badge {states.tone_of(word)}"' in html.badge(word)


def test_good_bad_going_and_idle_are_told_apart_without_their_color() -> None:
    tones = {states.tone_of(word): states.icon_path(word) for word in ("finished", "failed", "running", "stopped")}
    assert set(tones) == {"good", "bad", "going", "idle"}
    assert len(set(tones.values())) == 4
    assert len(set(states.TONE_ICONS.values())) == len(states.TONE_ICONS)


def test_a_run_in_a_notebook_has_the_icon_of_its_state(workspace: Workspace) -> None:
    run = write_run(workspace, "cats")
    for state in ("finished", "failed"):
        ended(run.folder, state, int(state == "failed"))
        assert f"{states.icon(state)}{state}</span>" in run_html(run)
