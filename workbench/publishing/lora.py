"""What a push of a LoRA sends: weights that stock diffusers loads by the repository's name, card, previews, settings.

    pytorch_lora_weights.safetensors    the LoRA, with rank and alpha;  also.safetensors beside it, if there is
    README.md                           the model card
    samples/0.mp4 ...                   the previews, without the records inside them
    first_frame.png                     of an image-to-video model: what the first preview begins with
    config.json                         the run's settings, without paths of this machine
    clips/DATASET/*.mp4 metadata.jsonl  the training clips, with `clips`

Not covered: sending it (push).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from workbench import __version__
from workbench.clips import media
from workbench.clips.records import METADATA, Clip, clip_file
from workbench.loras.library import LibraryLora
from workbench.publishing import anonymize
from workbench.publishing.card import readme_text, sample_name
from workbench.publishing.facts import Facts, gather, training_clips
from workbench.publishing.settings import LoraPush
from workbench.publishing.upload_plan import README, FileContent, UploadPlan, WeightsUpload
from workbench.publishing.usage import PICTURE
from workbench.runs.model_card import license_of
from workbench.workspace import Workspace
from workbench.workspace.lora_names import ALSO

WEIGHTS = "pytorch_lora_weights.safetensors"  # the name that diffusers expects
CONFIG, CLIPS = "config.json", "clips"


def plan_upload(workspace: Workspace, lora: LibraryLora, settings: LoraPush) -> UploadPlan:
    """Everything that is uploaded to `settings.repo_id`. Raises ConfigError, DataError."""
    facts = gather(workspace, lora)
    also = lora.folder / ALSO
    trigger = {"trigger_word": facts.lora.trigger} if facts.lora.trigger else {}
    weights = WeightsUpload.of(facts.lora.path, base_model=_base_model(facts), **trigger)
    files: dict[str, FileContent] = {WEIGHTS: weights}
    if also.is_file():
        files[ALSO] = WeightsUpload.of(also)
    if settings.model_card:
        text = readme_text(facts, settings.repo_id, settings.license, ALSO if also.is_file() else "")
        files[README] = text.encode()
    for index, preview in enumerate(facts.previews):
        files[sample_name(index)] = media.without_comment(preview.video)
    if facts.previews and facts.model.task == "image-to-video":
        files[PICTURE] = media.first_frame_png(facts.previews[0].video)
    files[CONFIG] = config(facts)
    clips = training_clips(facts) if settings.clips else []
    if clips:
        files |= _clips(clips)
    message, notes = f"{lora.title} from Video LoRA Workbench", _notes(facts, settings)
    unchanged = {_clip_name(folder, clip): clip.sha256 for folder, clip in clips}
    return UploadPlan("model", settings.repo_id, settings.private, message, files, notes, unchanged)


def _base_model(facts: Facts) -> str:
    return facts.model.id if facts.model.embedded else anonymize.text(facts.model.source)


def config(facts: Facts) -> bytes:
    """config.json: what it is, and the settings of its run."""
    lora = facts.lora
    about: dict[str, Any] = {
        "base_model": _base_model(facts),
        "base_revision": facts.model.revision,
        "rank": lora.rank,
        "alpha": lora.alpha,
        "trigger_word": lora.trigger,
        "steps": lora.steps,
        "made_with": f"video-lora-workbench {__version__}",
    }
    if facts.settings:
        about["training"] = anonymize.settings(facts.settings.model_dump(mode="json"))
    return (json.dumps(about, indent=2, ensure_ascii=False) + "\n").encode()


def _clips(found: list[tuple[Path, Clip]]) -> dict[str, FileContent]:
    """The training clips in the Hub's VideoFolder layout."""
    files: dict[str, FileContent] = {}
    lines = []
    for folder, clip in found:
        name = _clip_name(folder, clip)
        files[name] = clip_file(folder, clip.file_name)
        line = {"file_name": name.removeprefix(f"{CLIPS}/"), "text": clip.text}
        lines.append(json.dumps(line, ensure_ascii=False))
    return {**files, f"{CLIPS}/{METADATA}": ("\n".join(lines) + "\n").encode()}


def _clip_name(folder: Path, clip: Clip) -> str:
    """What a training clip is called in the repository."""
    return f"{CLIPS}/{folder.name}/{Path(clip.file_name).name}"


def _notes(facts: Facts, settings: LoraPush) -> tuple[str, ...]:
    """What to know before the upload."""
    found = []
    if not license_of(facts.model, settings.license):
        found.append(
            "The base model's license is not known here: choose one: a repository without a license permits nothing."
        )
    if not facts.previews:
        found.append("There are no previews to show: generate some first, people choose by them.")
    if facts.model.local:
        found.append(f"Its base model, {facts.model.title}, is not on the Hub: others need it to use this LoRA.")
    if settings.clips:
        found.append("The training clips and their captions are uploaded, too.")
    if facts.settings and facts.settings.method == "full":
        found.append("Only the LoRA is uploaded; a fully trained transformer is not.")
    return tuple(found)
