"""A release's notes are the changelog's section of the tag, which must be the version."""

from __future__ import annotations

import subprocess
import sys

import pytest

from scripts import release
from workbench import __version__

CHANGELOG = """# Changelog

## Unreleased

- x

## 0.3.0 (2027-01-02)

- new

### Fixes

- old

## 0.2.0

## 0.1.0

first
"""


def test_the_notes_are_the_section_alone() -> None:
    assert release.notes("v0.3.0", "0.3.0", CHANGELOG) == "- new\n\n### Fixes\n\n- old"
    assert release.notes("v0.1.0", "0.1.0", CHANGELOG) == "first"


@pytest.mark.parametrize(
    ("tag", "version", "said"),
    [
        ("v0.3.1", "0.3.0", "must be v0.3.0"),
        ("0.3.0", "0.3.0", "must be v0.3.0"),
        ("v0.2.0", "0.2.0", 'nothing under "## 0.2.0"'),
        ("v0.3", "0.3", 'nothing under "## 0.3"'),
    ],
)
def test_another_tag_or_an_empty_section_is_refused(tag: str, version: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        release.notes(tag, version, CHANGELOG)


def test_this_version_has_notes() -> None:
    assert release.version() == __version__
    command = [sys.executable, "scripts/release.py", f"v{__version__}"]
    told = subprocess.run(command, capture_output=True, text=True, check=True, cwd=release.ROOT)
    assert told.stdout.startswith("The first version")
