"""Trigger words in prompts: which of those that the chosen LoRAs were trained with a prompt lacks. No torch.

Not covered: trigger words of datasets (clips.records).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from workbench.errors import ConfigError
from workbench.loras.library import find
from workbench.sampler.loras import split_scale
from workbench.workspace import Workspace, is_slug
from workbench.workspace.lora_names import RUNS, checkpoint_names, is_name


def words_of(workspace: Workspace, loras: Sequence[str]) -> list[str]:
    """The trigger words, once each. loras: NAME=SCALE texts; files and names on the Hub are left out."""
    return list(dict.fromkeys(word for text in loras for word in _words(workspace, text)))


def words_of_grid(workspace: Workspace, run: str, loras: Sequence[str]) -> list[str]:
    """The trigger words of a grid's run and of its LoRAs. loras: an entry may be several with " + " between them"""
    checkpoints = checkpoint_names(workspace, run)[-1:] if is_slug(run) else []  # of a run without an export yet
    stacks = [one.strip() for entry in loras for one in entry.split(" + ")]
    return words_of(workspace, [*([f"{RUNS}/{run}"] if run else []), *checkpoints, *stacks])


def lacking(prompt: str, words: Sequence[str]) -> list[str]:
    """Those of the words that the prompt does not have."""
    return [word for word in words if not _holds(prompt, word)]


def inserted(prompt: str, words: Sequence[str]) -> str:
    """The prompt with the words in front that it lacks, as captions have them in training."""
    return " ".join([*lacking(prompt, words), prompt.strip()]).strip()


def _words(workspace: Workspace, text: str) -> list[str]:
    try:
        name, scale = split_scale(text)
        known = name if is_name(name) else f"{RUNS}/{name}"
        found = find(workspace, known).trigger if scale else ""
    except ConfigError:  # a file, one on the Hub, or one that is gone: generating says so
        return []
    return [word.strip() for word in found.split(",") if word.strip()]  # a merged LoRA has several


def _holds(prompt: str, word: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(word)}(?!\w)", prompt, re.IGNORECASE) is not None
