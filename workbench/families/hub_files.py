"""A model's files on the Hub, in diffusers' layout: which are wanted, fetched once, found again without network.

Configs, tokenizers and weights in safetensors are fetched, never code or pickles. A variant's weights are shown under
the names that they would have without one, in a folder of links beside them, so that all readers of a model's folder
read the variant. Not covered: what is in the files (a family's own).
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from workbench import hub
from workbench.errors import ModelUnavailable
from workbench.families.base import Model, Report
from workbench.workspace import read_json, writing

INDEX = "model_index.json"
CONFIGS = (INDEX, "*/config.json", "*/*_config.json")
SMALL = re.compile(r"model_index\.json|[\w-]+/[\w.-]+\.(?:json|model|txt)")
SHARD = r"-\d{5}-of-\d{5}"
LISTING = ".safetensors.index"


def fetch(model: Model, parts: Iterable[str], report: Report) -> Path:
    """The folder to load from, downloaded at the model's revision if need be; parts: those with weights.

    Raises ConfigError, ModelUnavailable, CannotWrite.
    """
    parts = tuple(parts)
    if (here := find(model, parts)) is not None:
        return here
    from huggingface_hub import snapshot_download

    size = f", about {model.download_gb:g} GB," if model.download_gb else ""
    report(f"Downloading {model.title}{size} once ...")
    with hub.explained(model.source):
        names = hub.client().list_repo_files(model.source, revision=model.revision)
        wanted = wanted_files(names, parts, model.variant)
        if model.variant and not any(_of_variant(name, model.variant) for name in wanted):
            raise ModelUnavailable(f"{model.source} has no weights of the variant {model.variant!r}: leave it empty")
        with _on_disk(model.source):
            snapshot_download(model.source, revision=model.revision, allow_patterns=wanted)
    if (here := find(model, parts)) is None:
        raise ModelUnavailable(f"{model.source} lacks weights in safetensors: choose a revision that has them")
    return here


def find(model: Model, parts: Iterable[str]) -> Path | None:
    """The folder to load from where all of it is on this disk, else None: a download that was cut off is not."""
    for repo in (model.source, *model.aliases):
        folder = find_configs(repo, model.revision)
        if folder is None or not all(_is_whole(folder / part, model.variant) for part in parts):
            continue
        return _view(folder, tuple(parts), model.variant) if model.variant else folder
    return None


def fetch_configs(repo: str, revision: str | None) -> Path:
    """The folder of a repository's configs; its name is the commit. Raises ConfigError, ModelUnavailable."""
    from huggingface_hub import snapshot_download

    with hub.explained(repo), _on_disk(repo):
        return Path(snapshot_download(repo, revision=revision, allow_patterns=list(CONFIGS)))


def find_configs(repo: str, revision: str | None) -> Path | None:
    """The same where it was fetched before, else None."""
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(repo, INDEX, revision=revision)
    return Path(found).parent if isinstance(found, str) else None


@contextlib.contextmanager
def _on_disk(repo: str) -> Iterator[None]:
    """Turn what the disk says into one sentence; what the Hub says passes. Raises ModelUnavailable."""
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        yield
    except (HfHubHTTPError, LocalEntryNotFoundError, ConnectionError):
        raise
    except OSError as error:
        raise ModelUnavailable(f"{repo} cannot be kept on the disk ({error}): free some space") from error


def wanted_files(names: Iterable[str], parts: Iterable[str], variant: str) -> list[str]:
    """Which of a repository's files are fetched: a part without weights of the variant gives its plain ones."""
    names, wanted = list(names), []
    for part in parts:
        weights = [name for name in names if Path(name).parent == Path(part) and _is_weights(name)]
        wanted += _chosen(weights, variant)
    return wanted + [name for name in names if SMALL.fullmatch(name) and not _is_weights(name)]


def _chosen(weights: list[str], variant: str) -> list[str]:
    marked = [name for name in weights if variant and _of_variant(name, variant)]
    return marked or [name for name in weights if _is_plain(name)]


def _is_weights(name: str) -> bool:
    return name.endswith(".safetensors") or (LISTING in name and name.endswith(".json"))


def _is_plain(name: str) -> bool:
    return re.fullmatch(r"[\w-]+\.safetensors(?:\.index\.json)?", Path(name).name) is not None


def _of_variant(name: str, variant: str) -> bool:
    """Whether it is named as diffusers and transformers name a variant's weights, today and formerly."""
    mark = re.escape(f".{variant}")
    weights = rf"[\w-]+(?:{mark}(?:{SHARD})?|{SHARD}{mark})\.safetensors"
    return re.fullmatch(rf"{weights}|[\w-]+{re.escape(LISTING)}{mark}\.json", Path(name).name) is not None


def _is_whole(part: Path, variant: str) -> bool:
    """Whether a part has its weights, all files of them."""
    chosen = _chosen([path.name for path in part.glob("*") if _is_weights(path.name)], variant)
    for listing in (name for name in chosen if LISTING in name):
        named = read_json(part / listing).get("weight_map", {}).values()
        return all((part / Path(str(name)).name).is_file() for name in set(named))
    return bool(chosen)


def _view(folder: Path, parts: tuple[str, ...], variant: str) -> Path:
    """The folder with a variant's weights under plain names; made once. Raises CannotWrite."""
    view = folder / f".variant-{variant}"
    if view.is_dir():
        return view
    temporary = view.with_name(f"{view.name}.{os.getpid()}")
    with writing(view), contextlib.suppress(FileExistsError):
        shutil.rmtree(temporary, ignore_errors=True)
        for path in (folder / INDEX, *sorted(folder.glob("[!.]*/*"))):
            if not _is_weights(path.name):
                _link(path, temporary / path.relative_to(folder))
        for part in parts:
            for name in _chosen([path.name for path in (folder / part).glob("*") if _is_weights(path.name)], variant):
                # Pieces keep their names: the list of them says these.
                plain = name if re.search(SHARD, name) else name.replace(f".{variant}.", ".")
                _link(folder / part / name, temporary / part / plain)
        os.rename(temporary, view)
    return view


def _link(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.symlink_to(os.path.relpath(source.resolve(), target.parent.resolve()))
