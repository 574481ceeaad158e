"""A model's files in diffusers' layout: download them from the Hub, find them offline, read configs and sizes.

Only configs, tokenizers and safetensors weights are downloaded, never code or pickles. A variant is in files such as
model.fp16.safetensors, or in folders of its own such as transformer_full. It gets a folder of links in which its
weights have their plain names, so that any reader of a model folder reads the variant.

Built-in models may share parts, so that each is shipped once: `shared_parts.json` says which. The readers here follow
it. For stock diffusers, which does not, `whole` makes a complete folder.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from workbench import hub
from workbench.display.quantities import byte_size
from workbench.errors import ModelUnavailable
from workbench.families.lora_files import DROPPED_KEY
from workbench.families.model import Model, Task
from workbench.workspace import disk, read_json, read_object, write_json, writing
from workbench.workspace.safetensors_header import read_header

if TYPE_CHECKING:
    import torch

    from workbench.families.base import Report

INDEX = "model_index.json"
CONFIGS = (INDEX, "*/config.json", "*/*_config.json")
SMALL = re.compile(r"model_index\.json|[\w-]+/[\w.-]+\.(?:json|jinja|model|txt)")
PLAIN = re.compile(r"[\w-]+\.safetensors(?:\.index\.json)?")  # weights without a variant
SHARD = r"-\d{5}-of-\d{5}"
LISTING = ".safetensors.index"  # in the name of a file that lists shards


def fetch(model: Model, parts: Iterable[str], report: Report) -> Path:
    """Return the folder to load a model from, downloading the revision if needed. `parts` are those with weights.

    Raises ConfigError, ModelUnavailable, CannotWrite.
    """
    parts = tuple(parts)
    if (here := find(model, parts)) is not None:
        if model.local and not (here / INDEX).is_file():
            raise ModelUnavailable(f"model is {model.id}, but {here} has no model_index.json: restore the folder")
        return here
    from huggingface_hub import snapshot_download

    own = dict(model.files)
    size = f", about {model.download_gb:g} GB," if model.download_gb else ""
    terms = f" License: {model.license}." if model.license not in ("", "unknown") else ""
    report(f"Downloading {model.title}{size} once ...{terms}")
    with hub.explained(model.source):
        listing = hub.client().model_info(model.source, revision=model.revision, files_metadata=True).siblings or ()
        sizes = {file.rfilename: file.size or 0 for file in listing}
        wanted = wanted_files(sizes, [part for part in parts if part not in own], model.variant)
        marked = f"_{model.variant}/"
        if model.variant and not any(_of_variant(name, model.variant) or marked in name for name in wanted):
            raise ModelUnavailable(f"{model.source} has no weights of the variant {model.variant!r}: leave it empty")
        missing = {name: sizes[name] for name in wanted if not _at_hand(model, name)}
        report(f"From https://huggingface.co/{model.source}: {in_parts(missing)}")
        with _disk_errors_explained(model.source):
            snapshot_download(model.source, revision=model.revision, allow_patterns=wanted)
    if (here := find(model, parts)) is None:
        raise ModelUnavailable(f"{model.source} lacks weights in safetensors: choose a revision that has them")
    return here


def _at_hand(model: Model, name: str) -> bool:
    """Return whether a file of a repository has been downloaded."""
    from huggingface_hub import try_to_load_from_cache

    return isinstance(try_to_load_from_cache(model.source, name, revision=model.revision), str)


def in_parts(sizes: Mapping[str, int]) -> str:
    """Word how large files are, by part: "11.4 GB (text_encoder 11.3 GB, vae 0.5 MB)", the largest first."""
    parts = Counter[str]()
    for name, size in sizes.items():
        parts[name.partition("/")[0] if "/" in name and is_weights(name) else "configs and tokenizers"] += size
    each = ", ".join(f"{part} {byte_size(size)}" for part, size in parts.most_common())
    return f"{byte_size(sum(sizes.values()))} ({each})" if len(parts) > 1 else each


def find(model: Model, parts: Iterable[str]) -> Path | None:
    """Return the folder to load a model from if its download is complete, else None."""
    own = dict(model.files)
    parts = [part for part in parts if part not in own]
    if model.local:
        here = Path(model.source)
        return _with_own_files(model, here) if own and (here / INDEX).is_file() else here
    for repo in (model.source, *model.aliases):
        folder = find_configs(repo, model.revision)
        if folder is None or not all(_is_whole(folder, part, model.variant) for part in parts):
            continue
        if own and not all((folder / part / "config.json").is_file() for part in own):
            continue
        found = _view(folder, tuple(parts), model) if model.variant else folder
        return _with_own_files(model, found) if own else found
    return None


def fetch_configs(repo: str, revision: str | None) -> Path:
    """Download a repository's configs. The folder's name is the commit. Raises ConfigError, ModelUnavailable."""
    from huggingface_hub import snapshot_download

    with hub.explained(repo), _disk_errors_explained(repo):
        return Path(snapshot_download(repo, revision=revision, allow_patterns=list(CONFIGS)))


def find_configs(repo: str, revision: str | None) -> Path | None:
    """Return the folder of a repository's configs if they have been downloaded, else None."""
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(repo, INDEX, revision=revision)
    return Path(found).parent if isinstance(found, str) else None


