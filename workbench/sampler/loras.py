"""LoRA files: find them by name, fetch them from the Hub, check their headers. No torch.

Settings name a LoRA as WHAT=SCALE[BLOCKS]. The scale defaults to 1. BLOCKS are factors of it for single transformer
blocks, ranges of them, or `rest`, the layers outside the main blocks; blocks count from 0, as in the training setting
`blocks`, and those that are not named keep the scale. WHAT is

    ring                            the export of a run; also runs/ring, runs/ring@250, loras/NAME (see lora_names)
    /folder/file.safetensors        a file; also files written by torch (.pt, .bin, .ckpt)
    /folder/name                    a folder in the layout of diffusers or peft
    OWNER/NAME                      a repository on the Hub; OWNER/NAME:FILE@REVISION picks a file and a commit
    https://huggingface.co/...      the same as a URL
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from workbench.errors import ConfigError
from workbench.families.lora_files import (
    DIFFUSERS_FILE,
    NOTES_BESIDE,
    PEFT_FILES,
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
# First bytes of other files that people rename to .safetensors.
IMPOSTORS = (
    (b"version https://git-lfs", "is a Git LFS pointer, not the weights: download the real file (git lfs pull)"),
    (b"<", "is a web page, not weights: the download needs a login or another URL"),
    (b"PK\x03\x04", "is a renamed .pt or .bin file (a zipped pickle), which may run code: get it as safetensors"),
    (b"\x80", "is a renamed Python pickle, which may run code: get it as safetensors"),
)


# ---- strengths of single blocks: ring=0.8[0-9:0.5, 12:0, rest:1]

REST = "rest"
PART = re.compile(rf"(?:(\d{{1,4}})(?:\s*-\s*(\d{{1,4}}))?|{REST})\s*:\s*(\S+)")
GRAMMAR = "write ranges of blocks with factors, as in ring=0.8[0-9:0.5, 12:0]"


@dataclass(frozen=True)
class BlockScales:
    """Factors of a LoRA's scale by (first block, last block), in order; `rest` for the layers outside the blocks."""

    ranges: tuple[tuple[int, int, float], ...] = ()
    rest: float = 1.0

    def __bool__(self) -> bool:
        return bool(self.ranges) or self.rest != 1

    def __str__(self) -> str:
        parts = [f"{first if first == last else f'{first}-{last}'}:{factor:g}" for first, last, factor in self.ranges]
        parts += [f"{REST}:{self.rest:g}"] if self.rest != 1 else []
        return f"[{','.join(parts)}]" if parts else ""

    def factor(self, block: int | None) -> float:
        """Return the factor of a block, or with None of the layers outside the blocks."""
        if block is None:
            return self.rest
        return next((factor for first, last, factor in self.ranges if first <= block <= last), 1.0)

    def unused(self, blocks: Iterable[int | None]) -> str:
        """Say which part changes none of a LoRA's blocks, as the end of a sentence that names it; "" if all do.

        blocks: of the LoRA's layers, None for layers outside the blocks
        """
        found = set(blocks)
        numbers = sorted(one for one in found if one is not None)
        has = f"its blocks are {_in_words(numbers)}" if numbers else "it has no layers in blocks"
        for first, last, _ in self.ranges:
            if not any(first <= number <= last for number in numbers):
                name = str(first) if first == last else f"{first}-{last}"
                return f"{name}, but {has}: name some of these"
        if self.rest != 1 and None not in found:
            return f"{REST}, but the LoRA has no layers outside the blocks: leave it out"
        return ""


def parse_blocks(text: str) -> BlockScales:
    """Parse what stands between the brackets. Raises ValueError, whose text continues a sentence on it."""
    ranges, rest = list[tuple[int, int, float]](), 1.0
    for part in filter(None, (part.strip() for part in text.split(","))):
        match = PART.fullmatch(part)
        if match is None or not math.isfinite(factor := _number(match[3])):
            raise ValueError(f"{part[:40]!r}: {GRAMMAR}")
        if match[1] is None:
            rest = factor
            continue
        first, last = int(match[1]), int(match[2] or match[1])
        if first > last:
            raise ValueError(f"{part[:40]!r}, a range that ends before it begins: {GRAMMAR}")
        if any(first <= other[1] and other[0] <= last for other in ranges):
            raise ValueError(f"{part[:40]!r}, which names a block twice: give each block one factor")
        ranges.append((first, last, factor))
    return BlockScales(tuple(sorted(ranges)), rest)


def _in_words(numbers: list[int]) -> str:
    """Return sorted numbers as ranges: 0 to 5, 8, 10 to 12."""
    runs = list[list[int]]()
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs)


# ---- from name to file


