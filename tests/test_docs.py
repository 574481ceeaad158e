"""The documents tell the truth: file tree, paths, settings, dependencies, links, commands, exit codes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from scripts import install
from workbench import __version__
from workbench.cli import COMMANDS
from workbench.errors import ExitCode
from workbench.jobs import State

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
HISTORY = ROOT / "CHANGELOG.md"  # it names what was there once
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def tree() -> Iterator[tuple[str, str]]:
    """(path, phrase) of every line of the file tree."""
    block = re.search(r"<!-- tree -->\n```\n(.*?)```", ARCHITECTURE, re.DOTALL)
    assert block, "docs/architecture.md has a file tree after <!-- tree -->"
    folders: list[str] = []
    for line in block[1].splitlines():
        found = re.match(r"( *)(\S+)  +(\S.*)", line)
        assert found, f"a line of the tree is a name and a phrase: {line!r}"
        depth = len(found[1]) // 2
        folders = [*folders[:depth], found[2]]
        yield "".join(folders), found[3]


def tracked() -> set[str]:
    """The project's files: those that git knows, and new ones that it does not ignore."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    if listed.returncode:
        pytest.skip("not a git checkout")
    return {path for path in listed.stdout.splitlines() if (ROOT / path).exists()}


def test_the_file_tree_names_only_what_is_there() -> None:
    for path, phrase in tree():
        assert (ROOT / path).exists(), f"the tree in docs/architecture.md names {path}, which is not there"
        assert phrase


def test_the_file_tree_names_every_part() -> None:
    named = {path for path, _ in tree()}
    below = {path.split("/")[1] for path in tracked() if path.startswith("workbench/") and not path.endswith("_.py")}
    parts = {f"workbench/{name}{'' if name.endswith('.py') else '/'}" for name in below}
    top = {path.split("/")[0] + ("/" if "/" in path else "") for path in tracked()}
    missing = sorted((parts | top) - named - {".gitignore", ".ci/", ".gitattributes", ".github/"})
    assert not missing, f"the tree in docs/architecture.md lacks {', '.join(missing)}"


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


def test_links_lead_somewhere() -> None:
    wrong = [
        f"{page.relative_to(ROOT)} links to {target}"
        for page in PAGES
        for target in re.findall(r"""(?:\]\(|src=")([^")#\s]+)""", page.read_text(encoding="utf-8"))
        if not re.match(r"https?://|mailto:", target) and not (page.parent / target).exists()
    ]
    assert not wrong, "\n".join(wrong)


SOURCE = re.compile(r"(?<![\w./~-])(?:[\w.-]+/)+[\w.-]+\.(?:py|js|css|md|ipynb)(?!\w)")
FOLDER = re.compile(r"(?:workbench|tests|benchmarks|docs|assets|scripts|notebooks)/(?:[\w.-]+/)*")
# Files of other projects.
ELSEWHERE = {"training/README.md", "finetune/README.md"}


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
    """`tests/file.py::name`: the function stands in that file."""
    named = [one for page in PAGES for one in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", page.read_text("utf-8"))]
    assert named
    missing = [f"{file}::{name}" for file, name in named if f"\ndef {name}(" not in (ROOT / file).read_text("utf-8")]
    assert not missing, ", ".join(missing)


def test_commands_in_the_documents_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for command in re.findall(r"^(?:\$ )?workbench ([a-z]+)", text, re.MULTILINE):
            assert command in COMMANDS, f"{page.name}: workbench {command}"
        for target in re.findall(r"`make ([a-z-]+)", text):
            assert f"\n{target}:" in makefile, f"{page.name}: make {target}"


def test_exit_codes_and_states_are_documented() -> None:
    text = (ROOT / "docs" / "file_formats.md").read_text(encoding="utf-8")
    for code in ExitCode:
        assert re.search(rf"^\| {int(code)} \|", text, re.MULTILINE), f"exit code {int(code)} ({code.name})"
    for state in State:
        assert f"`{state.value}`" in text, f"state {state.value}"


def test_every_command_has_help() -> None:
    asked = subprocess.run([sys.executable, "-m", "workbench", "--help"], capture_output=True, text=True, check=True)
    for name in COMMANDS:
        assert re.search(rf"^  {name} +\w", asked.stdout, re.MULTILINE)