@contextlib.contextmanager
def _disk_errors_explained(repo: str) -> Iterator[None]:
    """Turn disk errors into ModelUnavailable, and let those of the Hub pass."""
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        yield
    except (HfHubHTTPError, LocalEntryNotFoundError, ConnectionError):
        raise
    except OSError as error:
        raise ModelUnavailable(f"{repo} cannot be written to disk ({error}): free some space") from error


def wanted_files(names: Iterable[str], parts: Iterable[str], variant: str) -> list[str]:
    """Return which of a repository's files to download. Parts without the variant contribute their plain weights."""
    names, wanted = list(names), []
    for part in parts:
        folder = f"{part}_{variant}"
        if not variant or not any(Path(name).parent == Path(folder) for name in names):
            folder = part
        weights = [name for name in names if Path(name).parent == Path(folder) and is_weights(name)]
        wanted += _chosen(weights, variant if folder == part else "")
    return wanted + [name for name in names if SMALL.fullmatch(name) and not is_weights(name)]


def _chosen(weights: list[str], variant: str) -> list[str]:
    marked = [name for name in weights if variant and _of_variant(name, variant)]
    return marked or [name for name in weights if PLAIN.fullmatch(Path(name).name)]


def is_weights(name: str) -> bool:
    return name.endswith(".safetensors") or (LISTING in name and name.endswith(".json"))


def _of_variant(name: str, variant: str) -> bool:
    """Return whether a file is named as diffusers and transformers name, or once named, a variant's weights."""
    mark = re.escape(f".{variant}")
    weights = rf"[\w-]+(?:{mark}(?:{SHARD})?|{SHARD}{mark})\.safetensors"
    return re.fullmatch(rf"{weights}|[\w-]+{re.escape(LISTING)}{mark}\.json", Path(name).name) is not None


def _of(folder: Path, part: str, variant: str) -> tuple[Path, list[str]]:
    """Return the folder of a part's weights for a variant, its own if it has one, and their files."""
    own = folder / f"{part}_{variant}"
    own, variant = (own, "") if variant and own.is_dir() else (folder / part, variant)
    return own, _chosen([path.name for path in own.glob("*") if is_weights(path.name)], variant)


def _is_whole(folder: Path, name: str, variant: str) -> bool:
    part, chosen = _of(folder, name, variant)
    for listing in (name for name in chosen if LISTING in name):
        named = read_json(part / listing).get("weight_map", {}).values()
        return all((part / Path(str(name)).name).is_file() for name in set(named))
    return bool(chosen)