@dataclass(frozen=True)
class Lora:
    """One LoRA of a request. path: None for a LoRA on the Hub that is not downloaded yet"""

    name: str
    path: Path | None
    scale: float
    blocks: BlockScales = BlockScales()

    @property
    def file(self) -> Path:
        """The file of a LoRA that is on disk."""
        assert self.path is not None, f"{self.name} was not fetched"
        return self.path


def available_loras(workspace: Workspace) -> list[str]:
    """List the LoRAs of a workspace, newest first: runs by their own names, others as loras/NAME."""
    return [name.removeprefix(f"{lora_names.RUNS}/") for name in lora_names.names(workspace)]


def resolve(workspace: Workspace, texts: Sequence[str]) -> list[Lora]:
    """Find the files of LoRAs given as WHAT=SCALE and check them. LoRAs on the Hub are not checked.

    Raises ConfigError.
    """
    found = []
    for text in texts:
        name, scale, blocks = split_lora(text)
        path = _file(workspace, name)
        if path is not None and not is_of_torch(path):  # reading torch's files would need torch
            read_header(path)
        found.append(Lora(name, path, scale, blocks))
    return found


def checked_file(workspace: Workspace, text: str) -> Path:
    """Return the file that a LoRA's name or path stands for, whatever is in it. Raises ConfigError."""
    path = _file(workspace, text.strip())
    if path is None or not path.is_file():
        raise _refusal(f"{text[:120]!r}, which is not a file on this machine: download it first")
    if is_of_torch(path):
        raise _refusal(f"{path.name}, a file written by torch, which has no test: import it, and check the import")
    return path


def fetched(loras: Sequence[Lora], report: Callable[[str], None]) -> list[Lora]:
    """Download the LoRAs that are on the Hub, and return all with paths. Raises ConfigError, ModelUnavailable."""
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
        if path.name in NOTES_BESIDE:  # alpha is in a separate file, or may be: offline, that one is not cached then
            lost = () if path.name in PEFT_FILES else (HubLost,)
            with contextlib.suppress(FileNotFoundError, *lost), explained(repo):
                client().hf_hub_download(repo, file.replace(path.name, NOTES_BESIDE[path.name]), revision=revision)
        elif file == DIFFUSERS_FILE:  # we may have pushed it, with full weights beside; offline, both are cached
            with contextlib.suppress(FileNotFoundError, HubLost), explained(repo):
                client().hf_hub_download(repo, lora_names.ALSO, revision=revision)
    if not is_of_torch(path):
        read_header(path)
    return path


def _only_file(repo: str, files: Sequence[str]) -> str:
    """Return the only LoRA file of a repository, preferring safetensors. Raises ConfigError if there are several."""
    found = [file for file in files if file.lower().endswith(".safetensors")]
    known = [name for name in (DIFFUSERS_FILE, PEFT_FILES[0]) if name in found]
    if known or len(found) == 1:
        return known[0] if known else found[0]
    if not found and PEFT_FILES[1] in files:
        return PEFT_FILES[1]
    which = ", ".join(found[:10]) or "none"
    raise _refusal(f"{repo}, which has {len(found)} .safetensors files: name one, as {repo}:FILE ({which})")


def absolute(workspace: Workspace, texts: Sequence[str]) -> tuple[str, ...]:
    """Make the files' paths absolute, for processes with another working directory. Raises ConfigError."""
    kept = []
    for text in texts:
        lora = split_lora(text)
        path = _local(workspace, lora.name)
        asis = path is None and not ADDRESS.fullmatch(text.strip())
        kept.append(text if asis else str(lora._replace(name=str(path or lora.name))))
    return tuple(kept)


class NamedLora(NamedTuple):
    """A LoRA as settings name it."""

    name: str
    scale: float
    blocks: BlockScales = BlockScales()

    def __str__(self) -> str:
        return f"{self.name}={self.scale:g}{self.blocks}"


BLOCKS = re.compile(r"(?P<lora>.*\S)\s*\[(?P<blocks>[^\[\]]*:[^\[\]]*)\]\s*")


def split_lora(text: str) -> NamedLora:
    """Split "ring=0.8[0-9:0.5]" into name, scale (1 by default) and factors of blocks. Raises ConfigError."""
    if (match := BLOCKS.fullmatch(text)) is None:
        return NamedLora(*split_scale(text))
    try:
        return NamedLora(*split_scale(match["lora"]), parse_blocks(match["blocks"]))
    except ValueError as error:
        raise _refusal(f"{text[:120]!r} with {error}") from None


