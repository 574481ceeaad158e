"""The image has what `make demo` has, and its files are there."""

from __future__ import annotations

import json
import re
from pathlib import Path

import yaml

import webui
from scripts import install, wheel_files
from workbench.cli import COMMANDS

ROOT = Path(__file__).resolve().parent.parent
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
SHIPPED = {line[1:] for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines() if line[:1] == "!"}
COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))


def test_the_image_has_the_torch_of_make_demo() -> None:
    found = re.findall(r"torch==(\S+)(?: --index-url (\S+))?", DOCKERFILE)
    assert found == [(install.TORCH, install.CPU_INDEX), (install.TORCH, "")]
    assert "torchvision" not in DOCKERFILE


def test_what_the_wheel_is_built_from_reaches_the_builder() -> None:
    assert {*wheel_files.BESIDE, "workbench", "pyproject.toml", "README.md", "LICENSE", "locks"} <= SHIPPED
    assert not [name for name in SHIPPED if not (ROOT / name).exists()]


def test_the_image_serves_the_page_as_somebody_without_rights() -> None:
    (command,) = re.findall(r"^CMD (\[.*\])", DOCKERFILE, re.MULTILINE)
    subcommand, *options = json.loads(command)
    assert subcommand in COMMANDS
    assert 'ENTRYPOINT ["tini", "--", "workbench"]' in DOCKERFILE
    assert webui.options(["--demo", *options]).port == 7860
    assert "ARG RUN_AS=workbench\nUSER ${RUN_AS}" in DOCKERFILE


def test_compose_opens_the_page_to_this_machine_with_a_password() -> None:
    for name, service in COMPOSE["services"].items():
        assert f" AS {name}\n" in DOCKERFILE
        assert service["build"]["target"] == name
        assert service["ports"] == ["127.0.0.1:7860:7860"]
        assert service["environment"][webui.PASSWORD_FILE] == f"/run/secrets/{service['secrets'][0]}"
        (volume,) = service["volumes"]
        assert f"\nVOLUME {volume.partition(':')[2]}\n" in DOCKERFILE