def _view(folder: Path, parts: tuple[str, ...], model: Model) -> Path:
    """Return the folder with a variant's weights under plain names, made once. Raises CannotWrite."""
    variant = model.variant
    view = folder / f".variant-{variant}"
    if view.is_dir():
        return view
    temporary = view.with_name(f"{view.name}.{os.getpid()}")
    with writing(view), contextlib.suppress(FileExistsError):
        shutil.rmtree(temporary, ignore_errors=True)
        for path in (folder / INDEX, *sorted(folder.glob("[!.]*/*"))):
            if not is_weights(path.name):
                _link(path, temporary / path.relative_to(folder))
        for part in parts:
            own, chosen = _of(folder, part, variant)
            for name in chosen:
                # Shards keep their names, which their listing has.
                plain = name if re.search(SHARD, name) else name.replace(f".{variant}.", ".")
                _link(own / name, temporary / part / plain)
            if own.name != part:
                (temporary / part / "config.json").unlink(missing_ok=True)
                _link(own / "config.json", temporary / part / "config.json")
        if model.scheduler_changes:
            config = temporary / "scheduler" / "scheduler_config.json"
            changed = {**read_object(config), **dict(model.scheduler_changes)}
            config.unlink()
            write_json(config, changed)
        disk.replace(temporary, view)
    return view


