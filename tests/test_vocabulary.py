"""One word has one meaning: what the project no longer calls things, in code, commands, settings and labels.

The tables hold words that were given up and what took their place, which a failure names. An identifier is split
into its words (`draw_latents`: draw, latents), a label as in English. Not covered: docstrings, comments and messages.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import pytest

from scripts.write_docs import CLASSES
from workbench.cli import cli
from workbench.settings import specs

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "workbench"


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Words that stand in no identifier, command, setting or label: what is written instead.
WORDS = {
    "mend mends mended mending": "fix (the dataset check); convert (to the canonical form)",
    "draw draws drawing drawings drawn": "generate, sample (a video, a random number); render, plot (a chart)",
    "reckon reckons reckoned reckoning": "estimate",
    "leak leaks": "prior drift, preservation prompts",
    "everyday": "preservation prompts",
    "streamed streaming": "block swap, blocks_to_swap",
    "stepping": "oom_fallback",
    "mirrored": "flip, horizontal flip",
    "watchdog": "stall timeout",
    "bake bakes baked baking": "fuse",
    "shelf shelves": "LoRA library",
    "place places placed": "device, rank, index, target, slot",
    "verdict verdicts": "import result (a file), diagnosis (a run)",
    "engine engines": "backend; memory (the package)",
    "recording recordings": "source video; replay",
    "parcel parcels": "upload plan",
    "ladder ladders": "memory levels",
    "loadout loadouts": "offload plan",
    "wear wears worn": "apply, active (adapters)",
    "keeper keepers": "launcher",
    "mirror mirrors": "sync",
    "nearby": "shared disk",
    "room rooms": "session (of the public demo)",
    "door doors": "proxy",
    "orders obey obeys": "commands",
    "try trying": "live sample",
    "glance glances": "snapshot, summary",
    "sees": "model input",
    "said told asked": "message, text, request",
    "shown": "training inputs, or what it is",
    "lettering": "text detection",
    "likeness": "similarity",
    "guess guesses guessed guessing": "step skipping",
    "rough": "latent preview",
    "frugal": "low-memory",
    "wall walls": "grid",
    "licence licences": "license",
    "card cards": "failure, GPU",
}
# Whole names, where the word alone has other meanings that stay.
NAMES = {
    "known_clips": "regularization_dataset",
    "base_weights": "base_model_precision",
    "step_down": "oom_fallback",
    "hang_minutes": "stall_timeout",
    "leak_prompts": "preservation_prompts",
    "watching": "previews, checkpoints, logging",
    "only_look": "preview",
    "_there": "on device",
    "_vae_there": "on device",
    "Turn": "QueueSlot",
}
MODULES = {
    "borders": "letterbox",
    "signals": "frame_metrics",
    "starts": "sessions",
    "reports": "view",
    "plain": "anonymize",
    "box": "folder",
    "there": "server",
    "look": "estimate",
    "encode": "encoder",
    "reconstruct": "reconstruction_worker",
    "engine": "memory",
}
# Words of labels and of commands alone; in code they are fine.
IN_LABELS = {
    "doctor": "check",
    "writer": "prompt enhancer",
    "patience": "timeout",
    "watching": "previews, checkpoints, logging",
    "look first": "preview (dry run)",
    "only look": "preview (dry run)",
    "do again": "redo",
    "take out": "remove",
    "put behind": "append",
    "known clips": "regularization dataset",
    "work into the model": "fuse",
    "recorded run": "replay",
}
IN_COMMANDS = {"mend": "fix", "whole": "reset-cut", "rate": "set-fps", "wall": "grid", "places": "targets"}

# Where a word stays: the field's own words, plain English beside its old meaning, and other people's names.
# `card`: of a model or a dataset on the Hub, and clips and LoRAs on the page; `room`: on a disk, for text.
ALLOWED = words(
    "card _card CARD CARD_TITLE BAD_CARD CardFacts card_facts model_card dataset_card"
    " clip_cards _cards ClipCards make_room _make_room text_room ROOM"
)
ALLOWED_COMMANDS = {"doctor", "card"}  # of the machine; of a model
ALLOWED_LABELS = {"model card", "dataset card", "card", "try several values", "values to try"}

MOST_SKIPPED_FORMATS = 19  # `# fmt: skip` in the whole project


def _table(groups: dict[str, str]) -> dict[str, str]:
    return {word: instead for several, instead in groups.items() for word in several.split()}


def parts(name: str) -> list[str]:
    """The words of an identifier: sample_latents, drawLatents and DrawLatents have "draw" and "latents"."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]


