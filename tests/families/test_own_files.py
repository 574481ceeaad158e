"""Single files of ComfyUI and of the authors as a model: recognized, fitted, and read like the folder they are from."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from tests import fake_hub
from tests.fake_hub import FakeHub
from tests.families.authors_files import (
    DENOISER,
    LAYOUTS,
    LTX_VAE_091,
    LTX_VAE_095,
    Tensors,
    by,
    from_fp8,
    in_fp8,
    toy_as_real,
    write,
)
from tests.families.test_real_sizes import CLASSES as REAL
from workbench.errors import ConfigError
from workbench.families import facts, families, find_model, model_files, own_files, settle, settled_model
from workbench.families.base import Family, ResolvedModel
from workbench.families.model import Model

CPU = torch.device("cpu")
FAMILIES = {family.name: family for family in families()}
# The variants that have a layout of their own or other parts.
VARIANTS = {
    "wan": ["text", "image-2.1", "image-flf", "5b", "vace"],
    "ltx": ["text"],
    "ltx2": ["text", "text-2.3"],
    "mochi": ["text"],
    "kandinsky5": ["text"],
    "hunyuan15": ["text"],
    "cogvideox": ["sincos", "learned"],
}
CASES = [(name, variant) for name, variants in VARIANTS.items() for variant in variants]


@pytest.fixture(autouse=True)
def _cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Keep the folders of links, which lie beside the Hub's cache, in a folder of the test's own."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hf" / "hub"))


@pytest.fixture(scope="module")
def toys(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Path]:
    """Return the folder of a family's miniature, written once."""
    base = tmp_path_factory.mktemp("toys")
    return cache(lambda name, variant: toy_as_real(FAMILIES[name], base / f"{name}-{variant}", variant))


def loaded(family: Family, folder: Path, part: str, dtype: torch.dtype = torch.float32) -> Any:
    return family._part(folder, part, CPU, dtype)


def all_tensors(module: Any) -> Tensors:
    return dict(module.named_parameters()) | dict(module.named_buffers())


def assert_same(ours: Any, theirs: Any, rounded: torch.dtype = torch.float32) -> None:
    """Assert that two modules have the same tensors, bit for bit, and in the same dtypes.

    Args:
        rounded: What the second's tensors were rounded to in a file.
    """
    first, second = all_tensors(ours), all_tensors(theirs)
    assert first.keys() == second.keys()
    stored = theirs.state_dict()  # other buffers are computed
    for name, tensor in second.items():
        assert first[name].dtype == tensor.dtype, name
        same = torch.equal(first[name], tensor.to(rounded if name in stored else tensor.dtype).to(tensor.dtype))
        assert same, name


def opened(family: Family, base: Path, *files: Path) -> tuple[ResolvedModel, Path]:
    """Return the model of files over a folder, and the folder that parts are read from."""
    found = find_model(" + ".join(map(str, [*files, base])))
    return found, found.fetch(lambda _: None)


def emptied(folder: Path, target: Path, *parts: str) -> Path:
    """Link a model's folder without the weights of some parts, which can then come from files alone."""
    model_files.link_parts(target, folder, without_weights=parts)
    for name in (model_files.INDEX, model_files.MADE_FOR):
        if (folder / name).is_file():
            (target / name).write_bytes((folder / name).read_bytes())
    return target


@pytest.mark.parametrize(("name", "variant"), CASES)
def test_a_part_from_a_file_equals_the_folders_bit_for_bit(
    name: str, variant: str, toys: Callable[[str, str], Path], tmp_path: Path
) -> None:
    family, folder = FAMILIES[name], toys(name, variant)
    layouts = {part: one for (of, part), one in LAYOUTS.items() if of == name}
    base = emptied(folder, tmp_path / "base", *layouts)
    for part, writers in layouts.items():
        stored = model_files.tensors(folder, part)
        half = {n: one.half() if one.is_floating_point() else one for n, one in stored.items()}
        expected = loaded(family, folder, part)
        for layout, written in writers.items():
            prefix = "audio_vae." if part == "audio_vae" else ""
            file = write(tmp_path / f"{part}-{layout}.safetensors", written(stored), prefix)
            found, where = opened(family, base, file)
            assert found.model.files == ((part, str(file)),), layout
            assert_same(loaded(family, where, part), expected)
            prefix = prefix or {"transformer": DENOISER, "vae": "first_stage_model."}.get(part, "")
            file = write(tmp_path / f"{part}-{layout}-fp16.safetensors", written(half), prefix)
            _, where = opened(family, base, file)
            assert_same(loaded(family, where, part), expected, rounded=torch.float16)
    _, where = opened(family, base, tmp_path / "transformer-authors.safetensors")
    ours, theirs = (loaded(family, one, "transformer", torch.bfloat16) for one in (where, folder))
    assert_same(ours, theirs)


