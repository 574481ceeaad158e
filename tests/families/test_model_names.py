"""How models may be named: other spellings, other repositories of the Hub, revisions and variants."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from safetensors.torch import load_file

from tests import fake_hub
from tests.fake_hub import FakeHub
from tests.shell import Shell
from workbench.errors import ConfigError, ModelUnavailable
from workbench.families import find_model, models, settle
from workbench.families.cogvideox import FAMILY
from workbench.families.ltx2 import FAMILY as LTX2
from workbench.families.ltx2 import FULL_SCHEDULER, NEWEST, is_distilled
from workbench.families.model_files import part_identity, wanted_files
from workbench.fit.estimate import estimate
from workbench.runs.settings import TrainSettings
from workbench.sampler.inputs import portable
from workbench.sampler.settings import SampleSettings
from workbench.settings import parse
from workbench.workspace import Workspace

REPO = "someone/finetune"
PINNED = {model.id: model for model in models() if model.revision is not None}


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("toys") / "toy"
    FAMILY.toy(folder, "rotary")
    return folder


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeHub]:
    with FakeHub().serving() as running:
        fake_hub.login(monkeypatch, running, tmp_path / "hf")
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hf" / "hub"))
        yield running


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("known", PINNED)
def test_a_known_model_goes_by_its_names_on_the_hub_in_any_case(known: str) -> None:
    source = PINNED[known].source
    for owner in ("THUDM", "zai-org", "Zai-Org"):
        for name in (source.replace("THUDM", owner), source.replace("THUDM", owner).lower(), known.upper()):
            assert find_model(name)[1] == PINNED[known]
            assert settle(name) == known
    assert settle(f"{source}@{PINNED[known].revision}") == known, "its own commit is no other one"


def test_what_is_no_model_is_refused_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "model_index.json").write_text('{"_class_name": "CogVideoXPipeline"}')
    for part in ("transformer", "vae"):
        (tmp_path / "half" / part).mkdir()
        (tmp_path / "half" / part / "config.json").write_text("{}")
    for name, match in (
        ("nothing", "neither known"), ("", "neither known"), ("a/b/c", "neither known"),
        ("no\0name", "neither known"), ("../evil@main", "neither known"), ("tiny-cogvideox@main", "built in"),
        ("tiny-cogvideox:fp16", "built in"), (str(tmp_path / "half"), "not a complete CogVideoX model"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=match):
            find_model(name)
        with pytest.raises(ConfigError, match=match):
            settle(name)


def test_revision_and_variant_become_part_of_the_name() -> None:
    commit = "0123456789" * 4
    for kind in (TrainSettings, SampleSettings):
        made = parse(kind, {"model": "zai-org/CogVideoX-5b", "revision": commit, "variant": "fp16"})
        assert (made.model, made.revision, made.variant) == (f"zai-org/CogVideoX-5b:fp16@{commit}", "", "")
        assert made.changed(revision="dev").model == "zai-org/CogVideoX-5b:fp16@dev", "the newer word counts"
        assert made.changed(model="cogvideox-2b").model == "cogvideox-2b"
        for name, bad in (("revision", "../x"), ("revision", "a b"), ("variant", "a/b"), ("revision", "-x")):
            with pytest.raises(ConfigError, match=f"{name} is"):
                parse(kind, {"model": "cogvideox-5b", name: bad})
        with pytest.raises(ConfigError, match="revision is 'main', but model is /some/folder"):
            parse(kind, {"model": "/some/folder", "revision": "main"})
    model = find_model(settle(f"zai-org/CogVideoX-5b:fp16@{commit}"))[1]
    assert (model.id, model.source) == (f"cogvideox-5b:fp16@{commit}", "THUDM/CogVideoX-5b")
    assert (model.revision, model.variant, model.frames) == (commit, "fp16", 49)
    plain = PINNED["cogvideox-5b"]
    assert part_identity(model, Path(), "vae") != part_identity(plain, Path(), "vae")
    assert part_identity(plain, Path(), "vae") == f"{plain.source}@{plain.revision}/vae", "caches stay valid"
    assert FAMILY.facts(model).stored == "float16"


def test_a_branch_is_its_commit_from_then_on(server: FakeHub, toy: Path, tmp_path: Path) -> None:
    server.repos[REPO] = {**files_of(toy), "code.py": b"raise SystemExit", "transformer/old.bin": b"pickle"}
    workspace, first = Workspace.open(tmp_path / "w"), server.head(REPO)
    with pytest.raises(ConfigError, match="not on this disk"):
        find_model(REPO)
    asked = portable(workspace, SampleSettings(model=REPO, prompt="a"))
    assert asked.model == f"{REPO}@{first}"
    assert not [line for line in server.requests if "safetensors" in line], "configs are all that is fetched"
    server.repos[REPO]["README.md"] = b"newer"
    second = server.head(REPO)
    assert settle(f"{REPO}@main") == f"{REPO}@{second}"
    before = len(server.requests)
    assert settle(asked.model) == asked.model
    family, model = find_model(asked.model)
    assert (model.revision, model.frames, model.local) == (first, find_model(str(toy))[1].frames, False)
    fit = estimate(workspace, TrainSettings(model=asked.model))
    assert len(server.requests) == before, "a commit that was looked at is known without the Hub"
    assert fit.phases
    folder = family.fetch(model)
    assert load_file(folder / "transformer" / "diffusion_pytorch_model.safetensors").keys()
    assert not {"code.py", "transformer/old.bin"} & files_of(folder).keys()
    known = settle("thudm/cogvideox-2b@" + "f" * 40)
    assert known == "cogvideox-2b@" + "f" * 40


def test_a_download_that_was_cut_off_goes_on(server: FakeHub, toy: Path) -> None:
    server.repos[REPO] = files_of(toy)
    family, model = find_model(settle(REPO))
    assert family.on_disk(model) is None, "configs alone are no model"
    server.failing, server.failing_path = 403, "vae/diffusion_pytorch_model"
    with pytest.raises(ModelUnavailable):
        family.fetch(model)
    assert family.on_disk(model) is None
    server.failing = 0
    assert family.fetch(model) == family.on_disk(model)


def test_a_variant_is_read_under_plain_names(server: FakeHub, toy: Path) -> None:
    files = files_of(toy)
    weights = files["transformer/diffusion_pytorch_model.safetensors"]
    server.repos[REPO] = {**files, "transformer/diffusion_pytorch_model.fp16.safetensors": weights}
    del server.repos[REPO]["transformer/diffusion_pytorch_model.safetensors"]
    family, model = find_model(settle(f"{REPO}:fp16"))
    folder = family.fetch(model)
    assert (folder / "transformer" / "diffusion_pytorch_model.safetensors").read_bytes() == weights
    assert sorted(os.listdir(folder / "vae")) == ["config.json", "diffusion_pytorch_model.safetensors"]
    assert json.loads((folder / "model_index.json").read_text())["_class_name"] == "CogVideoXPipeline"
    assert family.on_disk(model) == folder
    with pytest.raises(ModelUnavailable, match="variant 'bf16'"):
        family.fetch(find_model(settle(f"{REPO}:bf16"))[1])


def test_a_variant_may_have_a_folder_and_a_scheduler_of_its_own(
    server: FakeHub, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """LTX-2.5's repository: what is in `transformer` is distilled, and the weights to train are beside it."""
    toy = tmp_path_factory.mktemp("toys") / "ltx-2.5"
    LTX2.toy(toy, "text-2.5")
    files, name = files_of(toy), "scheduler/scheduler_config.json"
    distilled = json.loads(files[name]) | {"use_dynamic_shifting": False, "shift_terminal": None}
    files[name] = json.dumps(distilled).encode()
    weights = "transformer/diffusion_pytorch_model.safetensors"
    full = {f"transformer_full/{Path(one).name}": files[one] for one in (weights, "transformer/config.json")}
    repository = NEWEST.partition(":")[0]
    server.repos[repository] = {**files, **full, weights: b"distilled, never asked for"}
    _, fast = find_model(settle(repository))
    family, model = find_model(settle(NEWEST))
    assert (fast.distilled, fast.distilled_from, fast.steps) == ("steps", NEWEST, 8)
    assert (model.distilled, model.steps, model.guidance_scale, model.distillation) == ("", 30, 3.0, "")
    folder = family.fetch(model)
    assert (folder / weights).read_bytes() == files[weights]
    assert not is_distilled(folder)
    assert json.loads((folder / name).read_text()) == distilled | dict(FULL_SCHEDULER)
    assert family.on_disk(find_model(model.id).model) == folder
    assert family.on_disk(fast) is None
    code = family.usage(model, folder, "lora.safetensors", "a fox", (17, 64, 64))
    assert 'subfolder="transformer_full"' in code
    assert "variant" not in code
    compile(code, "card", "exec")


