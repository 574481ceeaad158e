"""Models of transformers on this machine: found, downloaded once with their size said before, loaded, let go.

A model is one of a list of known ones at its pinned commit, a folder in transformers' layout, or, where a caller allows
it, any repository of the Hub as OWNER/NAME or OWNER/NAME@REVISION. Weights are read from safetensors only, and code
that comes with a model is never run.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from workbench import hub
from workbench.errors import ConfigError, ModelUnavailable, OutOfMemory
from workbench.jobs import processes
from workbench.jobs.devices import Device, pick_device
from workbench.jobs.torch_devices import free_memory
from workbench.workspace import named_paths, read_json

FILES = ("*.json", "*.safetensors", "*.jinja", "*.txt", "*.model")
HUB_ID = re.compile(r"[\w.-]+/[\w.-]+(@[\w./-]+)?")
GIGABYTE = 1e9
MEAN, SPREAD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet's colors, as most models learned
Picture = NDArray[np.uint8]
"""[H, W, 3], RGB."""


@dataclass(frozen=True)
class KnownModel:
    """One of the models that are offered by name.

    id: a repository of the Hub; revision: its pinned commit
    memory_gb: what it needs while it works, an estimate; download_gb: what is fetched once
    license: as its card names it
    """

    id: str
    title: str
    revision: str
    memory_gb: float
    download_gb: float
    license: str = ""

    @property
    def at_hand(self) -> bool:
        """Whether it was downloaded already. Asks no network."""
        from huggingface_hub import try_to_load_from_cache

        return isinstance(try_to_load_from_cache(self.id, "config.json", revision=self.revision), str)


def known_model(model: str, known: Iterable[KnownModel]) -> KnownModel | None:
    """Return the known model of that id."""
    return next((one for one in known if one.id == model), None)


def title_of(model: str, known: Iterable[KnownModel]) -> str:
    """Return what a model is called in a sentence."""
    one = known_model(model, known)
    return one.title if one else model.partition("@")[0] if _on_hub(model) else Path(model).name


def opening(model: str, known: Iterable[KnownModel]) -> str:
    """Say which model is opened, and how much of it is downloaded before."""
    one = known_model(model, known)
    size = f", downloading {one.download_gb:g} GB" if one and not one.at_hand else ""
    return f"{title_of(model, known)}{size}"


def check(model: str, known: Sequence[KnownModel], setting: str = "model", any_of_hub: bool = False) -> None:
    """Raise ConfigError for what is no model, without loading or asking anything."""
    if known_model(model, known) is None and not (any_of_hub and _on_hub(model)):
        _checked_folder(model, known, setting)


def fetch(model: str, known: Sequence[KnownModel], setting: str = "model", any_of_hub: bool = False) -> Path:
    """Return the folder with a model's files, downloaded once.

    Args:
        model: Id of a known one, a folder, or, with `any_of_hub`, OWNER/NAME or OWNER/NAME@REVISION.
        setting: That names it, for the sentence.

    Raises:
        ConfigError: There is no such model.
        ModelUnavailable: It cannot be downloaded.
    """
    check(model, known, setting, any_of_hub)
    one = known_model(model, known)
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
    """What would be downloaded, GB. Raises ConfigError, ModelUnavailable."""
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
            f"{setting} is {model!r}, neither known nor a folder with a config.json: choose one of {names}"
        )
    if not any(folder.glob("*.safetensors")):
        raise ConfigError(f"{setting} is {model}, a folder without .safetensors files: convert its weights")
    return folder


def load(
    folder: Path, device: Device, kind: str, processor: str = "", *, half: bool = False, install: str = ""
) -> tuple[Any, Any]:
    """Load a model, ready to answer, and its processor.

    Args:
        kind, processor: Names of transformers' classes; None is returned in place of a processor that is not named.
        half: Compute in bfloat16 on a GPU.
        install: How to get a package that the model turns out to need.

    Raises:
        ConfigError: transformers cannot make one of the folder.
        OutOfMemory: It does not fit into the GPU's memory.
    """
    local: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    try:
        with processes.loading(), fits(f"{folder.name} does not fit into the GPU's memory: choose a smaller model"):
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
    """Raise OutOfMemory with this sentence where the GPU's memory is too small for what is done inside."""
    import torch

    try:
        yield
    except torch.OutOfMemoryError as error:
        raise OutOfMemory(sentence) from error


class LocalModel:
    """A model that looks at frames. It is loaded when it is made; as a context it gives its memory back at the end.

    KIND, PROCESSOR: transformers' classes;  TYPE: what a model's config says it is; "" where the class asks for itself
    KNOWN: the models that are known to work, the usual one first
    HALF: whether it computes in bfloat16 on a GPU
    """

    KIND: ClassVar[str]
    PROCESSOR: ClassVar[str] = ""
    TYPE: ClassVar[str] = ""
    KNOWN: ClassVar[tuple[KnownModel, ...]]
    HALF: ClassVar[bool] = False

    def __init__(self, model: str = "", device: str = "auto") -> None:
        """Download it if need be, and load it.

        Raises ConfigError, ModelUnavailable, OutOfMemory.
        """
        self.device = pick_device(device)
        folder = fetch(model or self.KNOWN[0].id, self.KNOWN, any_of_hub=True)
        # Of another model's folder transformers would make one with random weights.
        if self.TYPE and (found := read_json(folder / "config.json").get("model_type")) != self.TYPE:
            raise ConfigError(f"model is {model}, a {found}, must be a {self.TYPE}: choose {self.KNOWN[0].id}")
        self.model, self.processor = load(folder, self.device, self.KIND, self.PROCESSOR, half=self.HALF)

    def pictures(self, frames: Iterable[Picture]) -> Iterator[Picture]:
        """Make a picture of each frame, of its size."""
        raise NotImplementedError

    def close(self) -> None:
        """Give back the memory."""
        self.model = self.processor = None
        free_memory()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
