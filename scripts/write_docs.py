"""Write settings.md, modules.md, json.md and api_calls.md of docs/ from declarations and docstrings: `make docs`.

tests/test_docs.py holds the files to them.
"""

from __future__ import annotations

import ast
import sys
from itertools import groupby
from pathlib import Path

from workbench.cli.operations import Document
from workbench.cli.operations import documents as json_documents
from workbench.compare.settings import GridSettings
from workbench.dataset_builder.settings import (
    CaptionSettings,
    CheckSettings,
    ExportSettings,
    ImportSettings,
    MakeSettings,
    SplitTask,
    TrackSettings,
)
from workbench.families import families, models
from workbench.families.model import Model
from workbench.families.phenaki.models import NewModelSettings
from workbench.loras import settings as loras
from workbench.loras.removal import CleaningSettings
from workbench.operations.registry import operations
from workbench.publishing.settings import LoraPush, SpacePush
from workbench.runs.settings import TrainSettings
from workbench.sampler.settings import SampleSettings, WorkerSettings
from workbench.settings import Settings, Spec, specs

MOST_FIELDS = 12  # of a call, in its table
ROOT = Path(__file__).resolve().parent.parent
JSON_HEAD = """# What commands print for programs

Written by `make docs` from the snapshots of `workbench/operations/`: change them there.

With `--json` a command prints one JSON document on stdout and nothing else; errors and progress go to stderr, and the
exit codes are those of [file_formats.md](file_formats.md). The [HTTP API](api.md) gives the same documents of runs,
datasets and the workspace. Keys may be added, and are not taken away without a line in the changelog.
"""
CALLS_HEAD = """# Calls of the API

Written by `make docs` from the operations of `workbench/operations/`: change them there. [api.md](api.md) has the
token, examples, errors, and the few calls that send a file, a zip or events.

GET calls take their fields from the query string, POST calls from a JSON object; `{name}` is part of the path. Fields
in brackets are optional. Most are commands, too: `workbench NOUN VERB` prints the same answer with `--json`
([json.md](json.md)).
"""
MODULES_HEAD = """# Every module

Written by `make docs` from what each module says first. How they work together: [architecture.md](architecture.md).
"""
HEAD = """# Settings

Written by `make docs` from the declarations in `workbench/`: change them there.

Each setting is one declaration, and everything that shows it is made from that: the page's and the notebook's forms,
`--flags` with the same name (`learning_rate` is `--learning-rate`), JSON files for `--config`, this page, and the
sentence that refuses a wrong value. Unknown names are refused, too. Settings marked * are "advanced" in the forms.
"""
CLASSES: tuple[tuple[str, str, type[Settings]], ...] = (
    ("Training a LoRA", "`workbench train`, `runs/<name>/config.json`", TrainSettings),
    ("A Phenaki from scratch", "`workbench train --model phenaki --from-scratch`", NewModelSettings),
    ("Generating a sample", '`workbench sample`, "settings" in `samples/<day>/<id>.json`', SampleSettings),
    ("Importing clips", "`workbench dataset import`, `datasets/<name>/.import/config.json`", ImportSettings),
    ("Splitting clips", "`workbench dataset split`, `datasets/<name>/.split/config.json`", SplitTask),
    ("Checking a dataset", "`workbench dataset check`, `datasets/<name>/.check/config.json`", CheckSettings),
    (
        "Captions by a model",
        "`workbench dataset auto-caption`, `datasets/<name>/.caption/config.json`",
        CaptionSettings,
    ),
    ("Making edges, depth, poses", "`workbench dataset make`, `datasets/<name>/.make/config.json`", MakeSettings),
    ("Tracking masks", "`workbench dataset track`, `datasets/<name>/.track/config.json`", TrackSettings),
    ("Exporting a dataset", "`workbench dataset export`, `datasets/<name>/.export/config.json`", ExportSettings),
    ("A grid of videos", '`workbench grid make`, "settings" in `grids/<name>/grid.json`', GridSettings),
    ("Merging LoRAs", "`workbench loras merge`", loras.MergeSettings),
    ("Resizing a LoRA", "`workbench loras resize`", loras.ResizeSettings),
    ("Extracting a LoRA", "`workbench loras extract`", loras.ExtractSettings),
    ("Fusing LoRAs into a model", "`workbench loras fuse`", loras.FuseSettings),
    ("Importing a LoRA", "`workbench loras import`", loras.LoraImportSettings),
    ("Converting a LoRA", "`workbench loras convert`", loras.ConvertSettings),
    ("Cleaning up LoRAs", "`workbench loras clean`", CleaningSettings),
    ("Pushing a LoRA to the Hub", "`workbench publish lora`, `publishing/lora--<name>/config.json`", LoraPush),
    ("Making a demo Space", "`workbench publish space`, `publishing/space--<name>/config.json`", SpacePush),
    ("The sampling worker", "`samples/.worker/config.json`", WorkerSettings),
)


