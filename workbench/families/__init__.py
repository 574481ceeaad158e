"""Video model families: one module or package each. Facts are torch-free; methods load torch and diffusers when run.

`families()` finds every module and package beside this one that has a `FAMILY`, and those of installed packages that
name theirs in the entry points "video_lora_workbench.families". A model's name is looked up once, where it comes in:
`find_model` asks this disk alone, `known_model` does the same for forms, `settled_model` may ask the Hub. `convert`
writes weights in another layout.
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
from workbench.families import model_files, other_families
from workbench.families.base import Family, Report, ResolvedModel
from workbench.families.model import Model
from workbench.workspace import named_paths

ENTRY_POINTS = "video_lora_workbench.families"  # the group under which other packages name the modules of theirs
NAME = re.compile(r"(?P<base>[\w.-]+(?:/[\w.-]+)?)(?::(?P<variant>[\w.-]+))?(?:@(?P<revision>\w[\w./-]*))?")
COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True)
class ModelName:
    """A name taken apart. base: a known id, or OWNER/NAME; variant, revision: "" where none is named"""

    base: str
    variant: str = ""
    revision: str = ""

    def __str__(self) -> str:
        variant, revision = f":{self.variant}" if self.variant else "", f"@{self.revision}" if self.revision else ""
        return f"{self.base}{variant}{revision}"

    @property
    def on_hub(self) -> bool:
        """Whether it can be a repository of the Hub."""
        return "/" in self.base and ".." not in self.base

    @property
    def settled(self) -> bool:
        """Whether it names a commit, whose files never change."""
        return COMMIT.fullmatch(self.revision) is not None


def split(name: str) -> ModelName | None:
    """The parts of a name; None for what is none, as most paths."""
    found = NAME.fullmatch(name)
    if found is None or ".." in (found["revision"] or ""):
        return None
    return ModelName(found["base"], found["variant"] or "", found["revision"] or "")


@cache
def families() -> tuple[Family, ...]:
    """Every family: what is named FAMILY in a module or package beside this one, then in other packages' modules."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    found = [getattr(importlib.import_module(f"{__name__}.{name}"), "FAMILY", None) for name in names]
    found += [entry.load().FAMILY for entry in sorted(metadata.entry_points(group=ENTRY_POINTS))]
    return tuple(family for family in found if family is not None)


def models() -> list[Model]:
    """All known models, the embedded ones first."""
    known = [model for family in families() for model in family.models]
    return sorted(known, key=lambda model: not model.embedded)


def schedulers() -> tuple[str, ...]:
    """The schedulers of all families."""
    return tuple(dict.fromkeys(name for family in families() for name in family.schedulers))


def default_model() -> str:
    """The id that forms start with: the embedded model, which needs no download."""
    return models()[0].id


def find_model(name: str) -> ResolvedModel:
    """The model of a name, with its family. Looks at this disk alone. Raises ConfigError.

    name: a known id, or a known model's name on the Hub, in any case, under either organization; a folder in diffusers'
          layout; OWNER/NAME of a Hub repository in that layout, whose configs `settled_model` has fetched. All but a
          folder may go on with :VARIANT and @REVISION.
    """
    for family in families():
        for model in family.models:
            if name == model.id:
                return ResolvedModel(family, model)
    if _is_folder(name):
        return _described(named_paths.resolve(name, "model"), name)
    _refuse_file(name)
    named = split(name)
    if named is None or _is_folder(named.base):
        raise _unknown(name)
    if known := _repository(named.base):
        return known._replace(model=_at(known.model, named))
    if not named.on_hub:
        raise _unknown(name)
    here = model_files.find_configs(named.base, named.revision or None)
    if here is None:
        sentence = (
            f"model is {name}, which is none of {_known()} and not on this disk: if it is a model on the Hub, start "
            f"with it, or run `workbench fit --model {name}`, and its configs are fetched"
        )
        raise ConfigError(sentence, {"model": sentence})
    family, model = _described(here, name)
    commit = named.revision if named.settled else here.name
    full = str(ModelName(named.base, named.variant, commit))
    model = replace(model, id=full, title=full, source=named.base, revision=commit, variant=named.variant, local=False)
    return ResolvedModel(family, model)


def known_model(name: str) -> ResolvedModel | None:
    """`find_model` for what is still being written, as in a form: None for a name that is not known."""
    try:
        return find_model(name)
    except ConfigError:
        return None


def settle(name: str) -> str:
    """The name by which these very weights are found from now on: a known id, a folder's whole path, or a Hub name with
    the commit that its revision stands for now. Raises what `settled_model` raises.
    """
    return settled_model(name).model.id


def settled_model(name: str) -> ResolvedModel:
    """`find_model` of whatever a person may write. Of a repository that is not pinned the configs are fetched.

    Raises ConfigError, ModelUnavailable.
    """
    _refuse_file(name)
    named = split(name)
    if named is None or _is_folder(name) or _is_folder(named.base):
        return find_model(name)
    known = _repository(named.base)
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
    """The known model that a name without revision and variant stands for."""
    for family in families():
        for model in family.models:
            spellings = {model.id} if model.local else {model.id, model.source, *model.aliases}
            if base.lower() in {spelling.lower() for spelling in spellings}:
                return ResolvedModel(family, model)
    return None


def _at(model: Model, named: ModelName) -> Model:
    """A known model at the revision and variant that are named. Raises ConfigError where it is no repository's."""
    revision = named.revision or model.revision
    if (revision, named.variant) == (model.revision, model.variant):
        return model
    if model.local:
        raise ConfigError(
            f"model is {named}, but {model.id} is built in and has neither revisions nor variants: leave them empty"
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
    sentence = f"model is {name}, a model of {title}, which is not trained here: choose {_known()}"
    raise ConfigError(sentence, {"model": sentence})


def _refuse_file(name: str) -> None:
    """Raises ConfigError, with what it is, for a model in one file."""
    if "\0" in name or not name.endswith(other_families.FILES) or not named_paths.names_file(name):
        return
    if (path := named_paths.resolve(name, "model")).is_file():
        sentence = other_families.single_file(path, families())
        raise ConfigError(sentence, {"model": sentence})


def _is_folder(name: str) -> bool:
    found = "\0" not in name and named_paths.names_file(name)
    return found and (named_paths.resolve(name, "model") / model_files.INDEX).is_file()


def _unknown(name: str) -> ConfigError:
    sentence = (
        f"model is {name[:200]!r}, which is neither known, nor a folder with a model_index.json, nor OWNER/NAME of the "
        f"Hub: choose {_known()}"
    )
    return ConfigError(sentence, {"model": sentence})


def convert(source: str, target: str, like: str | None = None, report: Report = print) -> str:
    """Write a model or a LoRA in its authors' own layout from diffusers', or back; which way is read from the source.

    source: a file, a folder, or the name of a known model;  target: a new file or folder
    like:   a model of the same architecture; needed where the source is none itself

    Returns a sentence that says what was written. Raises ConfigError, ModelUnavailable, CannotWrite.
    """
    path = named_paths.resolve(source, "source")
    itself = source in {model.id for model in models()} or (path / "model_index.json").is_file()
    if like is None and not itself:
        raise ConfigError(f"like is empty, and {source} does not say which model it is of: choose {_known()}")
    of = find_model(like or source)
    folder = model_files.whole(of.fetch(report))
    if itself:
        path = model_files.whole(find_model(source).fetch(report))
    return of.family.convert(path, named_paths.resolve(target, "target"), folder, report)


def _known() -> str:
    return ", ".join(model.id for model in models())
