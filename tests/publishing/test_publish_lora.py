"""A LoRA on a Hub that runs on this machine: pushed by a job of its own, fetched and used by stock clients."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import yaml

from tests.dataset_builder.small import write_dataset
from tests.fake_hub import TOKEN, FakeHub
from tests.patience import PATIENCE
from tests.publishing.conftest import PROMPTS
from tests.shell import Shell
from workbench import jobs
from workbench.clips import media
from workbench.clips.records import read_clips
from workbench.errors import ExitCode
from workbench.jobs.devices import pick_device
from workbench.publishing import push as pushing
from workbench.publishing.settings import LoraPush
from workbench.runs.run import Run
from workbench.sampler.generate import Sampler
from workbench.sampler.settings import SampleSettings
from workbench.workspace import Workspace, read_json

ROOT = Path(__file__).resolve().parents[2]
FILES = {"README.md", "config.json", "pytorch_lora_weights.safetensors", "samples/0.mp4", "samples/1.mp4"}
FILES |= {"lora_check.py"}
# A stranger's machine: the card's own lines as they stand; then the same pipeline draws for a comparison.
STOCK = """
import re, sys
import numpy as np, torch
from huggingface_hub import hf_hub_download
repo, target = sys.argv[1:]
card = open(hf_hub_download(repo, "README.md")).read()
code = re.search(r"```python\\n(.*?)```", card, re.S)[1]
exec(code)
wanted = {"prompt": "zwx, a red circle moves left", "num_frames": 9, "height": 40, "width": 40}
wanted |= {"num_inference_steps": 4, "guidance_scale": 3.0, "output_type": "np", "max_sequence_length": 16}
wanted["max_sequence_length"] = pipe.transformer.config.max_text_seq_length
draw = lambda: pipe(**wanted, generator=torch.Generator().manual_seed(7)).frames[0]
with_lora = draw()
pipe.unload_lora_weights()
np.savez(target, with_lora=with_lora, without=draw())
"""


def push(shell: Shell, *arguments: str) -> str:
    said = shell("publish", "lora", "cats", "--to", "me/cats", *arguments)
    assert said.code == 0, said.err
    return said.out


def test_what_is_pushed_loads_in_stock_diffusers_and_draws_the_same(
    shell: Shell, workspace: Workspace, run: Run, hub: FakeHub, tmp_path: Path
) -> None:
    with Watching() as watching:
        assert f"pushed: {hub.url}/me/cats" in push(shell)
    assert hub.private == {"me/cats"}
    assert set(hub.repos["me/cats"]) == FILES

    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "2"}
    done = subprocess.run(
        [sys.executable, "-c", STOCK, "me/cats", str(tmp_path / "stock.npz")],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert media.probe(tmp_path / "video.mp4").frames == 9
    stock = np.load(tmp_path / "stock.npz")
    settings = SampleSettings(prompt=PROMPTS[0], steps=4, seed=7, loras=("cats",), device="cpu")
    ours = np.asarray(Sampler("tiny-cogvideox", pick_device("cpu")).generate(workspace, settings).frames)
    ours = ours / 255 if ours.dtype == np.uint8 else ours
    error = float(np.square(ours - stock["with_lora"]).mean())
    assert error < 1e-5, f"{-10 * np.log10(error):.1f} dB"  # 50 dB: ours are rounded
    assert np.abs(ours - stock["without"]).max() > 0.1  # the LoRA is seen, at its full strength

    # Pushed again: nothing has changed, nothing is committed.
    assert "no new commit" in push(shell)
    assert hub.commits == ["cats from Video LoRA Workbench"]
    published = read_json(run.folder / "published.json")
    assert (published["repo_id"], published["private"], published["commit"]) == ("me/cats", True, hub.head("me/cats"))

    # The token is nowhere, and nothing tells of this machine.
    kept = [path for path in workspace.root.rglob("*") if path.is_file()]
    assert not [path for path in kept if TOKEN.encode() in path.read_bytes()]
    assert watching.seen > 1
    assert not watching.found
    for name, data in hub.repos["me/cats"].items():
        for secret in (TOKEN, str(workspace.root), "secret cats"):
            assert secret.encode() not in data, f"{secret} in {name}"


def test_the_card_says_what_the_run_knows(workspace: Workspace, run: Run) -> None:
    plan = pushing.plan_upload(workspace, "runs/cats", LoraPush(repo_id="me/cats"))
    _, front, body = plan.readme.split("---\n", 2)
    metadata = yaml.safe_load(front)
    assert metadata["license"] == "apache-2.0"
    assert metadata["instance_prompt"] == "zwx"
    assert metadata["pipeline_tag"] == "text-to-video"
    assert {"lora", "diffusers", "text-to-video", "template:sd-lora"} <= set(metadata["tags"])
    assert metadata["widget"] == [
        {"text": prompt, "output": {"url": f"samples/{place}.mp4"}} for place, prompt in enumerate(PROMPTS)
    ]
    assert body.lstrip().startswith("<Gallery />")
    for said in (
        "A LoRA of rank 4", "| Clips trained on | 6 |", "| Sizes | 32x32 |", "9 frames of 40x40", "| base model |",
        'pipe.load_lora_weights("me/cats", adapter_name="lora")', "num_inference_steps=3", "guidance_scale=3.0",
        "## Limits", "first frame.png",
    ):  # fmt: skip
        assert (said in body) != (said == "first frame.png"), said
    about = json.loads(plan.files["config.json"])  # type: ignore[arg-type]
    assert (about["rank"], about["alpha"], about["training"]["rank"]) == (4, 8.0, 4)
    assert media.read_comment(run.folder / "previews/step-00000200/0.mp4")
    assert not any(name.startswith("clips/") for name in plan.files)


def test_a_dry_run_names_every_file_and_sends_nothing(shell: Shell, run: Run, hub: FakeHub) -> None:
    said = push(shell, "--dry-run", "--clips")
    assert "me/cats (private)" in said
    named = set(re.findall(r"^ +[\d.,]+ [kM]B  (\S+)$", said, re.MULTILINE))
    assert named > FILES
    assert len([name for name in named if name.startswith("clips/squares/")]) == 6
    assert "The training clips and their captions are uploaded, too." in said
    assert not hub.repos
    assert not [line for line in hub.requests if line.startswith(("POST", "PUT"))]


def test_a_push_that_broke_off_goes_on(shell: Shell, workspace: Workspace, run: Run, hub: FakeHub) -> None:
    hub.failing, hub.failing_path, hub.failing_after = 418, "/store/", 3
    said = shell("publish", "lora", "runs/cats", "--to", "me/cats", "--clips")
    assert said.code == ExitCode.MODEL_UNAVAILABLE
    assert "an upload to me/cats broke off: push again" in said.err
    assert (hub.repos["me/cats"], hub.commits) == ({}, [])
    hub.requests = []
    there = len(hub.objects)
    assert there
    hub.failing = 0
    push(shell, "--clips")
    sent = {line for line in hub.requests if "/store/" in line}  # what broke off may have been answered only now
    assert len(sent) == len(hub.objects) - there
    assert len([name for name in hub.repos["me/cats"] if name.startswith("clips/squares/")]) == 7 - 1
    assert len(hub.commits) == 1


def test_what_may_not_be_is_refused_before_anything_goes(
    shell: Shell, workspace: Workspace, run: Run, hub: FakeHub
) -> None:
    hub.repos["me/open"] = {"README.md": b"mine"}
    said = shell("publish", "lora", "cats", "--to", "me/open")
    assert said.code == ExitCode.BAD_CONFIG
    assert "me/open is public and `private` is on" in said.err
    assert hub.repos["me/open"] == {"README.md": b"mine"}
    assert not hub.objects
    assert "must be OWNER/NAME" in shell("publish", "lora", "cats", "--to", "not a name").err
    said = shell("publish", "lora", "cats", "--to", "me/cats", "--license", "no-license")
    assert "the Hub refuses the card of me/cats" in said.err
    assert '"license" must be one of' in said.err
    assert not hub.repos.pop("me/cats")
    assert "there is no LoRA" in shell("publish", "lora", "dogs", "--to", "me/dogs").err
    trained = read_clips(workspace.dataset("squares"))[-1]
    (workspace.dataset("squares") / trained.file_name).write_bytes(b"another")
    assert "has changed since" in shell("publish", "lora", "cats", "--to", "me/cats", "--clips").err
    assert "not on the Hub yet" in shell("publish", "space", "cats", "--to", "me/demo").err
    Path(os.environ["HF_HOME"], "token").unlink()
    assert "nobody is logged in to the Hub: log in with `hf auth login`" in shell("publish", "lora", "cats").err
    assert set(hub.repos) == {"me/open"}


class Watching:
    """Looks at every process's arguments until it is left."""

    def __init__(self) -> None:
        self.seen, self.found = 0, list[str]()
        self._over = threading.Event()

    def __enter__(self) -> Watching:
        self._thread = threading.Thread(target=self._look)
        self._thread.start()
        return self

    def _look(self) -> None:
        while not self._over.is_set():
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    said = path.read_bytes()
                except OSError:
                    continue
                self.seen += b"workbench.publishing" in said
                if TOKEN.encode() in said:
                    self.found.append(said.decode())
            time.sleep(0.05)

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


