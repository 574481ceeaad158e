"""The test that a LoRA's file carries, and the check that finds what is wrong with a copy of it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save, save_file

from workbench.errors import ConfigError
from workbench.families import families, find_model, lora_check, self_test
from workbench.families.lora_check import KEY, Seen, SelfTest, check, judge
from workbench.families.lora_files import LoraWeights, weights, with_metadata
from workbench.families.self_test import SelfTestFacts
from workbench.loras import library
from workbench.loras.converting import convert, import_lora
from workbench.loras.settings import ConvertSettings, LoraImportSettings
from workbench.operations import loras
from workbench.paths import CODE
from workbench.publishing.settings import LoraPush
from workbench.publishing.upload_plan import lora_upload
from workbench.runs.settings import TrainSettings
from workbench.trainer import lora as trained
from workbench.workspace import Workspace

CPU = torch.device("cpu")
FAMILIES = {family.name: family for family in families()}
Tensors = dict[str, torch.Tensor]


def random_lora(rank: int = 4, alpha: float = 8.0, seed: int = 0) -> LoraWeights:
    """Return a LoRA on the attention of the built-in Wan."""
    random, found = torch.Generator().manual_seed(seed), Tensors()
    layers = [f"blocks.{block}.attn{n}.to_{one}" for block in range(6) for n in (1, 2) for one in "qkv"]
    for layer in layers:
        found[f"{layer}.lora_A.weight"] = torch.randn(rank, 128, generator=random)
        found[f"{layer}.lora_B.weight"] = torch.randn(128, rank, generator=random) * 0.1
    return weights(found, dict.fromkeys(layers, alpha), "a test")


def write(path: Path, lora: LoraWeights, format: str = "comfyui", about: SelfTestFacts | None = None) -> Path:
    family, model = find_model("tiny-wan")
    tensors, metadata = family.export_lora(lora, format)
    about = about or SelfTestFacts(model.id, model, family.fetch(model))
    test = self_test.noted(family, tensors, metadata, about)
    path.write_bytes(with_metadata(save(tensors), {**metadata, **test, "base_model": model.id}))
    return path


def rewritten(path: Path, tensors: Tensors, **metadata: str) -> Path:
    save_file(tensors, path, {**lora_check.read_metadata(path), **metadata})
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write(tmp_path / "lora.safetensors", random_lora())


def test_the_random_numbers_stay_as_documented() -> None:
    """Files in the world hold projections on them."""

    assert lora_check.words("in 0 layer", 2).tolist() == WORDS
    assert lora_check.signs("in 0 layer", 70)[:8].tolist() == [1 if WORDS[0] >> bit & 1 else -1 for bit in range(8)]
    normal = lora_check.normals("latents", (100, 100))
    assert normal.dtype == np.float32
    assert abs(float(normal.mean())) < 0.03
    assert abs(float(normal.std()) - 1) < 0.03


WORDS = [5996100453604851739, 10298258083706085478]


def test_the_checker_needs_numpy_alone(file: Path, tmp_path: Path) -> None:
    copy = tmp_path / "elsewhere" / "check_lora.py"
    copy.parent.mkdir()
    shutil.copy(CODE / "workbench" / "families" / "lora_check.py", copy)
    code = f"import sys; sys.path.insert(0, {str(copy.parent)!r}); import check_lora; found = set(sys.modules)\n"
    code += f"assert not found & {{'torch', 'safetensors', 'workbench'}}; sys.exit(check_lora.main([{str(file)!r}]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=copy.parent, check=True)
    assert done.stdout.startswith("Loaded completely, as trained: all 36 layers.")


@pytest.mark.parametrize("name", ["tiny-wan", "tiny-cogvideox", "tiny-phenaki"])
def test_every_format_of_a_lora_passes_the_test_of_its_original(
    name: str, workspace: Workspace, tmp_path: Path
) -> None:
    family, model = find_model(name)
    transformer = family.load_transformer(family.fetch(model), CPU, torch.float32)
    pairs = trained.attach(family, transformer, TrainSettings(dataset="x", rank=2, alpha=8.0), seed=0)
    for _, parameter in pairs:
        torch.nn.init.normal_(parameter, generator=torch.Generator().manual_seed(1))
    source = tmp_path / "lora.safetensors"
    about = SelfTestFacts(model.id, model, family.fetch(model))
    trained.write(family, transformer, source, {"base_model": model.id}, about)
    import_lora(workspace, LoraImportSettings(source=str(source), name="ring"), print, lambda *_: None)
    assert loras.check(workspace, "loras/ring").good
    formats = [one.id for one in family.lora_formats if one.suffix == ".safetensors"]
    assert formats
    for format in formats:
        target = tmp_path / f"{format}.safetensors"
        convert(
            workspace, ConvertSettings(lora="loras/ring", format=format, target=str(target)), print, lambda *_: None
        )
        assert check(target, test_in=source).code == "whole", format
        assert lora_check.read_metadata(target)[KEY] == lora_check.read_metadata(source)[KEY]


def test_lost_alpha_is_named(file: Path) -> None:
    tensors = {name: one for name, one in load_file(file).items() if not name.endswith(".alpha")}
    found = check(rewritten(file, tensors))
    assert found.code == "alpha lost"
    assert "0.5 times as strong" in found.sentence


def test_missing_layers_are_counted(file: Path) -> None:
    tensors = {name: one for name, one in load_file(file).items() if ".blocks.3." not in name}
    found = check(rewritten(file, tensors))
    assert (found.code, found.sentence[:29]) == ("layers missing", "6 of 36 layers are missing (b")


def test_changed_weights_are_named(file: Path) -> None:
    tensors = load_file(file)
    tensors["diffusion_model.blocks.2.self_attn.k.lora_up.weight"][:32] *= 1.5
    found = check(rewritten(file, tensors))
    assert found.code == "changed"
    assert found.sentence.startswith("1 of 36 layers have different values than were trained (blocks.2.attn1.to_k)")


def test_a_file_that_is_cut_off_says_how_much_is_there(file: Path) -> None:
    whole = file.read_bytes()
    file.write_bytes(whole[:-1000])
    found = check(file)
    assert found.code == "damaged"
    assert f"{len(whole) - 1000:,} of {len(whole):,} bytes are there" in found.sentence


def test_less_precise_copies_are_the_same(file: Path) -> None:
    for dtype in (torch.float16, torch.bfloat16):
        assert check(rewritten(file, {name: one.to(dtype) for name, one in load_file(file).items()})).good


def test_a_lora_of_one_expert_is_not_used_for_the_other(tmp_path: Path) -> None:
    about = SelfTestFacts(expert="high noise")
    high = write(tmp_path / "ring_high_noise.safetensors", random_lora(), about=about)
    assert check(high).good
    assert check(high, expert="low noise").code == "wrong expert"
    low = high.rename(tmp_path / "ring_low_noise.safetensors")
    assert check(low).sentence == "it is for the high noise expert but is used for the low noise one"


def seen_of(file: Path, **more: object) -> tuple[SelfTest, Seen]:
    """Return a file's test, and what a program sees that loaded it rightly."""
    test = SelfTest.loads(lora_check.read_metadata(file)[KEY])
    numbers = dict(zip(test.layers, test.numbers, strict=True))
    return test, Seen(numbers, base=test.base[""], **more)  # type: ignore[arg-type]