STYLES = ("scale_weight", "weight_scale", "rows")


@pytest.mark.parametrize(
    ("name", "style"),
    [("wan", one) for one in STYLES[1:]] + [(name, STYLES[number % 3]) for number, name in enumerate(VARIANTS)],
)
def test_fp8_weights_are_multiplied_by_their_scales(
    name: str, style: str, toys: Callable[[str, str], Path], tmp_path: Path
) -> None:
    family, folder = FAMILIES[name], toys(name, VARIANTS[name][0])
    base = emptied(folder, tmp_path / "base", "transformer", "text_encoder")
    for part in ("transformer", "text_encoder") if name != "hunyuan15" else ("transformer",):
        writer = next(iter(LAYOUTS.get((name, part), {}).values()), None)
        if writer is None:
            continue
        quantized = in_fp8(writer(model_files.tensors(folder, part)), style)
        assert sum(one.dtype == torch.float8_e4m3fn for one in quantized.values()) > 3
        file = write(tmp_path / f"{part}.safetensors", quantized)
        plain = write(tmp_path / f"{part}-plain.safetensors", from_fp8(quantized))
        for dtype in (torch.float32, torch.bfloat16):
            ours, theirs = (loaded(family, opened(family, base, one)[1], part, dtype) for one in (file, plain))
            assert_same(ours, theirs)


# ---- published sizes, from headers alone


PUBLISHED = {  # model -> names of files -> what is written into them: part -> how
    "wan2.1-t2v-1.3b": {"wan2.1_t2v_1.3B_fp16": ("transformer", "vae", "text_encoder")},
    "wan2.1-t2v-14b": {"wan2.1_t2v_14B_bf16": ("transformer",)},
    "wan2.1-i2v-14b-480p": {"wan2.1_i2v_480p_14B_fp16": ("transformer",)},
    "wan2.1-i2v-14b-720p": {"wan2.1_i2v_720p_14B_fp16": ("transformer",)},
    "wan2.1-flf2v-14b-720p": {"wan2.1_flf2v_720p_14B_fp16": ("transformer",)},
    "wan2.1-vace-14b": {"wan2.1_vace_14B_fp16": ("transformer",)},
    "wan2.2-ti2v-5b": {"wan2.2_ti2v_5B_fp16": ("transformer",), "wan2.2_vae": ("vae",)},
    "wan2.2-t2v-a14b": {
        "wan2.2_t2v_high_noise_14B_fp8_scaled": ("transformer",),
        "wan2.2_t2v_low_noise_14B_fp8_scaled": ("transformer_2",),
    },
    "wan2.2-i2v-a14b": {"wan2.2_i2v_low_noise_14B_fp16": ("transformer_2",)},
    "ltx-video-2b-0.9.1": {"ltx-video-2b-v0.9.1": ("transformer", "vae")},
    "ltx-video-2b-0.9.5": {"ltx-video-2b-v0.9.5": ("transformer", "vae")},
    "ltx-video-13b-0.9.7": {"ltxv-13b-0.9.7-dev": ("transformer", "vae")},
    "ltx-2-19b": {"ltx-2-19b-dev": ("transformer", "vae", "audio_vae")},
    "ltx-2.3-22b": {"ltx-2.3-22b-dev": ("transformer", "vae", "audio_vae")},
    "mochi-1-preview": {"mochi_preview_bf16": ("transformer",)},
    "kandinsky5-lite-t2v-5s": {"kandinsky5lite_t2v_pretrain_5s": ("transformer",)},
    "kandinsky5-lite-i2v-5s": {"kandinsky5lite_i2v_5s": ("transformer",)},
    "hunyuanvideo1.5-t2v-720p": {"hunyuanvideo1.5_720p_t2v_fp16": ("transformer",)},
    "hunyuanvideo1.5-i2v-480p-cfg-distilled": {"hunyuanvideo1.5_480p_i2v_cfg_distilled_fp8_scaled": ("transformer",)},
    "cogvideox-5b": {"CogVideoX_5b": ("transformer",)},
    "cogvideox1.5-5b-i2v": {"CogVideoX_1_5_5b_I2V_bf16": ("transformer",)},
}
# Whose files are called as another's: before a release.
RARE = (
    "wan2.1-t2v-14b", "wan2.1-i2v-14b-720p", "wan2.2-i2v-a14b", "ltx-video-13b-0.9.7", "ltx-2.3-22b",
    "kandinsky5-lite-i2v-5s", "hunyuanvideo1.5-i2v-480p-cfg-distilled", "cogvideox1.5-5b-i2v",
)  # fmt: skip
PREFIXES = {"transformer": DENOISER, "transformer_2": DENOISER, "vae": "vae.", "audio_vae": "audio_vae."}
# The classes of published parts, which configs do not name.
CLASSES = {
    (family, part): ("diffusers", kind)
    for family, kinds in REAL.items()
    for part, kind in zip(("transformer", "vae"), kinds, strict=True)
}
CLASSES["wan", "text_encoder"] = ("transformers", "UMT5EncoderModel")
CLASSES["ltx2", "audio_vae"] = ("diffusers", "AutoencoderKLLTX2Audio")
# Between 0.9.0 and 0.9.5, the decoder changed first.
LTX_VAES = {
    "ltx-video-2b-0.9.1": by(LTX_VAE_091),
    "ltx-video-2b-0.9.5": by(LTX_VAE_095),
    "ltx-video-13b-0.9.7": by(LTX_VAE_095),
}
PREFIXES["text_encoder"] = "text_encoders.umt5xxl.transformer."


