"""Find, download, load and release transformers models.

A model is a known one at its pinned commit, a folder in transformers format, or, where the caller allows it, any Hub
repository as OWNER/NAME or OWNER/NAME@REVISION. Weights are read from safetensors only, and a model's own code is never
run.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias

from workbench import hub
from workbench.errors import ConfigError, ModelUnavailable, OutOfMemory
from workbench.jobs import processes
from workbench.jobs.devices import Device, pick_device
from workbench.jobs.torch_devices import free_memory
from workbench.workspace import named_paths, read_json

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FILES = ("*.json", "*.safetensors", "*.jinja", "*.txt", "*.model")
HUB_ID = re.compile(r"[\w.-]+/[\w.-]+(@[\w./-]+)?")
GIGABYTE = 1e9
MEAN, SPREAD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # ImageNet mean and standard deviation
Picture: TypeAlias = "NDArray[np.uint8]"
"""[H, W, 3], RGB."""


@dataclass(frozen=True)
class KnownModel:
    """A model offered by name: a Hub repository (`id`) at a pinned commit, with estimated sizes."""

    id: str
    title: str
    revision: str
    memory_gb: float
    download_gb: float
    license: str = ""

    @property
    def at_hand(self) -> bool:
        """Whether it is already downloaded. Does not use the network."""
        from huggingface_hub import try_to_load_from_cache

        return isinstance(try_to_load_from_cache(self.id, "config.json", revision=self.revision), str)


def listed(model: str, known: Iterable[KnownModel]) -> KnownModel | None:
    """Return the known model with this id."""
    return next((one for one in known if one.id == model), None)


def title_of(model: str, known: Iterable[KnownModel]) -> str:
    """Return a model's display name."""
    if one := listed(model, known):
        return one.title
    return model.partition("@")[0] if _on_hub(model) else Path(model).name


def opening(model: str, known: Iterable[KnownModel]) -> str:
    """Describe the model about to load and the size of its download, if any: "SAM 2.1 Tiny, downloading 0.16 GB"."""
    one = listed(model, known)
    size = f", downloading {one.download_gb:g} GB" if one and not one.at_hand else ""
    return f"{title_of(model, known)}{size}"


def check(model: str, known: Sequence[KnownModel], setting: str = "model", any_of_hub: bool = False) -> None:
    """Raise ConfigError if this is not a model, without loading it or using the network."""
    if listed(model, known) is None and not (any_of_hub and _on_hub(model)):
        _checked_folder(model, known, setting)


def fetch(model: str, known: Sequence[KnownModel], setting: str = "model", any_of_hub: bool = False) -> Path:
    """Return the folder with a model's files, downloading them first if needed. Raises ConfigError, ModelUnavailable.

    model: the id of a known model, a folder, or, with `any_of_hub`, OWNER/NAME or OWNER/NAME@REVISION.
    setting: the setting to name in error messages.
    """
    one = listed(model, known)
    if one is None and not (any_of_hub and _on_hub(model)):
        return _checked_folder(model, known, setting)
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    repo, _, revision = (one.id, "", one.revision) if one else model.partition("@")
    wanted: dict[str, Any] = {"repo_id": repo, "revision": revision or None, "allow_patterns": list(FILES)}
    with contextlib.suppress(LocalEntryNotFoundError):
        return Path(snapshot_download(**wanted, local_files_only=True))
    size = one.download_gb if one else _size(repo, revision)
    title = one.title if one else repo
    sys.stdout.write(f"Downloading {title}, about {round(size, 2):g} GB, once ...\n")  # the job's log
    sys.stdout.flush()
    try:
        return Path(snapshot_download(**wanted))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        reason = str(error).split("\n")[0][:200]
        sentence = f"{repo} cannot be downloaded ({reason}): check the network and try again"
        raise ModelUnavailable(f"{sentence}, or set {setting} to a folder with it") from error


def _on_hub(model: str) -> bool:
    return HUB_ID.fullmatch(model) is not None and not named_paths.names_file(model)


