"""Where things are in a workspace, and names that are safe as folder names on every system.

Paths that come from a record or a request must go through `confined` before they are opened.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import unicodedata
from collections.abc import Container, Iterator
from dataclasses import dataclass
from pathlib import Path

from workbench.display import inline_html
from workbench.errors import ConfigError
from workbench.workspace import disk
from workbench.workspace.files import read_object, writing

ENVIRONMENT_VARIABLE = "WORKBENCH_HOME"
LONGEST = 160  # characters of the longest path inside a workspace: a temporary file of a run with a long name
FORMER_NAMES = ".former_names.json"
SLUG = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
DEVICES = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(?=\.|$)")  # reserved on Windows, with any suffix
STEP = re.compile(r"step-([0-9]{8,12})")
# The name of a LoRA: runs/RUN, runs/RUN@STEP, loras/NAME.
LORA_NAME = re.compile(rf"(runs)/({SLUG.pattern})(?:@([0-9]{{1,8}}))?|(loras)/({SLUG.pattern})")


@dataclass(frozen=True)
class Workspace:
    """The folder that the web app, notebooks, shell and background jobs share."""

    root: Path

    def __post_init__(self) -> None:
        if not isinstance(self.root, Path):
            raise ConfigError(
                f"root is {self.root!r}, must be a Path: use Workspace.open({self.root!r}), which makes it"
            )

    @classmethod
    def open(cls, root: Path | str | None = None) -> Workspace:
        """Open or create the given folder, else $WORKBENCH_HOME, else ./workspace.

        Raises CannotWrite, or ConfigError if paths in it would be too long for the system.
        """
        chosen = Path(root or os.environ.get(ENVIRONMENT_VARIABLE) or "workspace").expanduser().resolve()
        if len(str(chosen)) + LONGEST > disk.longest_path():
            raise ConfigError(
                f"the path of the workspace {chosen} has {len(str(chosen))} characters, and this system allows at most "
                f"{disk.longest_path() - LONGEST}: choose another folder, or enable long paths in Windows"
            )
        workspace = cls(chosen)
        with writing(chosen):
            for name in ("datasets", "runs", "samples", "grids", "cache", "locks"):
                (chosen / name).mkdir(parents=True, exist_ok=True)
        return workspace

    @classmethod
    def of(cls, folder: Path) -> Workspace:
        """Return the workspace of a run, dataset or job, given its folder."""
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
        """Resolve `runs/NAME`, a finished run that trained all weights, to its folder; return other names unchanged.

        Raises ConfigError if the run made no model.
        """
        match = LORA_NAME.fullmatch(name)
        if match is None or match[2] is None:
            return name
        folder = self.run(match[2])
        if match[3] is None and (folder / "model_index.json").is_file():
            return str(folder)
        reason = "is not a finished run that trained all weights (method full)"
        if match[3] is not None:
            reason = "names a checkpoint, but only a run's final result is a model"
        elif (folder / "lora.safetensors").is_file():
            reason = f"trained a LoRA: choose the model that it was trained on, with {name} as the LoRA"
        raise ConfigError.of("model", f"model is {name}, which {reason}")

    def _repr_html_(self) -> str:
        folders = (self.datasets, self.runs, self.grids)
        names = {folder.name: sorted(path.name for path in folder.glob("[!.]*/")) for folder in folders}
        rows = [(kind, len(found), ", ".join(found)) for kind, found in names.items()]
        rows.append(("samples", len(list(self.samples.glob("[!.]*/*.mp4"))), ""))
        return inline_html.heading(str(self.root)) + inline_html.table(("", "count", "names"), rows)

    def dataset(self, slug: str) -> Path:
        """Return a dataset's folder, whether it exists or not. Former names work, too.

        Raises ConfigError if the name is not a slug.
        """
        folder = self.datasets / checked_slug(slug)
        return folder if folder.exists() else self.datasets / self.former_names.get(slug, slug)

    @property
    def former_names(self) -> dict[str, str]:
        """Former name of a renamed dataset -> its current name."""
        names = read_object(self.datasets / FORMER_NAMES)
        return {old: new for old, new in names.items() if isinstance(new, str) and is_slug(new)}

    def run(self, slug: str) -> Path:
        """Return a run's folder, whether it exists or not. Raises ConfigError if the name is not a slug."""
        return self.runs / checked_slug(slug)

    def grid(self, slug: str) -> Path:
        """Return a grid's folder, whether it exists or not. Raises ConfigError if the name is not a slug."""
        return self.grids / checked_slug(slug)

    def inside(self, path: str | Path) -> Path:
        """Resolve a path in a record to a file of this workspace. Raises ConfigError if it is elsewhere.

        The folder of a run or dataset may be a link to another disk, but links inside it must not leave it.
        """
        whole = Path(os.path.normpath(self.root / path))
        parts = whole.relative_to(self.root).parts if whole.is_relative_to(self.root) else ()
        return confined(self.root.joinpath(*parts[:2]) if len(parts) > 2 else self.root, whole)