def noised(numbers: Mapping[str, np.ndarray], share: float) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    return {name: one * (1 + share * random.standard_normal(one.shape)) for name, one in numbers.items()}


def test_the_base_model_is_known_by_its_weights(file: Path) -> None:
    test, seen = seen_of(file)
    assert judge(test, seen).good
    assert judge(test, Seen(seen.numbers, base=noised(seen.base, 0.03))).good  # as in 8 bits
    other = judge(test, Seen(seen.numbers, base=noised(seen.base, 1.0)))
    assert (other.code, other.sentence) == (
        "wrong base",
        "the base model is a different one: it was trained on tiny-wan",
    )


def test_the_other_expert_is_known_by_its_weights(file: Path) -> None:
    test, seen = seen_of(file)
    low = noised(seen.base, 1.0)
    pair = SelfTest(
        test.layers, test.authors, test.numbers, expert="high noise", base={"high noise": seen.base, "low noise": low}
    )
    assert judge(pair, seen).good
    assert judge(pair, Seen(seen.numbers, base=low)).code == "wrong expert"


def test_another_shift_and_a_strength_are_said(file: Path) -> None:
    test, seen = seen_of(file, shift=8.0)
    assert judge(test, seen).code == "other shift"
    half = {name: numbers * np.array([1, 1, *[0.5] * 9]) for name, numbers in seen.numbers.items()}
    found = judge(test, Seen(half, strength=0.5))
    assert found.good
    assert "It is loaded at a strength of 0.5" in found.details
    assert judge(test, Seen(half)).code == "alpha lost"  # 0.5 is rank / alpha here


def test_the_output_is_tested_where_the_model_was_at_hand(tmp_path: Path) -> None:
    family, model = find_model("tiny-wan")
    folder = family.fetch(model)
    transformer = family.load_transformer(folder, CPU, torch.float32)
    bare = family.load_transformer(folder, CPU, torch.float32)
    for _, parameter in trained.attach(family, transformer, TrainSettings(dataset="x", rank=2), seed=0):
        torch.nn.init.normal_(parameter, std=0.1, generator=torch.Generator().manual_seed(1))
    outputs = self_test.run(family, model, folder, transformer, CPU)
    assert outputs is not None
    with torch.no_grad():
        own = bare(
            torch.from_numpy(outputs.latents()),
            torch.tensor([outputs.timestep]),
            torch.from_numpy(outputs.embeddings("prompt_embeds")),
            return_dict=False,
        )[0]
    np.testing.assert_allclose(outputs.without, outputs.projected(own.numpy()), rtol=1e-4, atol=1e-5)
    assert np.linalg.norm(outputs.with_lora - outputs.without) > 0.01
    assert outputs.effect_against(outputs) == (0.0, 0.0)