def _size(repo: str, revision: str) -> float:
    """Return the size of the download in GB. Raises ConfigError, ModelUnavailable."""
    with hub.explained(repo):
        info = hub.client().model_info(repo, revision=revision or None, files_metadata=True)
    files = [file for file in info.siblings or [] if any(fnmatch(file.rfilename, one) for one in FILES)]
    if not any(file.rfilename.endswith(".safetensors") for file in files):
        raise ConfigError(f"{repo} has no .safetensors files: choose another model, or convert its weights")
    return sum(file.size or 0 for file in files) / GIGABYTE


def _checked_folder(model: str, known: Sequence[KnownModel], setting: str) -> Path:
    folder = named_paths.resolve(model, setting)
    if not (folder / "config.json").is_file():
        names = ", ".join(one.id for one in known)
        raise ConfigError(
            f"{setting} is {model!r}, neither a known model nor a folder with a config.json: choose one of {names}"
        )
    if not any(folder.glob("*.safetensors")):
        raise ConfigError(f"{setting} is {model}, a folder without .safetensors files: convert its weights")
    return folder


def load(
    folder: Path, device: Device, kind: str, processor: str = "", *, half: bool = False, install: str = ""
) -> tuple[Any, Any]:
    """Load a model for inference, and its processor. Raises ConfigError if transformers cannot, OutOfMemory.

    kind, processor: names of classes in transformers; without the latter, None is returned for it.
    half: use bfloat16 on a GPU.
    install: how to install a package that the model turns out to need, for the error message.
    """
    local: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    try:
        with processes.loading(), fits(f"{folder.name} does not fit in GPU memory: choose a smaller model"):
            import torch
            import transformers

            dtype = torch.bfloat16 if half and device.is_gpu else torch.float32
            made = getattr(transformers, processor).from_pretrained(folder, **local) if processor else None
            model = getattr(transformers, kind).from_pretrained(folder, dtype=dtype, use_safetensors=True, **local)
            return model.to(device.torch_name).eval().requires_grad_(False), made
    except ImportError as error:  # such as num2words, for SmolVLM
        reason = str(error).strip().split("\n")[0]
        how = f": {install}" if install else ""
        raise ConfigError(f"{folder.name} needs a package that is not installed ({reason}){how}") from error
    except (ValueError, OSError) as error:
        reason = str(error).strip().split("\n")[0][:200]
        raise ConfigError(f"model is {folder}, which transformers cannot load ({reason}): choose another") from error


@contextlib.contextmanager
def fits(sentence: str) -> Iterator[None]:
    """Turn torch's out-of-memory error into OutOfMemory with this sentence."""
    import torch

    try:
        yield
    except torch.OutOfMemoryError as error:
        raise OutOfMemory(sentence) from error


class LocalModel:
    """A vision model, loaded on construction; as a context manager it frees its memory on exit."""

    KIND: ClassVar[str]  # name of a transformers class
    PROCESSOR: ClassVar[str] = ""  # likewise
    TYPE: ClassVar[str] = ""  # the `model_type` its config must have, or "" if the class checks that itself
    KNOWN: ClassVar[tuple[KnownModel, ...]]  # models known to work, the default first
    HALF: ClassVar[bool] = False  # whether to use bfloat16 on a GPU

    def __init__(self, model: str = "", device: str = "auto") -> None:
        """Load the model, downloading it if needed. Raises ConfigError, ModelUnavailable, OutOfMemory."""
        self.device = pick_device(device)
        folder = fetch(model or self.KNOWN[0].id, self.KNOWN, any_of_hub=True)
        # From another kind of model, transformers would silently build one with random weights.
        if self.TYPE and (found := read_json(folder / "config.json").get("model_type")) != self.TYPE:
            raise ConfigError(f"model is {model}, a {found}, must be a {self.TYPE}: choose {self.KNOWN[0].id}")
        self.model, self.processor = load(folder, self.device, self.KIND, self.PROCESSOR, half=self.HALF)

    def close(self) -> None:
        """Free the model's memory."""
        self.model = self.processor = None
        free_memory()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