def shapes_of(family: Family, model: Model, part: str) -> Tensors:
    """Return a published part's tensors under the authors' names, on the meta device."""
    first = "transformer" if part == "transformer_2" else part
    config = facts.published()[model.source].parts[first].config
    library, kind = CLASSES[family.name, first]
    if library == "transformers":
        made = model_files.class_named(library, kind)
        with torch.device("meta"):
            state = made(made.config_class(**config)).state_dict()
    else:
        if "Wan2.1-VACE" in model.source:
            kind = "WanVACETransformer3DModel"
        state = model_files.empty(model_files.class_named(library, kind), config).state_dict()
    if (family.name, part) == ("ltx", "vae"):
        return LTX_VAES[model.id](state)
    return next(iter(LAYOUTS[family.name, first].values()))(state)


def header(path: Path, tensors: Tensors, dtype: str = "F16") -> Path:
    """Write a file's header, without its weights."""
    entries = {
        name: {"dtype": dtype, "shape": list(one.shape), "data_offsets": [0, 0]} for name, one in tensors.items()
    }
    raw = json.dumps(entries).encode()
    path.write_bytes(len(raw).to_bytes(8, "little") + raw)
    return path


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.release] if name in RARE else []) for name in PUBLISHED]
)
def test_a_published_models_files_are_recognized_and_fit(name: str, tmp_path: Path) -> None:
    family, base = find_model(name)
    files, parts = [], {}
    for stem, of in PUBLISHED[name].items():
        tensors = {
            (PREFIXES[part] if len(of) > 1 or part == "transformer" else "") + tensor: one
            for part in of
            for tensor, one in shapes_of(family, base, part).items()
        }
        files.append(header(tmp_path / f"{stem}.safetensors", tensors))
        parts |= dict.fromkeys(of, str(files[-1]))
    found = find_model(" + ".join(map(str, files)))
    assert (found.family.name, found.model.source, dict(found.model.files)) == (family.name, base.source, parts)
    assert found.model.id == " + ".join([*map(str, files), name]), "a file's name tells variants of one size apart"
    assert found.model.download_gb < base.download_gb
    assert replace(found.facts, on_disk=False) == replace(find_model(name).facts, on_disk=False)
    folder = tmp_path / "folder"  # of configs, as downloaded
    index = {"_class_name": next(iter(family.pipelines))}
    for part in parts:
        first = "transformer" if part == "transformer_2" else part
        (folder / part).mkdir(parents=True)
        (folder / part / "config.json").write_text(json.dumps(dict(facts.published()[base.source].parts[first].config)))
        library, kind = CLASSES[family.name, first]
        index[part] = [library, "WanVACETransformer3DModel" if "vace" in name and part == "transformer" else kind]
        (folder / part / model_files.OWN_FILE).write_text(json.dumps({"file": parts[part], "stored": "bfloat16"}))
    (folder / model_files.INDEX).write_text(json.dumps(index))
    own_files.check(family, found.model, folder)


