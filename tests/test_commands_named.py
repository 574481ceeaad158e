"""Every command that a document, a message, a help text or a notebook names exists, with the flags that it names.

Likewise every method that docs/add_a_family.md names exists on the contract.
"""

from __future__ import annotations

import ast
import json
import math
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click

from workbench.cli import cli
from workbench.cli.options import SettingOption
from workbench.families import families
from workbench.families.base import Family

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
# What stands behind `workbench` in a command line; "the workbench is ..." is prose.
WORD = r"[a-z][a-z-]*|--?[a-z][a-z-]*|[A-Z][\w@.=-]*"
COMMAND = re.compile(rf"(?<![\w./-])(?<!the )(?<!a )(?<!from )workbench((?: (?:{WORD}))+)")
PROSE = {"or", "is", "with", "installed", "itself", "and", "on", "in", "from", "comes", "loads", "made", "over"}


def code_of(page: Path) -> Iterator[str]:
    """Fenced blocks and spans in backticks; lines that end in a backslash are joined."""
    text = page.read_text(encoding="utf-8")
    yield from re.findall(r"^```.*?\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    yield from re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE))


def strings_of(module: Path) -> Iterator[str]:
    """Messages and help texts of a module, and of other docstrings what stands in backticks or is indented as code.

    What an f-string fills in is a capital letter.
    """
    tree = ast.parse(module.read_text(encoding="utf-8"))
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    owners = [node for node in ast.walk(tree) if isinstance(node, kinds) and ast.get_docstring(node)]
    if "cli" in module.parts:  # a command's docstring is its help
        owners = [owner for owner in owners if isinstance(owner, ast.Module)]
    docs = {id(owner.body[0].value) for owner in owners if isinstance(owner.body[0], ast.Expr)}
    for owner in owners:
        text = ast.get_docstring(owner) or ""
        yield from re.findall(r"`([^`\n]+)`", text)
        yield from re.findall(r"^ {4,}(workbench .*)", text, re.MULTILINE)
    inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = [str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values]
            yield "".join(parts)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside | docs:
            yield node.value


def named() -> Iterator[tuple[Path, str]]:
    """(file, what follows the word workbench) of every command line."""
    for page in PAGES:
        # The changelog's table names commands that there were.
        for code in code_of(page) if page.name != "CHANGELOG.md" else ():
            yield from ((page, found) for found in COMMAND.findall(code.replace("\\\n", " ")))
    for module in (ROOT / "workbench").rglob("*.py"):
        for text in strings_of(module):
            yield from ((module, found) for found in COMMAND.findall(text))
    for notebook in (ROOT / "notebooks").glob("*.ipynb"):
        for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
            source = "".join(cell["source"])
            spans = re.findall(r"`([^`\n]+)`", source) if cell["cell_type"] == "markdown" else [source]
            yield from ((notebook, found) for span in spans for found in COMMAND.findall(span))


def wrong(line: str) -> str:
    """What does not exist of a command line, "" when all of it does."""
    words = line.split()
    command: click.Command = cli
    context = click.Context(cli)
    while isinstance(command, click.Group) and words and words[0][0].islower():
        found = command.get_command(context, words[0])
        if found is None:
            return f"no command {words[0]}"
        command, words = found, words[1:]
    flags = {flag for option in command.params for flag in (*option.opts, *option.secondary_opts)}
    flags |= {"--help", "-h"} | {flag for option in cli.params for flag in option.opts}
    return next((f"no flag {word}" for word in words if word.startswith("--") and word not in flags), "")


def test_every_command_that_is_named_exists() -> None:
    faults, count = [], 0
    for file, line in named():
        if line.split()[0] in PROSE:
            continue
        count += 1
        if fault := wrong(line):
            faults.append(f"{file.relative_to(ROOT)}: workbench{line}: {fault}")
    assert not faults, "\n".join(sorted(set(faults)))
    assert count > 150


def documented() -> Iterator[tuple[Path, str]]:
    """(page, arguments) of every whole command line: those in blocks, and those in backticks that have arguments."""
    for page in PAGES:
        for code in code_of(page) if page.name != "CHANGELOG.md" else ():
            for line in code.replace("\\\n", " ").splitlines():
                if match := re.match(r"\s*(?:\$ |[A-Z_]+=\S+ )*(?:\S*/)?workbench (.*)", line):
                    yield page, re.split(r" \||&&|>|;|\.\.\.", match[1])[0]


def unfit(line: str) -> str:
    """Why the command would refuse these arguments or a setting among them; "" when it takes them. Runs nothing."""
    command, context, words = cli, click.Context(cli), shlex.split(line, comments=True)
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        context = click.Context(command, parent=context)
        command, words = command.get_command(context, words[0]) or command, words[1:]
    if isinstance(command, click.Group) or not words:
        return ""
    try:
        given = command.make_context(command.name, words, parent=context).params
    except click.exceptions.Exit:  # --help
        return ""
    except click.UsageError as error:
        placeholder = re.search(r"'[A-Z_]+' is not one of|does not exist|requires an argument", error.format_message())
        return "" if placeholder else error.format_message()
    for option in command.params:
        if not isinstance(option, SettingOption) or given[option.name] in (None, ()):
            continue
        value, spec = given[option.name], option.spec
        if isinstance(value, str) and not value.isupper():
            if spec.choices and value not in spec.choices:
                return f"{spec.name} is {value}, must be {spec.rule}"
            number = spec.kind in ("integer", "number") and value != "random"
            if number and not (spec.low or -math.inf) <= float(value) <= (spec.high or math.inf):
                return f"{spec.name} is {value}, must be {spec.rule}"
    return ""


def test_every_documented_command_line_is_one_that_the_shell_takes() -> None:
    lines = list(documented())
    faults = [f"{page.relative_to(ROOT)}: workbench {line}: {why}" for page, line in lines if (why := unfit(line))]
    assert not faults, "\n".join(faults)
    assert len(lines) > 150
    assert unfit("train --rank 0") == "rank is 0, must be 1 to 1024"
    assert unfit("train --optimizer adams").startswith("optimizer is adams, must be")
    assert unfit("runs show cats dogs").startswith("Got unexpected extra argument")


def test_every_method_in_add_a_family_is_on_the_contract() -> None:
    text = (ROOT / "docs" / "add_a_family.md").read_text(encoding="utf-8")
    table = text.partition("| Method | Promise |")[2].partition("\n\n")[0]
    cells = [row.split("|")[1] for row in table.splitlines() if row.startswith("|")]
    methods = {name for cell in cells for name in re.findall(r"`(\w+)[`(]", cell)}
    assert len(methods) > 20
    missing = [name for name in sorted(methods) if not callable(getattr(Family, name, None))]
    assert not missing, f"docs/add_a_family.md names {', '.join(missing)}"
    abstract = Family.__abstractmethods__ - methods
    stated = {name for name in abstract if f"`{name}`" in text}
    assert not abstract - stated, f"docs/add_a_family.md leaves out {', '.join(sorted(abstract - stated))}"
    facts = {name for name in re.findall(r"^- (.*?):", text, re.MULTILINE) for name in re.findall(r"`(\w+)`", name)}
    assert all(hasattr(families()[0], name) for name in facts), facts