@pytest.mark.parametrize("variant", [f"{name} {one}" for name in ("wan", "cogvideox") for one in FAMILIES[name].toys])
def test_every_model_from_text_has_an_output_to_test(variant: str, tmp_path: Path) -> None:
    family = FAMILIES[variant.split()[0]]
    model = family.toy(tmp_path, variant.split()[1])
    transformer = family.load_transformer(tmp_path, CPU, torch.float32)
    trained.attach(family, transformer, TrainSettings(dataset="x", rank=2, lora_init="gaussian"), seed=0)
    found = self_test.run(family, model, tmp_path, transformer, CPU)
    text = model.task == "text-to-video" and not model.fixed_size and not family.joins_conditioning(model)
    assert (found is not None) == text
    if found is not None:
        assert np.isfinite(found.with_lora).all()
        assert np.linalg.norm(found.without) > 0


def test_a_published_wan_lora_comes_with_its_file_and_workflow_for_comfyui(
    file: Path, workspace: Workspace, tmp_path: Path
) -> None:
    import_lora(workspace, LoraImportSettings(source=str(file), name="Ring"), print, lambda *_: None)
    plan = lora_upload(workspace, library.find(workspace, "loras/ring"), LoraPush(repo_id="me/ring"))
    name = "comfyui/ring.safetensors"
    assert {"lora_check.py", "pytorch_lora_weights.safetensors", name, "comfyui/workflow.json"} <= set(plan.files)
    assert f"[`ring.safetensors`]({name})" in plan.readme
    made = json.loads(bytes(plan.files["comfyui/workflow.json"]))  # type: ignore[arg-type]
    (loader,) = (one for one in made.values() if one["class_type"] == "LoraLoaderModelOnly")
    assert loader["inputs"]["lora_name"] == "ring.safetensors"
    sent = plan.staged(tmp_path / "sent")
    assert {one: Path(sent[one]).stat().st_size for one in (name,)} == {name: plan.sizes[name]}  # type: ignore[arg-type]
    for one in (name, "pytorch_lora_weights.safetensors"):
        assert check(sent[one]).good  # type: ignore[arg-type]
    written, wanted = load_file(sent[name]), load_file(file)  # type: ignore[arg-type]
    assert written.keys() == wanted.keys()
    assert all(torch.equal(written[one], wanted[one]) for one in wanted)


def test_two_experts_change_over_where_the_noise_levels_cross_the_boundary() -> None:
    family, model = find_model("wan2.2-t2v-a14b")
    made = family.comfyui_workflow(model, "ring.safetensors", "a ring", (81, 480, 832), experts=["low noise"])
    assert made is not None
    first, second = (one["inputs"] for one in made.values() if one["class_type"] == "KSamplerAdvanced")
    levels = [12 * t / (1 + 11 * t) for t in ((1000 - int(step * 1000 / 40)) / 1000 for step in range(40))]
    assert first["end_at_step"] == second["start_at_step"] == sum(level >= 0.875 for level in levels)
    (loader,) = (one["inputs"] for one in made.values() if one["class_type"] == "LoraLoaderModelOnly")
    assert made[loader["model"][0]]["inputs"]["unet_name"] == "wan2.2_t2v_low_noise_14B_fp16.safetensors"


def test_a_file_without_a_test_says_what_can_be_said(tmp_path: Path) -> None:
    path = tmp_path / "other.safetensors"
    save_file({f"blocks.0.attn.lora_{one}.weight": torch.ones(2, 2) for one in "AB"}, path)
    found = check(path)
    assert found.code == "no test"
    assert found.details == ("It holds 1 layer of rank 2", "It has no alpha")


def test_the_operation_and_its_exit_codes(file: Path, workspace: Workspace) -> None:
    assert loras.check(workspace, str(file)).sentence == "loaded completely, as trained: all 36 layers"
    file.write_bytes(file.read_bytes()[:-1])
    assert loras.check(workspace, str(file)).code == "damaged"
    with pytest.raises(ConfigError, match="not a LoRA of this workspace"):
        loras.check(workspace, "nowhere")


def test_damaged_files_get_a_verdict_and_no_traceback(file: Path) -> None:
    random, whole = np.random.default_rng(0), file.read_bytes()
    length = int.from_bytes(whole[:8], "little")
    for _ in range(300):
        data = bytearray(whole)
        for place in random.integers(0, length + 8, random.integers(1, 4)):
            data[place] = random.integers(32, 127)
        file.write_bytes(data)
        assert check(file).sentence


def test_damaged_tests_are_refused_in_words(file: Path) -> None:
    values = json.loads(lora_check.read_metadata(file)[KEY])
    for text in ("", "[]", "{}", json.dumps({**values, "numbers": "AAAA"}), json.dumps({**values, "version": 9})):
        found = check(rewritten(file, load_file(file), **{KEY: text}))
        assert found.code == ("no test" if not text else "damaged")
