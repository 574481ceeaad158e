"""Names that are safe as folder names on every system, so that a workspace can be moved."""

from __future__ import annotations

import re
import unicodedata

from workbench.errors import ConfigError

SLUG = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
DEVICES = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(?=\.|$)")  # reserved on Windows, with any suffix
STEP = re.compile(r"step-([0-9]{8,12})")
# The name of a LoRA: runs/RUN, runs/RUN@STEP, loras/NAME.
LORA_NAME = re.compile(rf"(runs)/({SLUG.pattern})(?:@([0-9]{{1,8}}))?|(loras)/({SLUG.pattern})")


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
