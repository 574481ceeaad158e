"""Documents name files, settings, dependencies, links and commands that exist."""

from __future__ import annotations

import ast
import json
import math
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import click
import pytest
from packaging.requirements import Requirement

import workbench
from scripts import docs_site, install
from workbench import __version__, paths
from workbench.captioners import captioners
from workbench.cli import cli
from workbench.cli.options import SettingOption
from workbench.errors import ExitCode
from workbench.families import families
from workbench.families.base import Family
from workbench.jobs import State
from workbench.paths import CODE, extra_command
from workbench.remote.slurm import SlurmBackend
from workbench.remote.ssh import SshBackend

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
NOTEBOOKS = sorted(ROOT.glob("notebooks/*.ipynb"))
HISTORY = ROOT / "CHANGELOG.md"  # it names things that no longer exist


def test_written_pages_are_up_to_date() -> None:
    made = {"settings.md": "page", "modules.md": "modules", "json.md": "documents", "api_calls.md": "calls"}
    writers = ", ".join(f"write.{name}()" for name in made.values())
    code = f"import json; from scripts import write_docs as write; print(json.dumps([{writers}]))"
    written = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    pages = zip(made, json.loads(written.stdout), strict=True)
    old = [name for name, text in pages if text != (ROOT / "docs" / name).read_text(encoding="utf-8")]
    assert not old, f"{', '.join(old)}: run make docs"


def test_requirements_are_those_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    assert [line for line in lines if line and not line.startswith("#")] == project["dependencies"]


