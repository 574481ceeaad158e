"""Every `pip install ...` in a message or a document is one that pip can follow: real packages, real extras, quoted."""

from __future__ import annotations

import re
import shlex
import tomllib
from importlib.metadata import PackageNotFoundError

import pytest

from tests.test_commands_named import PAGES, ROOT, code_of, strings_of
from workbench import paths
from workbench.captioners import captioners
from workbench.paths import CODE, PACKAGE, extra_command
from workbench.remote.slurm import SlurmBackend
from workbench.remote.ssh import SshBackend

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
NAME = re.compile(r"[A-Za-z0-9._-]+")
# Beside what this project depends on: a package that is built for a machine's own CUDA, and what runs the tests.
ALSO = {"flash-attn", "pytest"}
HINT = re.compile(r"pip install ((?:(?:-e )?'[^']+'|[a-z0-9][\w.-]*)(?: '[^']+')*)")
PLACEHOLDERS = {"X", "NAME", "what", "--force-reinstall"}


def requirement(text: str) -> str:
    found = NAME.match(text)
    assert found, text
    return found[0].lower()


KNOWN = ALSO | {requirement(one) for one in [*PROJECT["dependencies"], *(r for rs in EXTRAS.values() for r in rs)]}


def problem(hint: str) -> str:
    """Why pip cannot follow it, "" when it can."""
    for word in shlex.split(hint):
        name, _, rest = word.partition("[")
        if word == "-e" or word in PLACEHOLDERS:
            continue
        if rest and rest.removesuffix("]") not in EXTRAS:
            return f"no extra {rest}"
        if rest and f"'{word}'" not in hint:
            return f"{word} is not quoted, and a shell may take its brackets for a pattern"
        if not rest and requirement(word) not in KNOWN:
            return f"no package {word}"
        if rest and name not in (PACKAGE, ".", str(CODE)):
            return f"{name} has no such extra"
    return ""


def test_every_hint_names_real_packages_and_extras() -> None:
    texts = [(page, text) for page in PAGES if page.name != "CHANGELOG.md" for text in code_of(page)]
    texts += [(module, text) for module in (ROOT / "workbench").rglob("*.py") for text in strings_of(module)]
    texts = [(path, text) for path, text in texts if path.name != "paths.py"]  # of extra_command: below
    hints = [(path, hint) for path, text in texts for hint in HINT.findall(text)]
    assert len(hints) > 4
    wrong = [f"{path}: pip install {hint}: {why}" for path, hint in hints if (why := problem(hint))]
    assert not wrong, "\n".join(wrong)
    assert problem("wandb[all]")
    assert problem("no-such-thing")


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
    assert not problem(extra_command("text").removeprefix("pip install "))
