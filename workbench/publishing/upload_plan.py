"""The upload plan: the files of a push and their sizes, before anything is sent. No torch.

A LoRA is uploaded as weights that stock diffusers loads by the repository's name; a full fine-tune as its trained part,
which the code in the card loads into the base model's pipeline:

    pytorch_lora_weights.safetensors    the LoRA, with rank and alpha
    also.safetensors                    weights that were trained in full, in addition to the LoRA
    transformer/...                     for a full fine-tune: the trained part and its config (or transformer_2/)
    README.md                           the model card
    samples/0.mp4 ...                   the previews, without the records inside them
    first_frame.png                     for image-to-video models: the first frame of the first preview
    last_frame.png                      for LoRAs trained with given first+last: its last frame
    config.json                         the run's settings, without paths of this machine
    lora_check.py                       checks that a program loads all of the LoRA: families.lora_check
    comfyui/NAME.safetensors            the LoRA by ComfyUI's names, where the family has a workflow for it
    comfyui/workflow.json               that workflow, with the settings of the first preview
    clips/DATASET/*.mp4 metadata.jsonl  a LoRA's training clips, with `clips`

See `space` for the files of a Space.
"""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workbench import __version__
from workbench.clips import media
from workbench.clips.records import METADATA, clip_file, file_sha256, read_info
from workbench.display.quantities import byte_size, counted
from workbench.errors import ConfigError, DataError
from workbench.families import lora_check, model_files, self_test
from workbench.families.base import Family
from workbench.families.lora_files import (
    DIFFUSERS_KEY,
    DROPPED_KEY,
    EXPERT_KEY,
    REFERENCE_KEY,
    shortened,
    with_metadata,
)
from workbench.families.model import Model
from workbench.hub import Kind
from workbench.loras.library import LibraryLora
from workbench.publishing.card import LAST_PICTURE, PICTURE, example, readme_text, sample_name
from workbench.publishing.facts import (
    MOST_PREVIEWS,
    Facts,
    PublishedPreview,
    anonymous_settings,
    anonymous_text,
    check_links,
    gather,
    published_preview,
    training_clips,
)
from workbench.publishing.settings import LoraPush
from workbench.runs.checkpoints import PUBLISHED
from workbench.runs.model_card import card_facts, license_of, model_card
from workbench.runs.previews import all_previews
from workbench.runs.run import Run
from workbench.runs.settings import TrainSettings
from workbench.workspace import Workspace, read_object, slugify, writing
from workbench.workspace.lora_names import ALSO, is_name
from workbench.workspace.safetensors_header import read_header

README, CONFIG, CLIPS = "README.md", "config.json", "clips"
CHECKER, COMFYUI, WORKFLOW = "lora_check.py", "comfyui", "workflow.json"
WEIGHTS = "pytorch_lora_weights.safetensors"  # the name that diffusers expects
# The metadata of a LoRA file that is published. Other trainers' metadata may hold folders and captions.
NOTES = (
    "format",
    DIFFUSERS_KEY,
    EXPERT_KEY,
    DROPPED_KEY,
    REFERENCE_KEY,
    "base_model",
    "base_revision",
    "step",
    "trigger_word",
    "seed",
)