def test_a_space_installs_torch_without_cuda_first_and_no_notebook() -> None:
    """Hugging Face installs pre-requirements.txt before requirements.txt, and nothing else of ours."""
    lines = [line for line in (ROOT / "pre-requirements.txt").read_text().splitlines() if not line.startswith("#")]
    assert lines == [f"--extra-index-url {install.CPU_INDEX}", f"torch=={install.TORCH}+cpu"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = [Requirement(line) for line in project["dependencies"]]
    (torch,) = (one for one in needed if one.name == "torch")
    assert torch.specifier.contains(f"{install.TORCH}+cpu"), "requirements.txt is content with it"
    assert not {"jupyterlab", "ipywidgets"} & {one.name for one in needed}


def test_one_version_everywhere() -> None:
    made = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert (made["project"]["dynamic"], made["tool"]["hatch"]["version"]["path"]) == (
        ["version"],
        "workbench/__init__.py",
    )
    newest = re.search(r"^## (\d\S*)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest
    assert __version__ == newest[1]
    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")


def prose(page: Path) -> str:
    """Return the Markdown of a page or a notebook."""
    text = page.read_text(encoding="utf-8")
    if page.suffix == ".md":
        return text
    return "\n\n".join("".join(one["source"]) for one in json.loads(text)["cells"] if one["cell_type"] == "markdown")


def test_links_lead_somewhere() -> None:
    wrong = [
        f"{page.relative_to(ROOT)} links to {target}"
        for page in [*PAGES, *NOTEBOOKS]
        for target in re.findall(r"""(?:\]\(|src=")([^")#\s]+)""", prose(page))
        if not re.match(r"https?://|mailto:", target) and not (page.parent / target).exists()
    ]
    assert not wrong, "\n".join(wrong)


def headings(page: Path) -> set[str]:
    """Return the anchors that GitHub gives a page's headings; mkdocs.yml makes the same."""
    text = re.sub(r"^```.*?^```", "", prose(page), flags=re.DOTALL | re.MULTILINE)
    words = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", one) for one in re.findall(r"^#+ (.+)$", text, re.MULTILINE)]
    return {re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in words}


def test_links_to_headings_lead_to_one() -> None:
    found = [
        (page, target, anchor)
        for page in [*PAGES, *NOTEBOOKS]
        for target, anchor in re.findall(r"\]\(((?!https?:)[^)#\s]*)#([^)\s]+)\)", prose(page))
        if not target or target.endswith(".md")
    ]
    assert len(found) > 30
    wrong = [
        f"{page.relative_to(ROOT)} links to {target}#{anchor}"
        for page, target, anchor in found
        if anchor not in headings((page.parent / target) if target else page)
    ]
    assert not wrong, "\n".join(wrong)


SOURCE = re.compile(r"(?<![\w./~-])(?:[\w.-]+/)+[\w.-]+\.(?:py|js|css|md|ipynb)(?!\w)")
FOLDER = re.compile(r"(?:workbench|tests|benchmarks|docs|assets|scripts|notebooks)/(?:[\w.-]+/)*")
# Files of other projects.
ELSEWHERE = {"training/README.md", "finetune/README.md", "demos/fine_tuner/README.md", "comfy/lora.py"}


def test_paths_in_the_documents_exist() -> None:
    """Files and folders in backticks, from the project's folder, from workbench/ or from the page's."""
    wrong = []
    for page in PAGES:
        if page == HISTORY:
            continue
        for code in re.findall(r"`([^`\n]+)`", page.read_text(encoding="utf-8")):
            folder = FOLDER.fullmatch(code)
            for path in {*SOURCE.findall(code), *([folder[0]] if folder else [])} - ELSEWHERE:
                if not any((base / path).exists() for base in (ROOT, ROOT / "workbench", page.parent)):
                    wrong.append(f"{page.name} names {path}")
    assert not wrong, "\n".join(wrong)


def test_tests_in_the_documents_exist() -> None:
    """`tests/file.py::name`: that file defines the function."""
    named = [one for page in PAGES for one in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", page.read_text("utf-8"))]
    assert named
    missing = [f"{file}::{name}" for file, name in named if f"\ndef {name}(" not in (ROOT / file).read_text("utf-8")]
    assert not missing, ", ".join(missing)


def test_targets_of_make_in_the_documents_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for page in PAGES:
        for target in re.findall(r"`make ([a-z-]+)", page.read_text(encoding="utf-8")):
            assert f"\n{target}:" in makefile, f"{page.name}: make {target}"


def test_exit_codes_and_states_are_documented() -> None:
    text = (ROOT / "docs" / "file_formats.md").read_text(encoding="utf-8")
    for code in ExitCode:
        assert re.search(rf"^\| {int(code)} \|", text, re.MULTILINE), f"exit code {int(code)} ({code.name})"
    for state in State:
        assert f"`{state.value}`" in text, f"state {state.value}"


# ---- the site


def test_the_python_api_names_what_is_exported() -> None:
    targets = re.findall(r"^::: (\S+)\.(\w+)$", docs_site.python_api(), re.MULTILINE)
    exported = {*workbench.__all__, *import_module("workbench.notebook").__all__}
    assert exported <= {name for _, name in targets}
    for module, name in targets:
        assert hasattr(import_module(module), name)


def test_the_page_links_to_the_site() -> None:
    (address,) = re.findall(r"^site_url: (\S+)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    elements = ROOT / "assets" / "elements"
    assert f"const DOCUMENTATION = '{address}';" in (elements / "parts.js").read_text(encoding="utf-8")
    for name in ("home.js", "app.js"):
        assert "${documentation()}" in (elements / name).read_text(encoding="utf-8")
    assert f'Documentation = "{address}"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def test_the_site_has_the_replays_and_needs_no_package_for_them() -> None:
    """The site is built where only MkDocs is installed."""
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); from scripts import docs_site\n"
        "print(docs_site.replay_page())\n"
        "for replay in docs_site.replays().values(): print(sum(map(len, docs_site.replay_file(replay))))"
    )
    made = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True)
    assert 'src="../replays/stripes.html"' in made.stdout
    assert int(made.stdout.split()[-1]) > 500_000  # videos and script are inside


# ---- commands that are named


# What stands behind `workbench` in a command line; "the workbench is ..." is prose.
WORD = r"[a-z][a-z-]*|--?[a-z][a-z-]*|[A-Z][\w@.=-]*"
COMMAND = re.compile(rf"(?<![\w./-])(?<!the )(?<!a )(?<!from )workbench((?: (?:{WORD}))+)")
PROSE = {"or", "is", "with", "installed", "itself", "and", "on", "in", "from", "comes", "loads", "made", "over"}


def code_of(page: Path) -> Iterator[str]:
    """Yield fenced blocks and spans in backticks."""
    text = page.read_text(encoding="utf-8")
    yield from re.findall(r"^```.*?\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    yield from re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE))


def strings_of(module: Path) -> Iterator[str]:
    """Yield a module's messages and help texts, and the code in its other docstrings.

    Values of f-strings become a capital letter.
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
        # The changelog also names former commands.
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
    """Return the part of a command line that does not exist, or ""."""
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
    """Yield (page, arguments) of every complete command line, in blocks and in backticks."""
    for page in PAGES:
        for code in code_of(page) if page.name != "CHANGELOG.md" else ():
            for line in code.replace("\\\n", " ").splitlines():
                if match := re.match(r"\s*(?:\$ |[A-Z_]+=\S+ )*(?:\S*/)?workbench (.*)", line):
                    yield page, re.split(r" \||&&|>|;|\.\.\.", match[1])[0]


def unfit(line: str) -> str:
    """Return why the command would refuse these arguments or settings, or "", without running it."""
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


# ---- extras


EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]


def test_every_variant_of_every_family_has_a_row_of_checks() -> None:
    """And no cell is empty; the tests that the columns name exist, as everywhere."""
    text = (ROOT / "docs" / "add_a_family.md").read_text(encoding="utf-8")
    table = text.partition("## What was checked for each variant")[2].partition("| Column |")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if line[:1] == "|"][2:]
    assert [row[0] for row in rows] == [f"{family.name} {toy}" for family in families() for toy in family.toys]
    assert all(len(row) == 11 and all(row) for row in rows)


def test_every_extra_that_is_asked_for_by_name_exists() -> None:
    calls = re.compile(r"extra_command\(['\"](\w+)['\"]\)")
    named = {one for module in (ROOT / "workbench").rglob("*.py") for one in calls.findall(module.read_text("utf-8"))}
    named |= {kind.extra for kind in captioners().values() if kind.extra}
    named |= {SshBackend.kind, SlurmBackend.kind}
    assert {"caption", "text", "parquet", "optimizers", "ssh", "slurm"} <= named
    assert named <= set(EXTRAS)


def test_the_command_follows_how_the_package_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "version", lambda name: "1")
    assert extra_command("text") == "pip install 'video-lora-workbench[text]'"

    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(paths, "version", missing)
    assert extra_command("text") == f"pip install -e '{CODE}[text]'"