# ---- what is refused, in one sentence


def test_what_does_not_fit_is_named(toys: Callable[[str, str], Path], tmp_path: Path) -> None:
    family, folder = FAMILIES["wan"], toys("wan", "text")
    stored = LAYOUTS["wan", "transformer"]["authors"](model_files.tensors(folder, "transformer"))

    def refused(match: str, tensors: Tensors, name: str = "wan.safetensors", base: Path | str | None = None) -> None:
        file = write(tmp_path / name, tensors)
        with pytest.raises(ConfigError, match=match) as raised:
            family.fetch(find_model(f"{file} + {base or folder}").model, lambda _: None)
        assert "model" in raised.value.problems
        file.unlink()

    without = {key: one for key, one in stored.items() if ".ffn.2." not in key}
    refused(r"does not fit as the transformer \(it lacks blocks.0.ffn.net.2.bias and 3 more\)", without)
    refused("it also has blocks.0.more", {**stored, "blocks.0.more": torch.ones(1)})
    wide = {**stored, "patch_embedding.weight": torch.ones(24, 36, 1, 2, 2)}
    refused(r"patch_embedding.weight is \[24, 36, 1, 2, 2\], not \[24, 16, 1, 2, 2\]", wide)
    refused("a model of Wan, Tiny CogVideoX .* one of CogVideoX", stored, base="tiny-cogvideox")
    refused("quantized to I8", {**stored, "blocks.0.ffn.2.weight": torch.ones(24, 32, dtype=torch.int8)})
    eight = in_fp8(stored)
    refused("has 3 scales for 24 rows", {**eight, "blocks.0.ffn.2.scale_weight": torch.ones(3)})
    note = torch.tensor(list(b'{"format": "nvfp4"}'), dtype=torch.uint8)
    refused("quantized as .*nvfp4", {**in_fp8(stored, "weight_scale"), "blocks.0.ffn.2.comfy_quant": note})
    refused(
        "a text encoder of width 8, .* needs 32",
        {"encoder.block.0.layer.0.SelfAttention.q.weight": torch.ones(8, 8), "shared.weight": torch.ones(4, 8)},
    )
    refused("a LoRA and not a model", {"blocks.0.self_attn.q.lora_A.weight": torch.ones(2, 2)})


def test_a_name_that_does_not_say_enough_is_refused(toys: Callable[[str, str], Path], tmp_path: Path) -> None:
    folder = toys("wan", "text")
    stored = LAYOUTS["wan", "transformer"]["authors"](model_files.tensors(folder, "transformer"))
    first, second = (write(tmp_path / f"{name}.safetensors", stored) for name in ("first", "second"))
    vae = write(tmp_path / "vae.safetensors", model_files.tensors(folder, "vae"))
    for name, match in (
        (str(first), "no published one has that size: add the model that it was made from"),
        (str(vae), "without a denoiser: add the model whose part it replaces"),
        (f"{first} + {second} + {folder}", "has one transformer, and 2 are given"),
        (f"{vae} + tiny-wan + tiny-cogvideox", "names two models, tiny-wan and tiny-cogvideox"),
        (f"{first} + {tmp_path / 'third.safetensors'}", "third.safetensors, which does not exist"),
        (f"{first} + wan2.2-t2v-a14b", "put 'high' or 'low' into its name"),
    ):
        for take in (find_model, settle):
            with pytest.raises(ConfigError, match=match):
                take(name)