@cache
def trees() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(PACKAGE.rglob("*.py"))}


def identifiers() -> Iterator[tuple[str, str]]:
    """Every name that the package defines, and where: modules, functions, classes, arguments, variables, attributes."""
    for path, tree in trees().items():
        where = str(path.relative_to(ROOT))
        yield path.stem, where
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield node.name, f"{where}:{node.lineno}"
            elif isinstance(node, ast.arg):
                yield node.arg, f"{where}:{node.lineno}"
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.id, f"{where}:{node.lineno}"
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                yield node.attr, f"{where}:{node.lineno}"


def settings_of_all() -> Iterator[tuple[str, str]]:
    """(text, where) of the names, titles and sections of all settings."""
    for _, _, cls in CLASSES:
        for spec in specs(cls):
            for text in (spec.name, spec.title, spec.section):
                yield text, f"{cls.__name__}.{spec.name}"


COMPONENTS = words(
    "Button DownloadButton Tab Accordion Radio Checkbox Dropdown Textbox Markdown Number Slider ToggleButtons Text"
)
KEYWORDS = {"label", "description", "placeholder", "title", "tooltip"}


def labels() -> Iterator[tuple[str, str]]:
    """(text, where) of what buttons, tabs and fields are called, on the page and in notebooks."""
    for path, tree in trees().items():
        if path.relative_to(PACKAGE).parts[0] not in ("ui", "notebook"):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                given = node.args[:1] if name in COMPONENTS else []
                given += [keyword.value for keyword in node.keywords if keyword.arg in KEYWORDS]
                for value in given:
                    if isinstance(value, ast.Constant) and isinstance(value.value, str):
                        yield value.value, f"{path.relative_to(ROOT)}:{node.lineno}"


def commands(command: click.Command, name: str = "workbench") -> Iterator[tuple[str, str]]:
    """(name, where) of every command and its flags."""
    context = click.Context(command)
    for parameter in command.params:
        for flag in parameter.opts:
            yield flag.lstrip("-"), f"{name} {flag}"
    if isinstance(command, click.Group):
        for below in command.list_commands(context):
            yield below, f"{name} {below}"
            found = command.get_command(context, below)
            assert found is not None, below
            yield from commands(found, f"{name} {below}")


def test_identifiers_use_the_words_of_the_field() -> None:
    table, wrong = _table(WORDS), []
    for name, where in identifiers():
        for word in parts(name):
            if word in table and name not in ALLOWED:
                wrong.append(f"{where} {name}: say {table[word]} instead of {word}")
        if name in NAMES:
            wrong.append(f"{where} {name}: say {NAMES[name]}")
    assert not wrong, "\n".join(wrong)


def test_modules_use_the_words_of_the_field() -> None:
    wrong = [f"{path.relative_to(ROOT)}: {MODULES[path.stem]}" for path in trees() if path.stem in MODULES]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("texts", [settings_of_all, labels], ids=["settings", "labels"])
def test_settings_and_labels_use_the_words_of_the_field(texts: object) -> None:
    assert callable(texts)
    table, wrong = {**_table(WORDS), **IN_LABELS}, []
    for text, where in texts():
        plain = " ".join(re.findall(r"[a-z]+", text.lower()))
        for stays in ALLOWED_LABELS:
            plain = plain.replace(stays, "")
        for word, instead in table.items():
            if re.search(rf"\b{word}\b", plain):
                wrong.append(f"{where} {text!r}: say {instead} instead of {word}")
    assert not wrong, "\n".join(wrong)


def test_commands_and_flags_use_the_words_of_the_field() -> None:
    table, wrong = _table(WORDS), []
    for name, where in commands(cli):
        if name in IN_COMMANDS:
            wrong.append(f"{where}: say {IN_COMMANDS[name]}")
        for word in name.split("-"):
            if word in table and word not in ALLOWED_COMMANDS:
                wrong.append(f"{where}: say {table[word]} instead of {word}")
    assert not wrong, "\n".join(wrong)


def test_class_names_are_unique() -> None:
    found = Counter(node.name for tree in trees().values() for node in tree.body if isinstance(node, ast.ClassDef))
    assert not [name for name, count in found.items() if count > 1]


def test_the_formatter_is_seldom_switched_off() -> None:
    folders = ("workbench", "tests", "benchmarks", "scripts", "assets", "docs")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*.py") if path != Path(__file__)]
    skipped = sum(path.read_text(encoding="utf-8").count("# fmt: skip") for path in files)
    assert skipped <= MOST_SKIPPED_FORMATS