def fresh_folder(parent: Path, title: str, taken: Container[str] = ()) -> Path:
    """Make a folder named after the title: cats, or cats-2, cats-3 ... if that exists. Raises CannotWrite.

    Concurrent calls get different folders. taken: further names that are not free.
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
    """Yield the folder names for a title, in order: cats, cats-2, cats-3 ..."""
    stem = slugify(title)
    yield stem
    yield from (f"{stem[:58]}-{count}" for count in itertools.count(2))


def step_folders(parent: Path) -> dict[int, Path]:
    """Return the step folders in a folder, by step in ascending order."""
    found = {step: path for path in parent.glob("step-*") if (step := step_of(path.name)) is not None and path.is_dir()}
    return dict(sorted(found.items()))


def confined(root: Path, relative: str | Path) -> Path:
    """Resolve a path from a record or a request, which must stay below root.

    Raises ConfigError if it leads outside, directly or through a link, or is not a valid path.
    """
    try:
        path, base = (root / relative).resolve(), root.resolve()
    except (OSError, ValueError, RuntimeError) as error:  # a null byte, a loop of links
        raise ConfigError(f"the path {str(relative)[:120]!r} cannot be read: check its spelling") from error
    if not path.is_relative_to(base):
        raise ConfigError(f"the path {str(relative)[:120]!r} leads outside {root.name}: name a file inside it")
    return path


# ---- names


def slugify(title: str) -> str:
    """Make a folder name from any text: "Été, 2 clips!" -> "ete-2-clips"; "untitled" if nothing is left."""
    plain = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode().lower()
    joined = re.sub(r"\.{2,}", ".", re.sub(r"[^a-z0-9._]+", "-", plain))
    stripped = joined.strip("-._")
    if DEVICES.match(stripped):
        stripped = DEVICES.sub(r"\1-1", stripped, count=1)
    return stripped[:64].strip("-._") or "untitled"


def is_slug(name: str) -> bool:
    """Whether a dataset, run, grid or LoRA may have this name."""
    return SLUG.fullmatch(name) is not None and ".." not in name and not name.endswith(".") and not DEVICES.match(name)


def checked_slug(name: str) -> str:
    """Return the name if it may be a folder name. Raises ConfigError."""
    if DEVICES.match(name):
        raise ConfigError(f"the name {name[:80]!r} is reserved on Windows: use {slugify(name)!r}")
    if not is_slug(name):
        raise ConfigError(
            f"the name {name[:80]!r} cannot be used: names have at most 64 lowercase letters, digits, '.', '_' and "
            f"'-': use {slugify(name)!r}"
        )
    return name


def step_of(name: str) -> int | None:
    """Return the step in a step folder's name: "step-00000250" -> 250; None for any other name."""
    match = STEP.fullmatch(name)
    return int(match[1]) if match is not None and name == f"step-{int(match[1]):08d}" else None
