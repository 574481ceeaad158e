"""LoRA files: which ones are there, whether a file is sound and fits the model. No torch.

A LoRA is named in settings as WHAT=SCALE, scale 1 when not given. WHAT is

    ring                            a run: its export;  runs/ring, runs/ring@250, loras/NAME: see lora_names
    /folder/file.safetensors        a file, or one that torch wrote (.pt, .bin, .ckpt)
    /folder/name                    a folder of diffusers or peft
    OWNER/NAME                      a repository of the Hub;  OWNER/NAME:FILE@REVISION says which file and commit of it
    https://huggingface.co/...      the same, as a browser shows it
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import unquote

from workbench.errors import ConfigError
from workbench.families.lora_files import (
    DIFFUSERS_FILE,
    PEFT_FILES,
    PEFT_NOTES,
    file_in,
    is_lora_file,
    is_of_torch,
)
from workbench.hub import HubLost
from workbench.workspace import SLUG, Workspace, lora_names, named_paths, safetensors_header
from workbench.workspace.safetensors_header import MOST_BYTES, Header

TENSOR_LIMIT = 20_000
HUB = re.compile(r"(?P<repo>[\w-][\w.-]*/[\w-][\w.-]*)(:(?P<file>[^@]+))?(@(?P<revision>[\w./-]+))?")
ADDRESS = re.compile(r"https?://(?P<host>[^/]+)(?P<path>/[^?#]*)?.*")
HUB_HOSTS = {"huggingface.co", "www.huggingface.co", "hf.co"}
HUB_PAGE = re.compile(
    r"/(?:models/)?(?P<repo>[\w-][\w.-]*/[\w-][\w.-]*)(/(?P<what>resolve|blob|raw|tree)/(?P<revision>[^/]+)(/(?P<file>.+))?)?/?"
)
# What other things that get renamed to .safetensors begin with.
IMPOSTORS = (
    (b"version https://git-lfs", "is a Git LFS pointer, not the weights: download the real file (git lfs pull)"),
    (b"<", "is a web page, not weights: the download needs a login or another address"),
    (b"PK\x03\x04", "is a pickle in a zip (a .pt or .bin file renamed), which may run code: get it as safetensors"),
    (b"\x80", "is a Python pickle renamed, which may run code: get it as safetensors"),
)


@dataclass(frozen=True)
class Lora:
    """One LoRA of a request. path: None for one of the Hub that is not downloaded yet."""

    name: str
    path: Path | None
    scale: float

    @property
    def file(self) -> Path:
        """Its file, which is here."""
        assert self.path is not None, f"{self.name} was not fetched"
        return self.path


# ---- naming: no torch -----------------------------------------------------------------------------------------------


def available_loras(workspace: Workspace) -> list[str]:
    """Names of the LoRAs of a workspace, newest first: runs by their own names, others as loras/NAME."""
    return [name.removeprefix(f"{lora_names.RUNS}/") for name in lora_names.names(workspace)]


def resolve(workspace: Workspace, texts: Sequence[str]) -> list[Lora]:
    """Find the files behind WHAT=SCALE texts and check that each is sound; what is on the Hub is not checked.

    Raises ConfigError.
    """
    found = []
    for text in texts:
        name, scale = split_scale(text)
        path = _file(workspace, name)
        if path is not None and not is_of_torch(path):  # those need torch, which is not here
            read_header(path)
        found.append(Lora(name, path, scale))
    return found


def fetched(loras: Sequence[Lora], report: Callable[[str], None]) -> list[Lora]:
    """The same with those of the Hub downloaded, once. Raises ConfigError, ModelUnavailable."""
    return [lora if lora.path is not None else replace(lora, path=_download(lora.name, report)) for lora in loras]


def _download(name: str, report: Callable[[str], None]) -> Path:
    from workbench.hub import client, explained

    match = HUB.fullmatch(name)
    assert match is not None, name
    repo, file, revision = match["repo"], match["file"], match["revision"]
    with explained(repo):
        if file is None:
            file = _only_file(repo, client().list_repo_files(repo, revision=revision))
        report(f"Downloading the LoRA {repo} ...")
        path = Path(client().hf_hub_download(repo, file, revision=revision))
        if path.name in PEFT_FILES:  # its alpha is in a file of its own
            with contextlib.suppress(FileNotFoundError), explained(repo):
                client().hf_hub_download(repo, file.replace(path.name, PEFT_NOTES), revision=revision)
        elif file == DIFFUSERS_FILE:  # as we push it; where the Hub cannot be asked, both were fetched before
            with contextlib.suppress(FileNotFoundError, HubLost), explained(repo):
                client().hf_hub_download(repo, lora_names.ALSO, revision=revision)
    if not is_of_torch(path):
        read_header(path)
    return path


def _only_file(repo: str, files: Sequence[str]) -> str:
    """The only LoRA of a repository, safetensors before files of torch. Raises ConfigError."""
    found = [file for file in files if file.lower().endswith(".safetensors")]
    known = [name for name in (DIFFUSERS_FILE, PEFT_FILES[0]) if name in found]
    if known or len(found) == 1:
        return known[0] if known else found[0]
    if not found and PEFT_FILES[1] in files:
        return PEFT_FILES[1]
    which = ", ".join(found[:10]) or "none"
    raise ConfigError.of(
        "loras", f"loras has {repo}, which holds {len(found)} .safetensors files: name one, as {repo}:FILE ({which})"
    )


def absolute(workspace: Workspace, texts: Sequence[str]) -> tuple[str, ...]:
    """The same texts with files as absolute paths, so that a process with another working folder finds them.

    Raises ConfigError.
    """
    kept = []
    for text in texts:
        name, scale = split_scale(text)
        path = _local(workspace, name)
        kept.append(text if path is None and not ADDRESS.fullmatch(text.strip()) else f"{path or name}={scale:g}")
    return tuple(kept)


def split_scale(text: str) -> tuple[str, float]:
    """ "ring=0.8" -> ("ring", 0.8); scale 1 when there is none. An address of the Hub becomes OWNER/NAME:FILE@REVISION.

    Raises ConfigError.
    """
    name, equals, tail = text.strip().rpartition("=")
    if not equals or is_lora_file(tail) or (ADDRESS.match(text.strip()) and not _is_number(tail)):
        name, tail = text.strip(), "1"
    try:
        scale = float(tail)
    except ValueError:
        scale = math.nan
    if not name or not math.isfinite(scale):
        raise ConfigError.of(
            "loras", f"loras has {text[:120]!r}: write a run's name or a .safetensors file, then =SCALE, as in ring=0.8"
        )
    return (_of_address(address) if (address := ADDRESS.fullmatch(name)) else name), scale


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _of_address(address: re.Match[str]) -> str:
    """OWNER/NAME:FILE@REVISION of a page or a file of the Hub. Raises ConfigError for other addresses."""
    shown = address[0][:200]
    if address["host"] not in HUB_HOSTS:
        raise ConfigError.of(
            "loras",
            f"loras has {shown}, and only addresses of huggingface.co are fetched: download the file with your browser "
            f"and give its path",
        )
    page = HUB_PAGE.fullmatch(address["path"] or "")
    if page is None or page["repo"].startswith(("datasets/", "spaces/", "collections/", "api/")):
        raise ConfigError.of(
            "loras",
            f"loras has {shown}, which is no repository or file of a model on the Hub: open the LoRA's file there and "
            f"give that address, or OWNER/NAME:FILE",
        )
    if page["file"] and not is_lora_file(page["file"]):
        raise ConfigError.of(
            "loras",
            f"loras has {shown}, which is no file of weights: open the LoRA's .safetensors file there and give that "
            f"address, or OWNER/NAME:FILE",
        )
    file = f":{unquote(page['file'])}" if page["file"] else ""
    revision = f"@{unquote(page['revision'])}" if page["revision"] not in (None, "main") else ""
    return f"{page['repo']}{file}{revision}"


def _file(workspace: Workspace, name: str) -> Path | None:
    """The file of a LoRA; None for one of the Hub. Raises ConfigError."""
    full = name if "/" in name else f"{lora_names.RUNS}/{name}"
    if lora_names.is_name(full) and (own := lora_names.path_of(workspace, full)).exists():
        return own
    path = _local(workspace, name)
    if path is not None and is_lora_file(name) and not path.is_dir():
        return path
    if path is not None and path.is_dir():
        try:
            return file_in(path)
        except ConfigError as error:
            raise ConfigError.of("loras", f"loras has {name[:120]!r}: {error}") from None
    if SLUG.fullmatch(name) and workspace.run(name).is_dir():
        raise ConfigError.of("loras", f"loras has {name!r}, a run that {lora_names.why_none(workspace, name)}")
    if HUB.fullmatch(name) and not lora_names.is_name(name):
        return None
    known = ", ".join(available_loras(workspace)[:10]) or "none yet"
    raise ConfigError.of(
        "loras",
        f"loras has {name[:120]!r}, which is no LoRA here, no .safetensors file and no OWNER/NAME of the Hub: choose "
        f"one of those here ({known})",
    )


def _local(workspace: Workspace, name: str) -> Path | None:
    """The file or folder that a name stands for by its path; None for other names. Raises ConfigError."""
    if name.lower().endswith(".gguf"):
        raise ConfigError.of(
            "loras", f"loras has {name[:120]!r}, quantized for sampling (GGUF): get it as .safetensors"
        )
    if is_lora_file(name):
        return None if ":" in name and HUB.fullmatch(name) else named_paths.resolve(name, "loras")
    if "\0" in name or not named_paths.names_file(name):
        return None
    known = lora_names.is_name(name) or (SLUG.fullmatch(name) and workspace.run(name).is_dir())
    return None if known else named_paths.resolve(name, "loras")


# ---- is the file sound? no torch ------------------------------------------------------------------------------------


def read_header(path: Path) -> Header:
    """Names and shapes in a safetensors file, without its weights. Raises ConfigError saying what is wrong with it."""
    if not path.is_file():
        raise _damaged(path, f"is not there ({path}): check the name")
    size = path.stat().st_size
    if size == 0:
        raise _damaged(path, "is an empty file: download or export it again")
    with path.open("rb") as file:
        start = file.read(64)
    for magic, reason in IMPOSTORS:
        # A safetensors file may begin with any byte (its header's length), but has a brace at byte 8.
        if start.startswith(magic) and start[8:9] != b"{":
            raise _damaged(path, reason)
    length = int.from_bytes(start[:8], "little")
    if size < 10 or start[8:9] != b"{":
        raise _damaged(path, "is no safetensors file: choose another")
    if length > MOST_BYTES:
        raise _damaged(path, f"claims a header of {length:,} bytes, at most {MOST_BYTES:,} are read: it is damaged")
    if length > size - 8:
        raise _damaged(path, "is cut short: download or copy it again")
    try:
        header = safetensors_header.read_header(path)
    except ValueError:
        raise _damaged(path, "has a damaged header: download or export it again") from None
    if not header.tensors:
        raise _damaged(path, "holds no tensors: export it again")
    if (count := len(header.tensors)) > TENSOR_LIMIT:
        raise _damaged(path, f"holds {count:,} tensors, a LoRA has at most {TENSOR_LIMIT:,}: choose another")
    if max(one.end for one in header.tensors.values()) != size:
        raise _damaged(path, "is cut short or has bytes that belong to nothing: download or copy it again")
    return header


def _damaged(path: Path, reason: str) -> ConfigError:
    return ConfigError.of("loras", f"the LoRA {path.name} {reason}")
