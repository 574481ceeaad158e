"""The fit of a run below the form of its settings."""

from __future__ import annotations

from workbench.notebook import train_panel
from workbench.runs.settings import TrainSettings
from workbench.workspace import Workspace


def test_the_line_follows_the_form_and_the_button_makes_it_fit(workspace: Workspace) -> None:
    panel = train_panel(workspace, TrainSettings(model="cogvideox-5b", rank=64))
    try:
        panel.fit.gpu.value = "24 GB"
        assert "It does not fit" in panel.fit.line.value
        panel.fit.make_button.click()
        assert panel.form.settings.gradient_checkpointing == "full"
        assert "It does not fit" not in panel.fit.line.value
        assert "Fits with gradient checkpointing full" in panel.fit.message.value
        assert "training" in panel.fit.table.value
        panel.fit.gpu.value = "nothing"
        assert "give its memory in GB" in panel.fit.table.value
    finally:
        panel.close()


def test_a_recipe_fills_in_what_fits_the_chosen_gpu_and_says_why(workspace: Workspace) -> None:
    panel = train_panel(workspace, TrainSettings(model="cogvideox1.5-5b"))
    try:
        panel.fit.gpu.value = "8 GB"
        panel.subject.value = "style"
        panel.recipe_button.click()
        settings = panel.form.settings
        assert (settings.rank, settings.learning_rate) == (64, 3e-4)
        assert settings.frames is not None
        assert panel.fit.fit.fits
        assert f"81 frames: {settings.frames} would fit" in panel.reasons.value
        assert "huggingface/diffusers" in panel.reasons.value
    finally:
        panel.close()