def page() -> str:
    """The whole of docs/settings.md."""
    parts = [HEAD]
    for title, where, cls in CLASSES:
        parts.append(f"## {title}\n\n{where}\n")
        for section, members in groupby(specs(cls), key=lambda spec: spec.section):
            parts += [f"### {section}\n", _table(list(members))]
    parts += ["## Settings that only some models have\n", _own()]
    parts += ["## Models\n", _models(models())]
    return "\n".join(parts)


def _table(members: list[Spec]) -> str:
    rows = ["| Setting | Default | Legal | What it does |", "| --- | --- | --- | --- |"]
    for spec in members:
        mark = "*" if spec.advanced else ""
        empty = "(empty)" if spec.kind in ("text", "texts") or spec.optional else ""
        default = f"`{' '.join(str(spec.default).split())}`" if spec.default not in (None, "", ()) else empty
        rows.append(
            f"| `{spec.name}`{mark} | {default} | {spec.rule.replace('|', '/')} | {spec.help.replace('|', '/')} |"
        )
    return "\n".join(rows) + "\n"


def _own() -> str:
    rows = [
        "Forms show these where the chosen model has them; elsewhere they are refused.\n",
        "| Setting | Model | Empty |",
        "| --- | --- | --- |",
    ]
    for family in families():
        by_setting: dict[tuple[str, str], list[str]] = {}
        for model in family.models:
            for name, own in family.own_settings(model).items():
                by_setting.setdefault((name, str(own) or "as above"), []).append(model.id)
        for (name, text), ids in by_setting.items():
            which = family.title if len(ids) == len(family.models) else ", ".join(f"`{one}`" for one in ids)
            rows.append(f"| `{name}` | {which} | {text} |")
    return "\n".join(rows) + "\n"


def _models(known: list[Model]) -> str:
    rows = [
        "| Id | Model | Weights | Made for | Frames | Sizes | License |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for model in known:
        commit = f"at `{model.revision[:8]}`" if model.revision else "at the commit of its first use"
        weights = f"`{model.source}` {commit}, {model.download_gb:g} GB"
        rows.append(
            f"| `{model.id}` | {model.title} | {'in the project' if model.local else weights} "
            f"| {model.frames} frames of {model.width}x{model.height} at {model.fps} fps | {model.frames_in_words} "
            f"| multiples of {model.size_multiple} | {model.license} |"
        )
    return "\n".join(rows) + "\n"


def modules() -> str:
    """The whole of docs/modules.md: a table a package."""
    parts = [MODULES_HEAD]
    for folder in sorted({path.parent for path in (ROOT / "workbench").rglob("*.py")}):
        parts.append(f"## {folder.relative_to(ROOT)}/\n\n{_first_sentence(folder / '__init__.py')}\n")
        files = [path for path in sorted(folder.glob("*.py")) if path.name != "__init__.py"]
        rows = [f"| `{path.name}` | {_first_sentence(path)} |" for path in files]
        if rows:
            parts.append("\n".join(["| Module | What it does |", "| --- | --- |", *rows]) + "\n")
    return "\n".join(parts)


def documents() -> str:
    """The whole of docs/json.md: a table a command."""
    parts = [JSON_HEAD]
    same: dict[tuple[tuple[str, str], ...], list[tuple[str, Document]]] = {}
    for command, document in json_documents().items():  # several commands may print the same
        same.setdefault(tuple(document.keys.items()), []).append((command, document))
    for keys, found in same.items():
        parts += [f"## {', '.join(f'workbench {command} --json' for command, _ in found)}\n"]
        for _, document in found:
            parts.append(f"{document.about} {'A list of objects:' if document.many else 'An object:'}\n")
        rows = ["| Key | What it is |", "| --- | --- |", *(f"| `{key}` | {text} |" for key, text in keys)]
        parts.append("\n".join(rows) + "\n")
    return "\n".join(parts)


def calls() -> str:
    """The whole of docs/api_calls.md: a table a noun."""
    parts = [CALLS_HEAD]
    for noun, members in groupby(operations(), key=lambda one: one.noun):
        parts.append(f"## {noun.capitalize()}\n\n| Call | What it does | Fields |\n| --- | --- | --- |")
        for one in members:
            fields = [f"`{spec.name}`" if spec.required else f"[`{spec.name}`]" for spec in specs(one.inputs)]
            if len(fields) > MOST_FIELDS:
                fields = ["those of [settings.md](settings.md)"]
            call, what = f"{'POST' if one.changes else 'GET'} {one.path}", " ".join(one.help.split("\n\n")[0].split())
            what += f" As events: `GET {one.path}/events`." if one.watch else ""
            parts.append(f"| `{call}` | {what} | {' '.join(fields)} |")
        parts[-1] += "\n"
    return "\n".join(parts)


def _first_sentence(path: Path) -> str:
    said = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    paragraph = " ".join(said.split("\n\n")[0].split())
    return paragraph.rstrip(":").replace("|", "/")


def main() -> int:
    written = {"settings.md": page(), "modules.md": modules(), "json.md": documents(), "api_calls.md": calls()}
    for name, text in written.items():
        (ROOT / "docs" / name).write_text(text, encoding="utf-8")
        print(f"wrote docs/{name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