def _link(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    disk.link(source, target)


# ---- parts that a folder shares with a sibling -----------------------------------------------------------------------

# JSON: part -> name of the sibling folder that has it. If this folder also has the part, its own config and tensors
# take precedence.
SHARED = "shared_parts.json"


def shared_parts(folder: Path) -> dict[str, Path]:
    """Return the parts that a folder shares, with their folders in the siblings. Raises ModelUnavailable."""
    found = {}
    for part, name in read_object(folder / SHARED).items():
        if not isinstance(name, str) or name in ("", ".", "..") or re.search(r"[/\\\0:]", name + part):
            raise ModelUnavailable(f"{folder / SHARED} names {str(name)[:60]!r}: name a folder next to this one")
        if not (there := folder.parent / name / part).is_dir():
            raise ModelUnavailable(
                f"{folder} takes its {part} from {there.parent}, which is missing: restore the folder"
            )
        found[part] = there
    return found


def part_folder(folder: Path, part: str) -> Path:
    """Return the folder of a part's config and small files: the model's own, or the sibling's."""
    own = folder / part
    return own if own.is_dir() else shared_parts(folder).get(part, own)


def is_layered(folder: Path, part: str) -> bool:
    """Return whether a part has some tensors of its own and takes the others from a sibling."""
    return (folder / part).is_dir() and part in shared_parts(folder)


def part_homes(folder: Path, part: str) -> list[Path]:
    """Return the folders of a part's weights. If a tensor is in two of them, the first counts."""
    own = part_folder(folder, part)
    return [own, shared_parts(folder)[part]] if is_layered(folder, part) else [own]


# ---- parts in single files: see own_files

# JSON in a part's folder: "file" has its weights, "stored" is a transformer's dtype for precision auto.
OWN_FILE = "own_file.json"


def own_file(folder: Path, part: str) -> Path | None:
    """Return the single file that a part's weights are read from; None for a part in diffusers' layout."""
    named = read_object(folder / part / OWN_FILE).get("file")
    return Path(str(named)) if named else None


def _with_own_files(model: Model, base: Path) -> Path:
    """Return a folder of links to a model's folder, in which parts name the files that replace them. Made once.

    It is beside the Hub's cache, since files and folders of a user may be read-only. Raises CannotWrite.
    """
    from huggingface_hub import constants

    own = {part: Path(path) for part, path in model.files}
    stats = {part: path.stat() if path.exists() else None for part, path in own.items()}
    facts = [(part, str(own[part]), at and (at.st_size, at.st_mtime_ns)) for part, at in sorted(stats.items())]
    key = hashlib.sha256(json.dumps([str(base.resolve()), facts]).encode()).hexdigest()[:24]
    view = Path(constants.HF_HUB_CACHE).parent / "video-lora-workbench" / key
    if (view / INDEX).is_file() and is_complete(view):
        return view
    temporary = view.with_name(f"{key}.{os.getpid()}")
    with writing(view):
        shutil.rmtree(temporary, ignore_errors=True)
        link_parts(temporary, base, without_weights=tuple(own))
        for part, path in own.items():
            write_json(temporary / part / OWN_FILE, {"file": str(path), "stored": model.stored})
        for name in (INDEX, MADE_FOR):
            if (base / name).is_file():
                _link(base / name, temporary / name)
        shutil.rmtree(view, ignore_errors=True)  # its links lead nowhere
        try:
            disk.replace(temporary, view)
        except OSError:  # another process was faster
            shutil.rmtree(temporary, ignore_errors=True)
            if not (view / INDEX).is_file():
                raise
    return view


def whole(folder: Path) -> Path:
    """Return a folder with all parts, for stock diffusers: the model's own, or one of links if it shares parts.

    The links are removed when the process ends. Raises ModelUnavailable, CannotWrite.
    """
    return _gathered(folder) if (folder / SHARED).is_file() else folder


@lru_cache(maxsize=32)
def _gathered(folder: Path) -> Path:
    target = Path(tempfile.mkdtemp(prefix=f"{folder.name}-"))
    atexit.register(shutil.rmtree, target, ignore_errors=True)
    with writing(target):
        for path in sorted(folder.glob("*.*")):
            if path.is_file() and path.name != SHARED:
                _link(path, target / path.name)
    link_parts(target, folder)
    return target


# ---- reading a folder ------------------------------------------------------------------------------------------------


def index(folder: Path) -> dict[str, Any]:
    """Read model_index.json, which names the classes of a pipeline's parts."""
    found: dict[str, Any] = read_json(folder / INDEX)
    return found


def has_part(folder: Path, part: str) -> bool:
    """Return whether a pipeline has a part. model_index.json may list it without a class."""
    return bool((index(folder).get(part) or [None])[0])


WEIGHTS = "diffusion_pytorch_model.safetensors"  # of a part in diffusers
MADE_FOR = "made_for.json"  # next to model_index.json: the clip size and task a model is for
# Keys of MADE_FOR in a full fine-tune: the known base model, and the trained part. The other parts are links.
BASE_MODEL, TRAINED = "base_model", "trained"
SIZES = ("frames", "height", "width", "fps")
LIBRARIES = ("diffusers", "transformers")  # whose classes model_index.json may name
WITHIN = {"ltx2": "diffusers.pipelines.ltx2"}  # diffusers' modules of one pipeline, by their name there


def made_for(model: Model, folder: Path) -> Model:
    """Return the model with the size, frame rate and task in MADE_FOR, which some families' configs do not say."""
    found = read_object(folder / MADE_FOR)
    sizes: dict[str, Any] = {name: int(found.get(name, getattr(model, name))) for name in SIZES}
    task = found.get("task", model.task)
    if task not in get_args(Task):
        raise ValueError(f"the task in {MADE_FOR} is {task!r}: {' or '.join(get_args(Task))}")
    return replace(model, task=task, zeros_without_prompt=found.get(DROPPED_KEY) == "zeros", **sizes)


def base_model(folder: Path) -> str:
    """Return the id of the known model that a folder is a full fine-tune of; "" for any other folder."""
    return str(read_object(folder / MADE_FOR).get(BASE_MODEL) or "")


def trained_part(folder: Path) -> str:
    """Return the part of a full fine-tune that was trained."""
    return str(read_object(folder / MADE_FOR).get(TRAINED) or "transformer")


def complete(folder: Path, base: Path, own: str, made_for: Mapping[str, Any] | None = None) -> None:
    """Complete a folder that holds one trained part, so that diffusers loads it like any model.

    Links the base model's other parts, and writes model_index.json last. Raises CannotWrite.

    Args:
        folder: Holds the part.
        base: Folder of the base model.
        own: Name of the part, such as "transformer".
        made_for: Contents of MADE_FOR, with BASE_MODEL for a known base model; None: a copy of the base model's.
    """
    if made_for is not None:
        write_json(folder / MADE_FOR, {**made_for, TRAINED: own})
    elif (base / MADE_FOR).is_file():
        write_json(folder / MADE_FOR, read_object(base / MADE_FOR))
    link_parts(folder, base, own)
    write_json(folder / INDEX, index(base))


def is_complete(folder: Path) -> bool:
    """Return whether a folder has every part that its model_index.json names, without dangling links."""
    parts = [folder / name for name, kind in index(folder).items() if isinstance(kind, list) and kind[0]]
    return all(part.is_dir() and all(file.exists() for file in part.iterdir()) for part in parts)


def link_parts(folder: Path, base: Path, own: str = "", without_weights: Sequence[str] = ()) -> None:
    """Link the base model's other parts into a folder. Call it again after either has moved.

    Parts whose tensors the base model shares are written out. Of `without_weights`, only configs are linked. Raises
    ModelUnavailable, CannotWrite.
    """
    homes = {path.name: path for path in base.glob("[!.]*") if path.is_dir()}
    shared = shared_parts(base)
    with writing(folder):
        for part, home in sorted({**shared, **homes}.items()):
            if part == own:
                continue
            bare = part in without_weights
            layered = part in shared and part in homes and not bare
            for path in sorted(home.rglob("*")):
                target = folder / part / path.relative_to(home)
                if not path.is_file() or target.is_file() or ((layered or bare) and is_weights(path.name)):
                    continue
                target.unlink(missing_ok=True)  # a dangling link
                _link(path, target)
            if layered and not (target := folder / part / WEIGHTS).is_file():
                from safetensors.torch import save_file

                save_file(tensors(base, part), target, {"format": "pt"})


@lru_cache(maxsize=32)
def config(folder: Path, part: str) -> dict[str, Any]:
    """Read the config of a part, such as "transformer" or "vae"."""
    found: dict[str, Any] = read_json(part_folder(folder, part) / "config.json")
    return found


def stored_dtype(folder: Path) -> str:
    """Return the transformer's dtype on disk: "float32", "float16" or "bfloat16". Raises ModelUnavailable."""
    if own_file(folder, "transformer") is not None:
        return str(read_object(folder / "transformer" / OWN_FILE)["stored"])
    # Files list larger dtypes first, so the first tensor may be one of a few float64 positions.
    formats = Counter(one.dtype for one in read_header(_weights(folder, "transformer")[0]).tensors.values())
    return {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}[formats.most_common(1)[0][0]]


@lru_cache(maxsize=64)
def shapes(folder: Path, part: str) -> dict[str, tuple[int, ...]]:
    """Return the shape of every tensor of a part, from its files' headers. Raises ModelUnavailable."""
    files = _weights(folder, part)
    return {name: shape for file in reversed(files) for name, shape in read_header(file).shapes.items()}


def tensors(folder: Path, part: str) -> dict[str, torch.Tensor]:
    """Load every tensor of a part. Raises ModelUnavailable."""
    from safetensors.torch import load_file

    files = _weights(folder, part)
    return {name: tensor for file in reversed(files) for name, tensor in load_file(file).items()}


def part_identity(model: Model, folder: Path, part: str) -> str:
    """Return a key for a part's weights: the pinned revision, or a local folder's file sizes and times."""
    named = dict(model.files).get(part)
    path = Path(named) if named else own_file(folder, part)
    if path is not None and path.is_file():
        return f"{path}={path.stat().st_size}/{path.stat().st_mtime_ns}"
    if model.revision:
        return f"{model.pinned}/{part}"
    return "+".join(
        f"{home}:" + ",".join(f"{f.name}={f.stat().st_size}/{f.stat().st_mtime_ns}" for f in sorted(home.iterdir()))
        for home in part_homes(folder, part)
    )


def _weights(folder: Path, part: str) -> list[Path]:
    """Return a part's weight files. If a tensor is in two of them, the first counts. Raises ModelUnavailable."""
    found = [path for home in part_homes(folder, part) for path in sorted(home.glob("*.safetensors"))]
    if not found:
        raise ModelUnavailable(f"{folder / part} holds no .safetensors file: download the model again")
    return found


def class_named(library: str, name: str) -> Any:
    """Return a class that model_index.json names. Raises ModelUnavailable if it is not one of LIBRARIES'."""
    import importlib

    home = WITHIN.get(library, library if library in LIBRARIES else None)
    if home is None or not isinstance(found := getattr(importlib.import_module(home), name, None), type):
        known = " and ".join(LIBRARIES)
        raise ModelUnavailable(f"the model has a part {library[:60]}.{name[:60]}: only classes of {known} are loaded")
    return found


def empty_part(folder: Path, part: str) -> Any:
    """Build a diffusers part on the meta device: shapes without weights. Raises ModelUnavailable."""
    return empty(class_named(*index(folder)[part]), config(folder, part))


def empty(kind: Any, config: Mapping[str, Any]) -> Any:
    """Build a diffusers class on the meta device from a config."""
    import torch

    with torch.device("meta"):
        return kind.from_config(dict(config))