def test_pieces_and_formats_of_weights_are_told_apart() -> None:
    plain = [
        "transformer/diffusion_pytorch_model-00001-of-00002.safetensors",
        "transformer/diffusion_pytorch_model-00002-of-00002.safetensors",
        "transformer/diffusion_pytorch_model.safetensors.index.json",
    ]
    half = [
        "transformer/diffusion_pytorch_model.fp16-00001-of-00002.safetensors",
        "transformer/diffusion_pytorch_model-00002-of-00002.fp16.safetensors",
        "transformer/diffusion_pytorch_model.safetensors.index.fp16.json",
    ]
    rest = ["transformer/config.json", "model_index.json", "tokenizer/spiece.model"]
    left = ["transformer/model.py", "transformer/model.bin", "README.md", "transformer/x.fp16ema.safetensors"]
    names = [*plain, *half, *rest, *left]
    assert set(wanted_files(names, ["transformer"], "")) == {*plain, *rest}
    assert set(wanted_files(names, ["transformer"], "fp16")) == {*half, *rest}


def test_the_shell_names_a_hub_model(server: FakeHub, toy: Path, shell: Shell) -> None:
    server.repos[REPO] = files_of(toy)
    said = shell("fit", "--model", REPO, "--revision", "main", "--frames", "9")
    assert said.code in (0, 91), said.err
    assert "Needs about" in said.out