def split_scale(text: str) -> tuple[str, float]:
    """Split "ring=0.8" into ("ring", 0.8); the scale defaults to 1. A Hub URL becomes OWNER/NAME:FILE@REVISION.

    Factors of blocks are left out (`split_lora` keeps them). Raises ConfigError.
    """
    if (match := BLOCKS.fullmatch(text)) is not None:
        text = match["lora"]
    name, equals, tail = text.strip().rpartition("=")
    if not equals or is_lora_file(tail) or (ADDRESS.match(text.strip()) and math.isnan(_number(tail))):
        name, tail = text.strip(), "1"
    scale = _number(tail)
    if not name or not math.isfinite(scale):
        raise _refusal(f"{text[:120]!r}: write a run's name or a .safetensors file, then =SCALE, as in ring=0.8")
    return (_of_address(address) if (address := ADDRESS.fullmatch(name)) else name), scale


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _of_address(address: re.Match[str]) -> str:
    """Convert the URL of a repository or file on the Hub to OWNER/NAME:FILE@REVISION. Raises ConfigError."""
    shown = address[0][:200]
    if address["host"] not in HUB_HOSTS:
        remedy = "download the file with your browser and give its path"
        raise _refusal(f"{shown}, but only URLs of huggingface.co are downloaded: {remedy}")
    page = HUB_PAGE.fullmatch(address["path"] or "")
    if page is None or page["repo"].startswith(("datasets/", "spaces/", "collections/", "api/")):
        remedy = "open the LoRA's file there and give that URL, or OWNER/NAME:FILE"
        raise _refusal(f"{shown}, which is not a model's repository or file on the Hub: {remedy}")
    if page["file"] and not is_lora_file(page["file"]):
        remedy = "open the LoRA's .safetensors file there and give that URL, or OWNER/NAME:FILE"
        raise _refusal(f"{shown}, which is not a weight file: {remedy}")
    file = f":{unquote(page['file'])}" if page["file"] else ""
    revision = f"@{unquote(page['revision'])}" if page["revision"] not in (None, "main") else ""
    return f"{page['repo']}{file}{revision}"


def _file(workspace: Workspace, name: str) -> Path | None:
    """Return the file of a LoRA, or None for one on the Hub. Raises ConfigError."""
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
            raise _refusal(f"{name[:120]!r}: {error}") from None
    if SLUG.fullmatch(name) and workspace.run(name).is_dir():
        raise _refusal(f"{name!r}, a run that {lora_names.why_none(workspace, name)}")
    if HUB.fullmatch(name) and not lora_names.is_name(name):
        return None
    known = ", ".join(available_loras(workspace)[:10]) or "none yet"
    raise _refusal(
        f"{name[:120]!r}, which is not a LoRA of this workspace, a .safetensors file, or OWNER/NAME on the Hub: choose "
        f"a LoRA of this workspace ({known})"
    )


def _local(workspace: Workspace, name: str) -> Path | None:
    """Return the file or folder if a name is a path, else None. Raises ConfigError."""
    if name.lower().endswith(".gguf"):
        raise _refusal(f"{name[:120]!r}, which is quantized for sampling (GGUF): get it as .safetensors")
    if is_lora_file(name):
        return None if ":" in name and HUB.fullmatch(name) else named_paths.resolve(name, "loras")
    if "\0" in name or not named_paths.names_file(name):
        return None
    known = lora_names.is_name(name) or (SLUG.fullmatch(name) and workspace.run(name).is_dir())
    return None if known else named_paths.resolve(name, "loras")


def _refusal(reason: str) -> ConfigError:
    return ConfigError.of("loras", f"loras has {reason}")


# ---- checking a file


def read_header(path: Path) -> Header:
    """Read a safetensors file's header, without the weights. Raises ConfigError if anything is wrong with the file."""
    if not path.is_file():
        raise _damaged(path, f"does not exist ({path}): check the name")
    size = path.stat().st_size
    if size == 0:
        raise _damaged(path, "is an empty file: download or export it again")
    with path.open("rb") as file:
        start = file.read(64)
    for magic, reason in IMPOSTORS:
        # A safetensors file may start with any bytes (the header's length), but byte 8 is a brace.
        if start.startswith(magic) and start[8:9] != b"{":
            raise _damaged(path, reason)
    length = int.from_bytes(start[:8], "little")
    if size < 10 or start[8:9] != b"{":
        raise _damaged(path, "is not a safetensors file: choose another")
    if length > MOST_BYTES:
        raise _damaged(path, f"claims a header of {length:,} bytes, at most {MOST_BYTES:,} are read: it is damaged")
    if length > size - 8:
        raise _damaged(path, "is cut short: download or copy it again")
    try:
        header = safetensors_header.read_header(path)
    except ValueError:
        raise _damaged(path, "has a damaged header: download or export it again") from None
    if not header.tensors:
        raise _damaged(path, "has no tensors: export it again")
    if (count := len(header.tensors)) > TENSOR_LIMIT:
        raise _damaged(path, f"has {count:,} tensors, a LoRA has at most {TENSOR_LIMIT:,}: choose another")
    if max(one.end for one in header.tensors.values()) != size:
        raise _damaged(path, "is cut short or has extra bytes: download or copy it again")
    return header


def _damaged(path: Path, reason: str) -> ConfigError:
    return ConfigError.of("loras", f"the LoRA {path.name} {reason}")
