"""Where things live in a workspace, the folder that page, notebooks, shell and background jobs share.

A path that comes from a record or a request is `confined` to a folder before it is opened.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Container, Iterator
from dataclasses import dataclass
from pathlib import Path

from workbench.display import inline_html
from workbench.errors import ConfigError
from workbench.workspace import disk
from workbench.workspace.files import read_object, writing
from workbench.workspace.names import LORA_NAME, checked_slug, is_slug, slugify, step_of

ENVIRONMENT_VARIABLE = "WORKBENCH_HOME"
LONGEST = 160  # characters of the longest path below a workspace: a temporary file of a run with a long name
FORMER_NAMES = ".former_names.json"


@dataclass(frozen=True)
class Workspace:
    """The folder that the web app, notebooks, shell and background jobs share."""

    root: Path

    @classmethod
    def open(cls, root: Path | str | None = None) -> Workspace:
        """Open (or create) the given folder, else $WORKBENCH_HOME, else ./workspace.

        Raises CannotWrite; ConfigError where the system takes no path that is as long as those in it would be.
        """
        chosen = Path(root or os.environ.get(ENVIRONMENT_VARIABLE) or "workspace").expanduser().resolve()
        if len(str(chosen)) + LONGEST > disk.longest_path():
            raise ConfigError(
                f"the workspace {chosen} has a path of {len(str(chosen))} characters, at most "
                f"{disk.longest_path() - LONGEST} here: choose another folder, or switch on long paths in Windows"
            )
        workspace = cls(chosen)
        with writing(chosen):
            for name in ("datasets", "runs", "samples", "grids", "cache", "locks"):
                (chosen / name).mkdir(parents=True, exist_ok=True)
        return workspace

    @classmethod
    def of(cls, folder: Path) -> Workspace:
        """The workspace that the folder of a run, a dataset or a job lies in."""
        return cls(folder.absolute().parent.parent)

    @property
    def datasets(self) -> Path:
        return self.root / "datasets"

    @property
    def runs(self) -> Path:
        return self.root / "runs"

    @property
    def samples(self) -> Path:
        return self.root / "samples"

    @property
    def grids(self) -> Path:
        return self.root / "grids"

    @property
    def presets(self) -> Path:
        return self.root / "presets"

    @property
    def cache(self) -> Path:
        return self.root / "cache"

    @property
    def locks(self) -> Path:
        return self.root / "locks"

    def model(self, name: str) -> str:
        """The model that a name stands for: the folder of `runs/NAME`, a finished run that trained all weights.

        Any other name is returned as it is. Raises ConfigError for a run that left no model.
        """
        match = LORA_NAME.fullmatch(name)
        if match is None or match[2] is None:
            return name
        folder = self.run(match[2])
        if match[3] is None and (folder / "model_index.json").is_file():
            return str(folder)
        reason = "is not a finished run that trained all weights (method full)"
        if match[3] is not None:
            reason = "names a checkpoint, and only a run's end result is a model"
        elif (folder / "lora.safetensors").is_file():
            reason = f"trained a LoRA: choose the model that it was trained on, with {name} as the LoRA"
        sentence = f"model is {name}, which {reason}"
        raise ConfigError(sentence, {"model": sentence})

    def _repr_html_(self) -> str:
        folders = (self.datasets, self.runs, self.grids)
        names = {folder.name: sorted(path.name for path in folder.glob("[!.]*/")) for folder in folders}
        rows = [(kind, len(found), ", ".join(found)) for kind, found in names.items()]
        rows.append(("samples", len(list(self.samples.glob("[!.]*/*.mp4"))), ""))
        return inline_html.heading(str(self.root)) + inline_html.table(("", "count", "names"), rows)

    def dataset(self, slug: str) -> Path:
        """The folder of a dataset, there or not, also by a name that it had before.

        Raises ConfigError for a name that is no slug.
        """
        folder = self.datasets / checked_slug(slug)
        return folder if folder.exists() else self.datasets / self.former_names.get(slug, slug)

    @property
    def former_names(self) -> dict[str, str]:
        """What datasets were called before they were renamed -> what they are called now."""
        names = read_object(self.datasets / FORMER_NAMES)
        return {old: new for old, new in names.items() if isinstance(new, str) and is_slug(new)}

    def run(self, slug: str) -> Path:
        """The folder of a training run, there or not. Raises ConfigError for a name that is no slug."""
        return self.runs / checked_slug(slug)

    def grid(self, slug: str) -> Path:
        """The folder of a grid of videos, there or not. Raises ConfigError for a name that is no slug."""
        return self.grids / checked_slug(slug)

    def inside(self, path: str | Path) -> Path:
        """The file of this workspace that a record names, links resolved.

        The folder of a run or a dataset may be a link to another disk; links below it must stay in it. Raises
        ConfigError for a file that lies elsewhere.
        """
        whole = Path(os.path.normpath(self.root / path))
        parts = whole.relative_to(self.root).parts if whole.is_relative_to(self.root) else ()
        return confined(self.root.joinpath(*parts[:2]) if len(parts) > 2 else self.root, whole)


def fresh_folder(parent: Path, title: str, taken: Container[str] = ()) -> Path:
    """Make a folder for the title under a name that is not taken: cats, cats-2, cats-3 ... Raises CannotWrite.

    Two who ask at the same time get two folders. taken: names that are not free without a folder, too
    """
    names = numbered(title)
    with writing(parent):
        parent.mkdir(parents=True, exist_ok=True)
        while True:
            if (name := next(names)) not in taken:
                with contextlib.suppress(FileExistsError):
                    (parent / name).mkdir()
                    return parent / name


def numbered(title: str) -> Iterator[str]:
    """Yield the names that a title may get, in order: cats, cats-2, cats-3 ..."""
    stem = slugify(title)
    yield stem
    yield from (f"{stem[:58]}-{count}" for count in itertools.count(2))


def step_folders(parent: Path) -> dict[int, Path]:
    """The folders in parent that are named by a step, by that step, lowest first; all else is left out."""
    found = {step: path for path in parent.glob("step-*") if (step := step_of(path.name)) is not None and path.is_dir()}
    return dict(sorted(found.items()))


def confined(root: Path, relative: str | Path) -> Path:
    """The path below root, links resolved: the one way from a path in a record or a request to a file.

    Raises ConfigError when it leads outside, by itself or through a link, and for what is no path.
    """
    try:
        path, base = (root / relative).resolve(), root.resolve()
    except (OSError, ValueError, RuntimeError) as error:  # a null byte, links in a circle
        raise ConfigError(f"{str(relative)[:120]!r} is no path that can be read: check its spelling") from error
    if not path.is_relative_to(base):
        raise ConfigError(f"the path {str(relative)[:120]!r} leads outside {root.name}: name a file inside it")
    return path
