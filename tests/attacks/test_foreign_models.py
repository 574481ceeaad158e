"""A stranger's model names the classes that its parts are loaded by: only those of diffusers and transformers are."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch

from workbench.errors import ModelUnavailable
from workbench.families import find_model
from workbench.families.facts import built
from workbench.families.wan import FAMILY

TRAP = """
from pathlib import Path
Path(__file__).with_suffix(".sprung").touch()
class Model:
    @classmethod
    def from_pretrained(cls, *args, **kwargs):
        Path(__file__).with_suffix(".loaded").touch()
"""


@pytest.fixture
def trap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module that says when it was imported; returns the file that it then writes."""
    folder = tmp_path / "modules"
    folder.mkdir()
    (folder / "wanted.py").write_text(TRAP)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "wanted", raising=False)
    return folder / "wanted.sprung"


def test_a_part_of_another_package_is_not_imported(trap: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    FAMILY.toy(folder, "text")
    index = json.loads((folder / "model_index.json").read_text())
    (folder / "model_index.json").write_text(json.dumps({**index, "vae": ["wanted", "Model"]}))
    assert find_model(str(folder))[0] is FAMILY
    with pytest.raises(ModelUnavailable, match="only classes of diffusers and transformers"):
        FAMILY.load_vae(folder, torch.device("cpu"), torch.float32)
    assert not trap.exists()


@pytest.mark.parametrize(("library", "name"), [("wanted", "Model"), ("os", "system"), ("diffusers", "__doc__")])
def test_configs_build_classes_of_the_two_libraries_alone(trap: Path, library: str, name: str) -> None:
    with pytest.raises(ModelUnavailable, match="only classes of diffusers and transformers are loaded"):
        built(library, name, {})
    assert not trap.exists()
