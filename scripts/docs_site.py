"""Hooks of MkDocs that turn the documents into a site: `make docs-site`, mkdocs.yml.

They add pages outside docs/, write the Python API from the packages' exports, point links to other files at the
repository, and add the shipped replays, each as one self-contained file.
"""

from __future__ import annotations

import ast
import html
import os
import posixpath
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
# Address on the site -> page outside docs/.
BESIDE = {name: name for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")}
LINK = re.compile(r'(\]\(|src=")(?!https?:|mailto:|#)([^)#"\s]+)')
PYTHON_API, REPLAY, LOGO = "python_api.md", "replay.md", "logo.svg"
REPLAYS = "replays"  # folder of the replays' own files on the site


def on_files(files: Any, config: Any) -> Any:
    """Add the pages outside docs/, and those that are written here."""
    from mkdocs.structure.files import File

    texts = {address: (ROOT / name).read_text(encoding="utf-8") for address, name in BESIDE.items()}
    for address, text in {**texts, PYTHON_API: python_api(), REPLAY: replay_page()}.items():
        files.append(File.generated(config, address, content=text))
    files.append(File.generated(config, LOGO, content=(ROOT / "assets" / LOGO).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Rewrite links for the site, and markup that GitHub accepts but Python-Markdown does not."""
    address = page.file.src_uri
    markdown = re.sub(r"^(<!-- .* -->)$", r"\1\n", markdown, flags=re.MULTILINE)  # a table may follow
    markdown = re.sub(r"\]( ?)\[(?=[@\d])", r"]\1\\[", markdown)  # two sources, [1] [3], are not a reference
    return markdown if address in (PYTHON_API, REPLAY) else with_links(markdown, address, config.repo_url)


def with_links(markdown: str, address: str, repository: str) -> str:
    """Rewrite the links of a page. address: of the page on the site."""
    source = BESIDE.get(address, f"docs/{address}")
    pages = {name: page for page, name in BESIDE.items()}

    def turned(found: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), found[2]))
        if (ROOT / target).is_dir() and (ROOT / target / "README.md").exists():
            target = posixpath.join(target, "README.md")
        page = pages.get(target) or (target.removeprefix("docs/") if target.startswith("docs/") else None)
        if page is None or target.endswith(".py") or not (ROOT / target).is_file():
            kind = "tree" if (ROOT / target).is_dir() else "blob"
            return f"{found[1]}{repository}/{kind}/main/{target}"
        return found[1] + os.path.relpath(page, posixpath.dirname(address) or ".").replace(os.sep, "/")

    return LINK.sub(turned, markdown)


def python_api() -> str:
    """Return the page of the packages' exports, for mkdocstrings."""
    parts = [
        "# The Python API",
        "What notebooks and programs import. Everything else may change without notice.",
        "## workbench",
        *(f"::: {home}.{name}" for name, home in exports("workbench/__init__.py").items()),
        "## workbench.notebook",
        "Forms and live panels.",
        *(f"::: {home}.{name}" for name, home in exports("workbench/notebook/__init__.py").items()),
        "## workbench.api.client",
        "A client of the [HTTP API](api.md).",
        *(f"::: workbench.api.client.{name}" for name in ("Client", "Refused", "NotSampled")),
    ]
    return "\n\n".join(parts) + "\n"


def on_post_build(config: Any) -> None:
    """Write each replay as a file of its own."""
    folder = Path(config.site_dir) / REPLAYS
    folder.mkdir(exist_ok=True)
    for name, replay in replays().items():
        with (folder / f"{name}.html").open("w", encoding="utf-8") as file:
            file.writelines(replay_file(replay))


def replay_page() -> str:
    """Return the page that shows the replays in frames."""
    parts = [
        "---\nhide: [toc]\n---",
        "# A run, replayed",
        "Every preview and measurement of a real run, as it came in: drag the slider, or press Play.\n"
        "Nothing needs to be installed. [Record one of your own](spaces.md#replays), or\n"
        "[train this one](tutorials/style.md) in minutes.",
    ]
    for name, replay in replays().items():
        title = html.escape(replay.record["title"])
        parts += [f'<iframe class="replay" src="../{REPLAYS}/{name}.html" title="{title}"></iframe>']
    return "\n\n".join(parts) + "\n"


def replay_file(replay: Any) -> Iterator[str]:
    """Return the pieces of a replay's own file, videos and script inside."""
    from workbench.demo_space.replays import page

    return page(replay)


def replays() -> dict[str, Any]:
    """Return the replays that ship, by the name of their folder."""
    if str(ROOT) not in sys.path:  # the workbench is not installed where the site is built
        sys.path.insert(0, str(ROOT))
    from workbench.demo_space.replays import shipped

    return {replay.folder.name: replay for replay in shipped()}


def exports(path: str) -> dict[str, str]:
    """Return the module of each name in a package's __all__."""
    homes: dict[str, str] = {}
    named: list[str] = []
    for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            homes |= {alias.name: node.module for alias in node.names}
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "__all__":
            named = ast.literal_eval(node.value)
    return {name: homes.get(name, posixpath.dirname(path).replace("/", ".")) for name in named}
