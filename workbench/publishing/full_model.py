"""What a push of a full fine-tune sends: the trained part, which stock diffusers loads into the base model's pipeline.

transformer/...     the weights and their config (transformer_2/ of that expert)
README.md           the model card of the run, with code that loads the part by the repository's name
samples/0.mp4 ...   the previews, without the records inside them
first_frame.png     of an image-to-video model: what the first preview begins with
config.json         the run's settings, without paths of this machine
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench import __version__
from workbench.clips import media
from workbench.clips.records import read_info
from workbench.errors import ConfigError, DataError
from workbench.families import model_files
from workbench.publishing import anonymize
from workbench.publishing.card import sample_name
from workbench.publishing.facts import MOST_PREVIEWS, check_links, published_preview
from workbench.publishing.settings import LoraPush
from workbench.publishing.upload_plan import README, FileContent, UploadPlan
from workbench.publishing.usage import PICTURE
from workbench.runs.checkpoints import PUBLISHED
from workbench.runs.model_card import card_facts, license_of, model_card
from workbench.runs.previews import all_previews
from workbench.runs.run import Run
from workbench.workspace import Workspace, read_object
from workbench.workspace.lora_names import is_name

CONFIG = "config.json"


@dataclass(frozen=True)
class FullModel:
    """A finished run that trained all weights, as something to publish. path: its largest file, which stands for it"""

    run: Run
    path: Path

    @property
    def name(self) -> str:
        return f"runs/{self.run.name}"

    @property
    def title(self) -> str:
        return self.run.name

    @property
    def folder(self) -> Path:
        return self.run.folder

    @property
    def published(self) -> Mapping[str, Any]:
        return read_object(self.folder / PUBLISHED)


def find(workspace: Workspace, name: str) -> FullModel | None:
    """The full fine-tune that a name such as runs/NAME stands for, None when it is none."""
    if not is_name(name) or not name.startswith("runs/") or "@" in name:
        return None
    folder = workspace.run(name.removeprefix("runs/"))
    if not (folder / model_files.INDEX).is_file():
        return None
    weights = sorted(
        (folder / model_files.trained_part(folder)).glob("*.safetensors"), key=lambda one: one.stat().st_size
    )
    return FullModel(Run(folder), weights[-1]) if weights else None


def plan_upload(workspace: Workspace, found: FullModel, settings: LoraPush) -> UploadPlan:
    """Everything that is uploaded to `settings.repo_id`. Raises ConfigError, DataError."""
    if settings.clips:
        raise ConfigError("clips is on, which goes with a LoRA only: turn it off", {"clips": "turn it off"})
    run, trained = found.run, model_files.trained_part(found.folder)
    chosen = run.settings
    family, base = chosen.resolved
    videos = [one.video for one in all_previews(found.folder) if one.step == chosen.steps][:MOST_PREVIEWS]
    previews = [one for video in videos if (one := published_preview(workspace, video, base)) is not None]
    files: dict[str, FileContent] = {
        f"{trained}/{path.name}": path for path in sorted((found.folder / trained).iterdir()) if path.is_file()
    }
    check_links(workspace, [found.folder / name for name in files] + videos)
    if not files:
        raise DataError(f"{found.title} has lost its folder {trained}: nothing is left to publish")
    for index, preview in enumerate(previews):
        files[sample_name(index)] = media.without_comment(preview.video)
    if previews and base.task == "image-to-video":
        files[PICTURE] = media.first_frame_png(previews[0].video)
    if settings.model_card:
        prompt = previews[0].prompt if previews else "..."
        shape = (chosen.frames or base.frames, chosen.height or base.height, chosen.width or base.width)
        shape = next((one.shape for one in previews if one.shape), shape)
        shown = previews[0].model if previews else base
        folder = family.on_disk(base) or found.folder
        usage = family.usage(
            shown, folder, "lora.safetensors", prompt, shape, chosen.image_latent_scale, [chosen.expert]
        )
        widget = [{"text": one.prompt or "-", "output": {"url": sample_name(n)}} for n, one in enumerate(previews)]
        trigger = read_info(workspace.dataset(chosen.dataset)).trigger_word
        card = model_card(
            found.title, base, card_facts(run, chosen, chosen.steps), usage, prompt, trigger, settings.license, widget
        )
        card = card.replace("# Run this in the folder of this file. Older", "# Older")
        card = card.replace('from_pretrained(".", ', f"from_pretrained({json.dumps(settings.repo_id)}, ")
        files[README] = anonymize.text(card).encode()
    about = {
        "base_model": base.id if base.embedded else anonymize.text(base.source),
        "base_revision": base.revision,
        "trained": trained,
        "steps": chosen.steps,
        "made_with": f"video-lora-workbench {__version__}",
        "training": anonymize.settings(chosen.model_dump(mode="json")),
    }
    files[CONFIG] = (json.dumps(about, indent=2, ensure_ascii=False) + "\n").encode()
    notes = [f"The other parts are those of {base.title}: the code in the card loads both."]
    if not license_of(base, settings.license):
        notes.append(
            "The base model's license is not known here: choose one. A repository without a license permits nothing."
        )
    if base.local:
        notes.append(f"Its base model, {base.title}, is not on the Hub: others need it to use this model.")
    message = f"{found.title} from Video LoRA Workbench"
    return UploadPlan("model", settings.repo_id, settings.private, message, files, tuple(notes))