@dataclass(frozen=True)
class WeightsUpload:
    """A LoRA file with new metadata: `head`, then the tensors of the file from byte `begin`, then `tail`."""

    path: Path
    head: bytes
    begin: int
    tail: bytes = b""

    @classmethod
    def of(cls, path: Path, **more: str) -> WeightsUpload:
        """Keep only the metadata in NOTES, updated with `more`. Raises DataError if the file is damaged."""
        try:
            header = read_header(path)
            notes = {name: text for name, text in header.metadata.items() if name in NOTES}
            if DIFFUSERS_KEY in notes:
                notes[DIFFUSERS_KEY] = shortened(notes[DIFFUSERS_KEY])
            if lora_check.KEY in header.metadata:
                base_model = more.get("base_model", notes.get("base_model", ""))
                notes[lora_check.KEY] = self_test.anonymous(header.metadata[lora_check.KEY], base_model)
        except ValueError:
            raise DataError(f"{path.name} is damaged: export it again") from None
        with path.open("rb") as file:
            head = with_metadata(file.read(header.begin), {"format": "pt", **notes, **more})
        return cls(path, head, header.begin)

    @classmethod
    def for_comfyui(cls, path: Path, family: Family, **metadata: str) -> WeightsUpload | None:
        """Return a LoRA by ComfyUI's names, with a tensor of alpha per layer; None if it is not a plain LoRA.

        The matrices stay as they are, so neither torch nor their values are needed. Raises DataError if the file is
        damaged.
        """
        try:
            header = read_header(path)
            alpha_of = lora_check.alphas(header.metadata)
        except ValueError:
            raise DataError(f"{path.name} is damaged: export it again") from None
        entries, alphas = dict[str, Any](), dict[str, float]()
        for name, one in header.tensors.items():
            layer, _, end = name.removeprefix(f"{family.lora_prefix}.").rpartition(".lora_")
            own = family.layer_names.authors_name(layer)
            if own is None or end not in ("A.weight", "B.weight"):
                return None
            side = "down" if end.startswith("A") else "up"
            place = [one.start - header.begin, one.end - header.begin]
            entries[f"diffusion_model.{own}.lora_{side}.weight"] = {
                "dtype": one.dtype,
                "shape": one.shape,
                "data_offsets": place,
            }
            if side == "down":
                alpha = alpha_of(f"{family.lora_prefix}.{layer}")
                alphas[f"diffusion_model.{own}.alpha"] = float(one.shape[0]) if alpha is None else alpha
        end_of_data = max(entry["data_offsets"][1] for entry in entries.values())
        for index, name in enumerate(alphas):
            first = end_of_data + 4 * index
            entries[name] = {"dtype": "F32", "shape": [], "data_offsets": [first, first + 4]}
        text = json.dumps(entries).encode()
        notes = {name: header.metadata[name] for name in (EXPERT_KEY, DROPPED_KEY) if name in header.metadata}
        if lora_check.KEY in header.metadata:
            notes[lora_check.KEY] = self_test.anonymous(header.metadata[lora_check.KEY], metadata.get("base_model", ""))
        head = with_metadata(len(text).to_bytes(8, "little") + text, {"format": "pt", **notes, **metadata})
        return cls(path, head, header.begin, struct.pack(f"<{len(alphas)}f", *alphas.values()))

    def write(self, target: Path) -> None:
        """Write the file. Raises CannotWrite."""
        with writing(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("rb") as old, target.open("wb") as new:
                new.write(self.head)
                old.seek(self.begin)
                shutil.copyfileobj(old, new, 1 << 20)
                new.write(self.tail)

    @property
    def size(self) -> int:
        return len(self.head) + self.path.stat().st_size - self.begin + len(self.tail)


FileContent = Path | bytes | WeightsUpload


@dataclass(frozen=True)
class UploadPlan:
    """What to upload to a repository."""

    kind: Kind
    repo_id: str
    private: bool
    message: str
    files: Mapping[str, FileContent]  # name in the repository -> content
    notes: tuple[str, ...] = field(default=())  # what to know before the upload, in sentences
    # Name -> SHA-256 of files that must not have changed when they are uploaded
    unchanged: Mapping[str, str] = field(default_factory=dict)

    @property
    def sizes(self) -> dict[str, int]:
        """The bytes of each file."""
        return {name: _size(content) for name, content in self.files.items()}

    @property
    def readme(self) -> str:
        """The text of README.md; "" without one."""
        content = self.files.get(README, b"")
        return content.decode() if isinstance(content, bytes) else ""

    @property
    def sentence(self) -> str:
        """What is uploaded to where, for a person to confirm."""
        sizes, kind = self.sizes, {"model": "model repository", "dataset": "dataset", "space": "Space"}[self.kind]
        total = sum(sizes.values())
        visibility = "private" if self.private else "public: everyone can see it"
        files = f"{counted(len(sizes), 'file')}, {byte_size(total)}"
        return f"{files}, to the {kind} {self.repo_id} ({visibility})"

    def staged(self, folder: Path) -> dict[str, Path | bytes]:
        """Return the files in a form that can be sent; those with new metadata are written into `folder`.

        Raises DataError if a file of `unchanged` has changed, CannotWrite.
        """
        for name, sha256 in self.unchanged.items():
            content = self.files[name]
            if not isinstance(content, Path) or not content.is_file() or file_sha256(content) != sha256:
                raise DataError(f"{name} has changed since it was trained on: restore it, or turn clips off")
        found: dict[str, Path | bytes] = {}
        for name, content in self.files.items():
            if isinstance(content, WeightsUpload):
                content.write(folder / name)
                content = folder / name
            found[name] = content
        return found


def _size(content: FileContent) -> int:
    if isinstance(content, bytes):
        return len(content)
    return content.stat().st_size if isinstance(content, Path) else content.size


# ---- a LoRA ---------------------------------------------------------------------------------------------------------


def lora_upload(workspace: Workspace, lora: LibraryLora, settings: LoraPush) -> UploadPlan:
    """Plan the upload of a LoRA. Raises ConfigError, DataError."""
    facts = gather(workspace, lora)
    model, also = facts.model, lora.folder / ALSO
    trigger = {"trigger_word": lora.trigger} if lora.trigger else {}
    files: dict[str, FileContent] = {WEIGHTS: WeightsUpload.of(lora.path, base_model=_base_model(model), **trigger)}
    if also.is_file():
        files[ALSO] = WeightsUpload.of(also)
    files[CHECKER] = Path(lora_check.__file__)
    comfyui = _comfyui(facts, trigger)
    files |= comfyui
    if settings.model_card:
        in_comfyui = next((Path(name).name for name in comfyui), "")
        text = readme_text(facts, settings.repo_id, settings.license, ALSO if also.is_file() else "", in_comfyui)
        files[README] = text.encode()
    files |= _previews(facts.previews, model, facts.settings.conditioning_kinds if facts.settings else ())
    about = {"rank": lora.rank, "alpha": lora.alpha, "trigger_word": lora.trigger, "steps": lora.steps}
    files[CONFIG] = _config(model, about, facts.settings)
    unchanged: dict[str, str] = {}
    if settings.clips:  # in the Hub's VideoFolder layout
        lines = []
        for folder, clip in training_clips(facts):
            name = f"{folder.name}/{Path(clip.file_name).name}"
            files[f"{CLIPS}/{name}"], unchanged[f"{CLIPS}/{name}"] = clip_file(folder, clip.file_name), clip.sha256
            lines.append(json.dumps({"file_name": name, "text": clip.text}, ensure_ascii=False) + "\n")
        files[f"{CLIPS}/{METADATA}"] = "".join(lines).encode()
    notes = _license_notes(model, settings)
    if not facts.previews:
        notes.append("There are no previews to show: generate some first, because people choose by them.")
    if model.local:
        notes.append(f"Its base model, {model.title}, is not on the Hub: others need it to use this LoRA.")
    if settings.clips:
        notes.append("The training clips and their captions are uploaded, too.")
    if facts.settings and facts.settings.method == "full":
        notes.append("Only the LoRA is uploaded, not the fully trained transformer.")
    return _plan(lora.title, settings, files, notes, unchanged)


def _comfyui(facts: Facts, labels: Mapping[str, str]) -> dict[str, FileContent]:
    """Return the LoRA for ComfyUI and a workflow that samples with it; {} where we know no workflow."""
    name, model = f"{slugify(facts.lora.title)}.safetensors", facts.generated_with
    first = facts.previews[0] if facts.previews else None
    made = facts.family.comfyui_workflow(
        model,
        name,
        first.prompt if first else example(facts.lora),
        facts.shape,
        first.seed if first else 0,
        facts.experts,
        PICTURE,
    )
    if made is None or (facts.lora.folder / ALSO).is_file():  # weights beside a LoRA are not read there
        return {}
    weights = WeightsUpload.for_comfyui(facts.lora.path, facts.family, base_model=_base_model(facts.model), **labels)
    if weights is None:
        return {}
    text = json.dumps(made, indent=2, ensure_ascii=False) + "\n"
    return {f"{COMFYUI}/{name}": weights, f"{COMFYUI}/{WORKFLOW}": text.encode()}


# ---- a full fine-tune -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FullModel:
    """A finished run that trained all weights. path: its largest file, whose hash identifies what was published."""

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


def find_full_model(workspace: Workspace, name: str) -> FullModel | None:
    """Return the full fine-tune that a name such as runs/NAME stands for, or None."""
    if not is_name(name) or not name.startswith("runs/") or "@" in name:
        return None
    folder = workspace.run(name.removeprefix("runs/"))
    if not (folder / model_files.INDEX).is_file():
        return None
    weights = list((folder / model_files.trained_part(folder)).glob("*.safetensors"))
    return FullModel(Run(folder), max(weights, key=lambda path: path.stat().st_size)) if weights else None


def full_model_upload(workspace: Workspace, found: FullModel, settings: LoraPush) -> UploadPlan:
    """Plan the upload of a full fine-tune. Raises ConfigError, DataError."""
    if settings.clips:
        raise ConfigError.about("clips is on, which only works for a LoRA: turn it off")
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
        raise DataError(f"{found.title} has lost its folder {trained}: there is nothing to publish")
    files |= _previews(previews, base, chosen.conditioning_kinds)
    if settings.model_card:
        prompt = previews[0].prompt if previews else "..."
        shape = (chosen.frames or base.frames, chosen.height or base.height, chosen.width or base.width)
        shape = next((one.shape for one in previews if one.shape), shape)
        usage = family.usage(
            previews[0].model if previews else base,
            family.on_disk(base) or found.folder,
            "",
            prompt,
            shape,
            chosen.image_latent_scale,
            [chosen.expert],
            settings.repo_id,
            kinds=chosen.conditioning_kinds,
        )
        widget = [{"text": one.prompt or "-", "output": {"url": sample_name(n)}} for n, one in enumerate(previews)]
        card = model_card(
            found.title,
            base,
            card_facts(run, chosen, chosen.steps),
            usage,
            widget or [{"text": prompt}],
            read_info(workspace.dataset(chosen.dataset)).trigger_word,
            settings.license,
            settings.repo_id,
        )
        files[README] = anonymous_text(card).encode()
    files[CONFIG] = _config(base, {"trained": trained, "steps": chosen.steps}, chosen)
    notes = [f"The other parts come from {base.title}: the code in the card loads both."]
    notes += _license_notes(base, settings)
    if base.local:
        notes.append(f"Its base model, {base.title}, is not on the Hub: others need it to use this model.")
    return _plan(found.title, settings, files, notes)


# ---- parts of both --------------------------------------------------------------------------------------------------


def _base_model(model: Model) -> str:
    return model.id if model.embedded else anonymous_text(model.source)


def _previews(previews: Sequence[PublishedPreview], model: Model, told: Sequence[str] = ()) -> dict[str, FileContent]:
    """Return the videos without the records inside them, and the pictures that the first preview was given."""
    files: dict[str, FileContent] = {
        sample_name(index): media.without_comment(preview.video) for index, preview in enumerate(previews)
    }
    if previews and model.task == "image-to-video":
        files[PICTURE] = media.first_frame_png(previews[0].video)
        if "first+last" in told:
            files[LAST_PICTURE] = media.last_frame_png(previews[0].video)
    return files


def _config(model: Model, about: Mapping[str, Any], settings: TrainSettings | None) -> bytes:
    """Return config.json: what it is, and the settings of its run."""
    values = {
        "base_model": _base_model(model),
        "base_revision": model.revision,
        **about,
        "made_with": f"video-lora-workbench {__version__}",
    }
    if settings:
        values["training"] = anonymous_settings(settings.model_dump(mode="json"))
    return (json.dumps(values, indent=2, ensure_ascii=False) + "\n").encode()


def _license_notes(model: Model, settings: LoraPush) -> list[str]:
    if license_of(model, settings.license):
        return []
    return ["The base model's license is not known: choose one. A repository without a license permits nothing."]


def _plan(
    title: str,
    settings: LoraPush,
    files: Mapping[str, FileContent],
    notes: Sequence[str],
    unchanged: Mapping[str, str] | None = None,
) -> UploadPlan:
    message = f"{title} from Video LoRA Workbench"
    return UploadPlan("model", settings.repo_id, settings.private, message, files, tuple(notes), unchanged or {})
