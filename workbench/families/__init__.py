"""Video model families, one module or package each. Facts need no torch; methods import torch and diffusers.

`families()` finds every module and package here that has a `FAMILY`, and those that installed packages name under the
entry point "video_lora_workbench.families". A model's name is looked up once, where it comes in: `find_model` and, for
forms, `known_model` look only on this disk; `settled_model` may ask the Hub. `convert` changes weights to another
layout.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from dataclasses import dataclass, replace
from functools import cache
from importlib import metadata
from pathlib import Path

from workbench.errors import ConfigError
from workbench.families import model_files, other_families, own_files
from workbench.families.base import Family, Report, ResolvedModel
from workbench.families.model import Model
from workbench.workspace import named_paths

ENTRY_POINTS = "video_lora_workbench.families"  # group under which other packages name their modules
NAME = re.compile(r"(?P<base>[\w.-]+(?:/[\w.-]+)?)(?::(?P<variant>[\w.-]+))?(?:@(?P<revision>\w[\w./-]*))?")
COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True)
class ModelName:
    """A parsed model name: BASE:VARIANT@REVISION."""

    base: str  # a known id, or OWNER/NAME
    # variant, revision: "" if missing
    variant: str = ""
    revision: str = ""

    def __str__(self) -> str:
        variant, revision = f":{self.variant}" if self.variant else "", f"@{self.revision}" if self.revision else ""
        return f"{self.base}{variant}{revision}"

    @property
    def on_hub(self) -> bool:
        """Whether it may be a Hub repository."""
        return "/" in self.base and ".." not in self.base

    @property
    def settled(self) -> bool:
        """Whether its revision is a commit, whose files never change."""
        return COMMIT.fullmatch(self.revision) is not None


def split(name: str) -> ModelName | None:
    """Parse a model name; None if it is not one, like most paths."""
    found = NAME.fullmatch(name)
    if found is None or ".." in (found["revision"] or ""):
        return None
    return ModelName(found["base"], found["variant"] or "", found["revision"] or "")


@cache
def families() -> tuple[Family, ...]:
    """Return every family: those in this package, then those of other packages."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    found = [getattr(importlib.import_module(f"{__name__}.{name}"), "FAMILY", None) for name in names]
    found += [entry.load().FAMILY for entry in sorted(metadata.entry_points(group=ENTRY_POINTS))]
    return tuple(family for family in found if family is not None)


def models() -> list[Model]:
    """Return all known models, built-in ones first."""
    known = [model for family in families() for model in family.models]
    return sorted(known, key=lambda model: not model.embedded)


def schedulers() -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for family in families() for name in family.schedulers))


def default_model() -> str:
    """Return the id that forms start with: a built-in model, which needs no download."""
    return models()[0].id


def find_model(name: str) -> ResolvedModel:
    """Look up a model and its family by name, only on this disk. Raises ConfigError.

    Args:
        name: A known id, or a known model's Hub name or alias, in any case; a folder in diffusers' layout; or the
            OWNER/NAME of another Hub repository in that layout, whose configs `settled_model` has downloaded. All but
            a folder may end in :VARIANT and @REVISION. Or single files, and a model whose parts they replace: see
            own_files.
    """
    for family in families():
        for model in family.models:
            if name == model.id:
                return ResolvedModel(family, model)
    if _is_folder(name):
        return _described(named_paths.resolve(name, "model"), name)
    if own_files.listed(name):
        return ResolvedModel(*own_files.resolved(name, families(), find_model))
    _refuse_file(name)
    named = split(name)
    if named is None or _is_folder(named.base):
        raise _unknown(name)
    if known := _repository(named.base):
        return known._replace(model=_at(known.model, named))
    _refuse_unsupported(named.base)
    if not named.on_hub:
        raise _unknown(name)
    here = model_files.find_configs(named.base, named.revision or None)
    if here is None:
        raise ConfigError.about(
            f"model is {name}, which is not on this disk and none of {_known()}: if it is on the Hub, start a run with "
            f"it, or run `workbench fit --model {name}`, to download its configs"
        )
    family, model = _described(here, name)
    commit = named.revision if named.settled else here.name
    full = str(ModelName(named.base, named.variant, commit))
    model = replace(model, id=full, title=full, source=named.base, revision=commit, local=False)
    return ResolvedModel(family, family.with_variant(model, named.variant))


def known_model(name: str) -> ResolvedModel | None:
    """Like `find_model`, but return None for an unknown name, as one still being typed into a form."""
    try:
        return find_model(name)
    except ConfigError:
        return None


def settle(name: str) -> str:
    """Return a name that will always mean these weights: a known id, a folder's full path, or a Hub name with a commit.

    Raises ConfigError, ModelUnavailable.
    """
    return settled_model(name).model.id