@pytest.mark.usefixtures("run")
def test_two_presses_are_one_push(workspace: Workspace, hub: FakeHub) -> None:
    settings = LoraPush(repo_id="me/cats")
    first = pushing.start(workspace, "runs/cats", settings)
    again = pushing.start(workspace, "runs/cats", settings)
    assert first.pid == again.pid
    ended = jobs.wait(first.folder, PATIENCE)
    assert ended.state is jobs.State.FINISHED, ended.message
    assert len(hub.commits) == 1


# ---- a dataset


def test_a_dataset_is_shown_then_pushed_once(shell: Shell, workspace: Workspace, hub: FakeHub) -> None:
    write_dataset(workspace.dataset("squares"), trigger_word="zwx")
    command = ("publish", "dataset", "squares", "--to", "me/squares", "--license", "cc0-1.0")
    said = shell(*command, "--dry-run")
    assert said.code == 0, said.err
    assert "to the dataset me/squares (private)" in said.out
    assert "license: cc0-1.0" in said.out
    named = set(re.findall(r"^ +[\d.,]+ [kM]B  (\S+)$", said.out, re.MULTILINE))
    assert not hub.repos

    assert f"7 clips written: {hub.url}/datasets/me/squares" in shell(*command).out
    assert set(hub.repos["datasets/me/squares"]) == named
    assert hub.private == {"datasets/me/squares"}
    assert "no new commit" in shell(*command).out
    assert len(hub.commits) == 1
    assert "give it with --to" in shell("publish", "dataset", "squares").err