def test_a_folder_of_files_is_a_model(toys: Callable[[str, str], Path], tmp_path: Path) -> None:
    """ComfyUI's folders: the denoiser, the VAE and the text encoder, whatever their files are named."""
    family, folder = FAMILIES["wan"], toys("wan", "text")
    for part, below in (("transformer", "diffusion_models"), ("vae", "vae"), ("text_encoder", "text_encoders")):
        (tmp_path / "models" / below).mkdir(parents=True)
        tensors = LAYOUTS["wan", part]["authors"](model_files.tensors(folder, part))
        write(tmp_path / "models" / below / "x.safetensors", tensors)
    found, where = opened(family, folder, tmp_path / "models")
    assert {part for part, _ in found.model.files} == {"transformer", "vae", "text_encoder"}
    assert find_model(settle(found.model.id)).model == found.model
    assert "x.safetensors" in found.model.title
    whole = find_model(str(folder)).model
    assert model_files.part_identity(found.model, where, "vae") != model_files.part_identity(whole, folder, "vae")


# ---- what is said beforehand


def test_the_parts_to_download_and_their_sizes_are_known(tmp_path: Path) -> None:
    """Transformers' bytes are known: 1.42 and 14.3 billion values in fp32, 8.33 billion in fp32."""
    sizes = facts.download_parts(find_model("wan2.1-t2v-1.3b").model)
    assert {part: round(size, 1) for part, size in sizes.items()} == {
        "transformer": 5.7, "text_encoder": 22.8, "vae": 0.5,
    }  # fmt: skip
    for family in families():
        for model in family.models:
            parts = facts.download_parts(model)
            assert sum(parts.values()) == pytest.approx(0 if model.local else model.download_gb, rel=0.02), model.id
    file = header(tmp_path / "x.safetensors", shapes_of(FAMILIES["wan"], find_model("wan2.1-t2v-1.3b").model, "vae"))
    left = find_model(f"{file} + wan2.1-t2v-1.3b").model
    assert facts.download_parts(left) == {part: size for part, size in sizes.items() if part != "vae"}
    assert left.download_gb == pytest.approx(28.5, abs=0.05)


def test_a_distilled_model_names_the_one_to_train(toys: Callable[[str, str], Path], tmp_path: Path) -> None:
    told = {model.id: model.distillation for family in families() for model in family.models if model.distillation}
    assert sorted(told) == [f"hunyuanvideo1.5-{one}-cfg-distilled" for one in ("i2v-480p", "i2v-720p", "t2v-480p")]
    for name, sentence in told.items():
        assert f"distilled to need no guidance, which training slowly undoes. Train on {name[:-14]} and" in sentence
        assert not find_model(name[:-14]).model.distillation
    folder = toys("wan", "text")
    stored = LAYOUTS["wan", "transformer"]["authors"](model_files.tensors(folder, "transformer"))
    file = write(tmp_path / "wan2.1_t2v_1.3B_lightx2v_step_distill.safetensors", stored)
    assert f"Train on {folder} and check" in find_model(f"{file} + {folder}").model.distillation


def test_a_download_says_each_parts_size_first(
    toys: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder, repo = toys("wan", "text"), "someone/finetune"
    with FakeHub().serving() as server:
        fake_hub.login(monkeypatch, server, tmp_path / "hf")
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hf" / "hub"))
        files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        server.repos[repo] = files
        stored = LAYOUTS["wan", "transformer"]["authors"](model_files.tensors(folder, "transformer"))
        file = write(tmp_path / "mine.safetensors", stored)
        found, said = settled_model(f"{file} + {repo}"), list[str]()
        where = found.fetch(said.append)
        assert said[-1].startswith(f"From https://huggingface.co/{repo}: ")
        sizes = r"[\d.]+ MB \(vae [\d.]+ MB, text_encoder [\d.]+ kB, configs and tokenizers [\d.]+ kB\)"
        assert re.fullmatch(sizes, said[-1].partition(": ")[2])
        assert "transformer" not in said[-1], "it is in the file"
        assert not any("resolve" in one and "transformer/diffusion" in one for one in server.requests)
        assert find_model(found.model.id).model == found.model, "the name has the commit"
    family = found.family
    assert_same(loaded(family, where, "transformer"), loaded(family, folder, "transformer"))
    assert_same(loaded(family, where, "vae"), loaded(family, folder, "vae"))
