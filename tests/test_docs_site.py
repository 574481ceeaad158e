"""The documents as a site: links that work there too, every page in the navigation, one address of the repository."""

from __future__ import annotations

import re
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml

import workbench
from scripts import docs_site

ROOT = Path(__file__).resolve().parent.parent
REPOSITORY = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]["Repository"]


class Loader(yaml.SafeLoader):
    """Of mkdocs.yml, which names a Python function."""


Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, suffix, node: suffix)
SITE = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), Loader)


@pytest.mark.parametrize(
    ("address", "link", "turned"),
    [
        ("guide.md", "[x](memory.md#presets)", "[x](memory.md#presets)"),
        ("guide.md", "[x](../README.md)", "[x](index.md)"),
        ("guide.md", "[x](../workbench/paths.py)", f"[x]({REPOSITORY}/blob/main/workbench/paths.py)"),
        ("guide.md", "[x](decisions/)", "[x](decisions/README.md)"),
        ("guide.md", "[x](screenshots.py)", f"[x]({REPOSITORY}/blob/main/docs/screenshots.py)"),
        ("guide.md", "[x](https://a.b/c.md), [y](#here)", "[x](https://a.b/c.md), [y](#here)"),
        ("index.md", "![x](docs/images/home.webp)", "![x](images/home.webp)"),
        ("index.md", "[x](notebooks/)", f"[x]({REPOSITORY}/tree/main/notebooks)"),
        ("decisions/gradio.md", "[x](../../CHANGELOG.md)", "[x](../CHANGELOG.md)"),
    ],
)
def test_a_link_leads_to_the_page_or_to_the_repository(address: str, link: str, turned: str) -> None:
    assert docs_site.with_links(link, address, REPOSITORY) == turned


def pages(nav: Any) -> list[str]:
    """Addresses in the navigation, whatever their depth."""
    if isinstance(nav, str):
        return [nav]
    return [page for one in (nav.values() if isinstance(nav, dict) else nav) for page in pages(one)]


def test_every_document_is_in_the_navigation() -> None:
    documents = {path.name for path in (ROOT / "docs").glob("*.md")} | {docs_site.PYTHON_API, "decisions/README.md"}
    named = pages(SITE["nav"])
    assert sorted(named) == sorted({*named})
    assert set(named) - {*docs_site.BESIDE} == documents


def test_the_python_api_names_what_is_exported() -> None:
    targets = re.findall(r"^::: (\S+)\.(\w+)$", docs_site.python_api(), re.MULTILINE)
    exported = {*workbench.__all__, *import_module("workbench.notebook").__all__}
    assert exported <= {name for _, name in targets}
    for module, name in targets:
        assert hasattr(import_module(module), name)


def test_the_repository_has_one_address() -> None:
    assert SITE["repo_url"] == REPOSITORY
    files = ("CITATION.cff", ".github/ISSUE_TEMPLATE/config.yml", "docs/hosts.md", "notebooks/1_quickstart.ipynb")
    owner = REPOSITORY.rpartition("/")[0]
    for name in files:
        text = (ROOT / name).read_text(encoding="utf-8")
        assert REPOSITORY in text, name
        assert not [one for one in re.findall(r"https://github\.com/video-lora[\w-]*", text) if one != owner], name
