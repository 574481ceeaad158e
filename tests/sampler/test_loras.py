"""LoRA files: names and scales, and a readable sentence for everything that is not a sound LoRA for the model."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from workbench.errors import ConfigError
from workbench.sampler.loras import (
    Lora,
    absolute,
    available_loras,
    read_header,
    resolve,
    split_lora,
    split_scale,
)
from workbench.workspace import Workspace


def tensors(count: int = 20, prefix: str = "transformer.", width: int = 32) -> dict[str, np.ndarray]:
    found = {}
    for number in range(count):
        found[f"{prefix}blocks.{number}.to_q.lora_A.weight"] = np.zeros((4, width), np.float32)
        found[f"{prefix}blocks.{number}.to_q.lora_B.weight"] = np.zeros((64, 4), np.float32)
    return found


def sound(path: Path) -> bytes:
    save_file(tensors(), path)
    return path.read_bytes()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ring", ("ring", 1.0)),
        ("ring=0.8", ("ring", 0.8)),
        (" ring=-1 ", ("ring", -1.0)),
        ("/a/b=c/x.safetensors", ("/a/b=c/x.safetensors", 1.0)),
        ("/a/b=c/x.safetensors=2", ("/a/b=c/x.safetensors", 2.0)),
        ("epoch=0-step=500.ckpt", ("epoch=0-step=500.ckpt", 1.0)),
        ("https://huggingface.co/you/cats", ("you/cats", 1.0)),
        ("https://huggingface.co/you/cats/tree/main=0.5", ("you/cats", 0.5)),
        ("https://hf.co/you/cats/blob/main/sub/a%20b.safetensors", ("you/cats:sub/a b.safetensors", 1.0)),
        ("https://huggingface.co/you/cats/resolve/main/a.safetensors?download=true", ("you/cats:a.safetensors", 1.0)),
        ("https://huggingface.co/you/cats/resolve/refs%2Fpr%2F1/a.bin=2", ("you/cats:a.bin@refs/pr/1", 2.0)),
    ],
)
def test_name_and_scale(text: str, expected: tuple[str, float]) -> None:
    assert split_scale(text) == expected


@pytest.mark.parametrize("text", ["", "=1", "ring=", "ring=strong", "ring=nan", "ring=inf"])
def test_bad_scales_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="SCALE, as in ring=0.8") as error:
        split_scale(text)
    assert "loras" in error.value.problems


@pytest.mark.parametrize(
    ("text", "name", "scale", "blocks"),
    [
        ("ring=0.8[0-9:0.5, 12:0]", "ring", 0.8, "[0-9:0.5,12:0]"),
        ("ring [ rest : 0 , 3 - 4 : 1.5 ]", "ring", 1.0, "[3-4:1.5,rest:0]"),
        ("/a[1]/x.safetensors=2", "/a[1]/x.safetensors", 2.0, ""),
        ("/a/x[1]", "/a/x[1]", 1.0, ""),
        ("https://huggingface.co/you/cats=0.5[0:0]", "you/cats", 0.5, "[0:0]"),
    ],
)
def test_factors_of_blocks(text: str, name: str, scale: float, blocks: str) -> None:
    found = split_lora(text)
    assert (found.name, found.scale, str(found.blocks)) == (name, scale, blocks)
    assert split_lora(str(found)) == found
    assert split_scale(text) == (name, scale)


@pytest.mark.parametrize(
    ("blocks", "why"),
    [
        ("0-9:strong", "'0-9:strong': write ranges of blocks"),
        ("9-0:1", "ends before it begins"),
        ("0-5:1, 3:0", "'3:0', which names a block twice"),
        (":0", "':0': write ranges"),
    ],
)
def test_bad_factors_of_blocks_are_refused(blocks: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why) as error:
        split_lora(f"ring[{blocks}]")
    assert "loras" in error.value.problems


@pytest.mark.parametrize(
    ("address", "remedy"),
    [
        ("https://civitai.com/models/123?modelVersionId=4", "download the file with your browser and give its path"),
        ("https://example.org/x.safetensors=0.8", "download the file with your browser and give its path"),
        ("https://huggingface.co/datasets/you/cats", "open the LoRA's file there and give that URL"),
        ("https://huggingface.co/you/cats/blob/main/README.md", "open the LoRA's .safetensors file there"),
        ("https://huggingface.co/you/cats/tree/main/folder", "open the LoRA's .safetensors file there"),
    ],
)
def test_other_addresses_say_what_to_do(address: str, remedy: str) -> None:
    with pytest.raises(ConfigError, match=remedy):
        split_scale(address)


def test_runs_are_found_by_name(workspace: Workspace, tmp_path: Path) -> None:
    for age, name in enumerate(["old", "new"]):
        workspace.run(name).mkdir()
        sound(workspace.run(name) / "lora.safetensors")
        os.utime(workspace.run(name) / "lora.safetensors", (age, age))
    (workspace.runs / "unfinished").mkdir()
    assert available_loras(workspace) == ["new", "old"]
    assert resolve(workspace, ["old=0.5"]) == [Lora("old", workspace.run("old") / "lora.safetensors", 0.5)]
    with pytest.raises(ConfigError, match="has exported no LoRA, which a run does when it finishes"):
        resolve(workspace, ["unfinished"])
    with pytest.raises(ConfigError, match="a LoRA of this workspace .new, old."):
        resolve(workspace, ["cats"])
    with pytest.raises(ConfigError, match="not a LoRA of this workspace"):
        resolve(workspace, ["../../etc/passwd"])


def test_relative_files_become_absolute(workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cats").mkdir()
    workspace.run("ring").mkdir()
    (tmp_path / "ring").mkdir()  # a run's name stands for the run
    named = ["ring=0.5", "x.safetensors=0.5", "a/epoch=2-step=9.ckpt", "cats=2", "you/cats"]
    here = tmp_path.resolve()
    assert absolute(workspace, named) == (
        "ring=0.5", f"{here}/x.safetensors=0.5", f"{here}/a/epoch=2-step=9.ckpt=1", f"{here}/cats=2", "you/cats",
    )  # fmt: skip


def header_of(entries: dict) -> bytes:
    raw = json.dumps(entries).encode()
    return len(raw).to_bytes(8, "little") + raw


MANY = {f"t{number}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for number in range(20_001)}


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "is an empty file"), (b"abc", "is not a safetensors file"), (b"\x00" * 64, "is not a safetensors file"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n", "is a Git LFS pointer"),
        (b"<!DOCTYPE html><html>", "is a web page"), (b"PK\x03\x04archive/data.pkl", "is a renamed .pt or .bin file"),
        (b"\x80\x04\x95\x10\x00\x00\x00\x00", "is a renamed Python pickle"),
        ((2**62).to_bytes(8, "little") + b'{"a": 1}', "claims a header of 4,611,686,018,427,387,904 bytes"),
        ((500).to_bytes(8, "little") + b'{"a": 1}', "is cut short"),
        (header_of({"t": {"dtype": "F32"}}), "has a damaged header"), (header_of({"t": 1}), "has a damaged header"),
        ((8).to_bytes(8, "little") + b"{nonsens", "has a damaged header"), (header_of({}), "has no tensors"),
        (header_of(MANY), "has 20,001 tensors"),
    ],
)  # fmt: skip
def test_impostors_get_a_sentence(tmp_path: Path, content: bytes, sentence: str) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=f"the LoRA x.safetensors {sentence}"):
        read_header(path)


def test_missing_truncated_and_trailing_files(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    with pytest.raises(ConfigError, match="does not exist"):
        read_header(path)
    content = sound(path)
    for damaged in (content[:-1], content + b"x"):
        path.write_bytes(damaged)
        with pytest.raises(ConfigError, match="cut short or has extra bytes"):
            read_header(path)
    os.unlink(path)
    os.mkfifo(path)
    with pytest.raises(ConfigError, match="does not exist"):
        read_header(path)