def settled_model(name: str) -> ResolvedModel:
    """Like `find_model`, but first download the configs of a Hub repository that is not pinned.

    Raises ConfigError, ModelUnavailable.
    """
    if not _is_folder(name) and own_files.listed(name):
        found = own_files.resolved(name, families(), lambda base: known_model(base) or settled_model(base))[1]
        base = settled_model(found.base_id).model
        return find_model(found.id.removesuffix(found.base_id) + base.id)
    _refuse_file(name)
    named = split(name)
    if named is None or _is_folder(name) or _is_folder(named.base):
        return find_model(name)
    known = _repository(named.base)
    if known is None:
        _refuse_unsupported(named.base)
    if known is None and not named.on_hub:
        raise _unknown(name)
    repo, pinned = named.base, False
    if known:
        repo = known.model.source
        pinned = known.model.local or (not named.revision and known.model.revision is not None)
    if not pinned and not named.settled:
        named = replace(named, revision=model_files.fetch_configs(repo, named.revision or None).name)
    elif known is None and model_files.find_configs(repo, named.revision) is None:
        model_files.fetch_configs(repo, named.revision)
    return find_model(str(named))


def _repository(base: str) -> ResolvedModel | None:
    """Return the known model of a name without variant and revision, if any."""
    for family in families():
        for model in family.models:
            spellings = {model.id} if model.local else {model.id, model.source, *model.aliases}
            if base.lower() in {spelling.lower() for spelling in spellings}:
                return ResolvedModel(family, model)
    return None


def _at(model: Model, named: ModelName) -> Model:
    """Return a known model at the named revision and variant. Raises ConfigError for a built-in model."""
    revision = named.revision or model.revision
    if (revision, named.variant) == (model.revision, model.variant):
        return model
    if model.local:
        raise ConfigError(
            f"model is {named}, but {model.id} is built in and has no revisions or variants: leave them empty"
        )
    full = str(ModelName(model.id, named.variant, "" if revision == model.revision else named.revision))
    return replace(
        model,
        id=full,
        title=f"{model.title} ({full.removeprefix(model.id).strip(':@')})",
        revision=revision,
        variant=named.variant,
    )


def _described(folder: Path, name: str) -> ResolvedModel:
    for family in families():
        if (model := family.describe_folder(folder)) is not None:
            return ResolvedModel(family, model)
    title = other_families.family_of_pipeline(str(model_files.index(folder).get("_class_name", "")))
    why = other_families.reason(title)
    raise ConfigError.about(f"model is {name}, a model of {title}, which is not supported{why}: choose {_known()}")


def _refuse_file(name: str) -> None:
    """Refuse a model in a single file, saying what it is. Raises ConfigError."""
    if "\0" in name or not name.endswith(other_families.FILES) or not named_paths.names_file(name):
        return
    if (path := named_paths.resolve(name, "model")).is_file():
        raise ConfigError.about(other_families.single_file(path, families()))


def _refuse_unsupported(base: str) -> None:
    """Refuse a model that is known not to work, before anything is downloaded. Raises ConfigError."""
    found = other_families.unsupported(base)
    if found is not None and all(family.title != found.title for family in families()):
        why = other_families.reason(found.title)
        raise ConfigError.about(f"model is {base}, {found.title}, which is not supported{why}: choose {_known()}")


def _is_folder(name: str) -> bool:
    found = "\0" not in name and named_paths.names_file(name)
    return found and (named_paths.resolve(name, "model") / model_files.INDEX).is_file()


def _unknown(name: str) -> ConfigError:
    return ConfigError.about(
        f"model is {name[:200]!r}, which is neither known, nor a folder with a model_index.json, nor OWNER/NAME on the "
        f"Hub: choose {_known()}"
    )


def convert(source: str, target: str, like: str | None = None, report: Report = print) -> str:
    """Convert a model or a LoRA from diffusers' layout to its authors', or back; the source decides the direction.

    Returns a sentence that says what was written. Raises ConfigError, ModelUnavailable, CannotWrite.

    Args:
        source: A file, a folder, or the name of a known model.
        target: A new file or folder.
        like: A model of the same architecture, required unless the source is a model in diffusers' layout.
    """
    path = named_paths.resolve(source, "source")
    itself = source in {model.id for model in models()} or (path / "model_index.json").is_file()
    if like is None and not itself:
        raise ConfigError(f"like is empty, and {source} does not say which model it is for: choose {_known()}")
    of = find_model(like or source)
    folder = of.whole_folder(report)
    if itself:
        path = find_model(source).whole_folder(report)
    return of.family.convert(path, named_paths.resolve(target, "target"), folder, report)


def _known() -> str:
    return ", ".join(model.id for model in models())
