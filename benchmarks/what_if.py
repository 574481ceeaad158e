"""Does *What if* find the change that matters among five, and does it call changes without an effect chance?

    python benchmarks/what_if.py --work DIR              every case, one seed
    python benchmarks/what_if.py --cases clip word       some of them
    python benchmarks/what_if.py --seeds 1 2 3           with other clips, weights, order and noise

Six causes are planted in runs of the built-in model, and five changes are asked about each, in one question:

    clip      one of a concept's clips has a bar over a fifth of the picture; the bar is marked in a sample
    flash     one of a concept's scenes is there twice, each time with a white flash, which is marked; both are left out
    caption   one clip's caption says another background; a sample shows the clip's own for that caption
    word      a word in the captions of the concept's clips, and in no others, names the concept
    setting   the learning rate is a hundredth of what it should be; the demo's value is among the changes
    share     nine of ten clips are for regularization, instead of every second one

The other four are two clips without a fault and two null changes: a second clip of the same scene is left out, and the
weight decay is 0.005, which so few steps do not feel. "ours" is how often the planted cause came first and was told
from chance, and how often a null change was not; "reference" is the number of times that it should be. Every change is
listed above with its difference and how much seeds alone vary.
"""

from __future__ import annotations

import json
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import causes as faults
import torch
from common import arguments, report

from workbench import demo, jobs
from workbench.dataset_builder import Dataset
from workbench.runs.run import Run
from workbench.runs.settings import TrainSettings
from workbench.sampler.samples import Sample, Samples, new_id, video_path, write_sample
from workbench.sampler.settings import SampleSettings
from workbench.trainer import what_if
from workbench.trainer.what_if import WhatIfSettings
from workbench.workspace import Workspace

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "assets"))

import tiny_world  # noqa: E402

CLIPS = 12  # of a concept
KNOWN = 24
TWIN_OF = 0  # number of the clip that is there twice
STEPS, BATCH, REPEATS = 40, 2, 4
WORD = "striped"
CONCEPTS = {
    "clip": "ring",
    "word": "stripes",
    "setting": "stripes",
    "flash": "cross",
    "caption": "ring",
    "share": "stripes",
}
DRAWN = {"clip": faults.FAULTS["bar"], "flash": faults.FAULTS["flash"]}  # over the faulty clip
SETTINGS: dict[str, tuple[str, float]] = {"setting": ("learning_rate", 2e-5), "share": ("regularization_share", 0.9)}
Row = dict[str, Any]


def prepare(root: Path, case: str, seed: int) -> tuple[Workspace, list[str], int]:
    """Import clips with the planted cause, one scene twice; return their names and the number of the faulty one.

    The names are in the order of the scenes; after them come the second clip of the faulty scene, if there is one, and
    that of the scene which is there twice.
    """
    workspace, concept = Workspace.open(root / f"{case}-{seed}"), CONCEPTS[case]
    made, specs = workspace.root / "made", tiny_world.concept_specs(concept)[0][:CLIPS]
    faulty, fault = chosen(case, seed, specs), DRAWN.get(case)
    if not (workspace.root / "datasets" / concept).exists():
        tiny_world.write_demo_clips(made, concept)
        shutil.rmtree(made / "new", ignore_errors=True)
        (made / "new").mkdir()
        draw = random.Random(f"demo {concept}")
        files = sorted((made / concept).glob("*.mp4"))
        for number, (file, spec) in enumerate(zip(files, specs, strict=False)):
            clip = tiny_world.draw(spec, draw, tiny_world.DEMO_SIZE)
            new = made / "new" / file.name
            caption = file.with_suffix(".txt").read_text().strip()
            if fault and number == faulty:
                tiny_world.write_clip(fault.draw(clip), new)
            else:
                shutil.copyfile(file, new)
            if case == "caption" and number == faulty:
                caption = told_wrong(spec).caption()
            new.with_suffix(".txt").write_text(caption)
        again = {"99_twin": TWIN_OF} | ({"98_again": faulty} if case == "flash" else {})
        for name, number in again.items():
            clip = tiny_world.draw(specs[number], random.Random(f"{name[3:]} {seed}"), tiny_world.DEMO_SIZE)
            tiny_world.write_clip(
                fault.draw(clip) if fault and number == faulty else clip, made / "new" / f"{name}.mp4"
            )
            shutil.copyfile((made / "new" / files[number].name).with_suffix(".txt"), made / "new" / f"{name}.txt")
        for file in sorted((made / demo.KNOWN).glob("*.mp4"))[KNOWN:]:
            file.unlink()
            file.with_suffix(".txt").unlink()
        Dataset.ensure(workspace, concept).import_files([made / "new"])
        Dataset.ensure(workspace, demo.KNOWN).import_files([made / demo.KNOWN])
    clips = sorted(Dataset.open(workspace, concept).clips, key=lambda clip: clip.name)
    return workspace, [Path(clip.name).stem for clip in clips], faulty


def chosen(case: str, seed: int, specs: Sequence[tiny_world.Spec]) -> int:
    """Return the number of the scene whose clip is faulty."""
    differs = DRAWN.get(case, faults.FAULTS["bar"]).differs
    rng = random.Random(f"what if {case} {seed}")
    return rng.choice([number for number, spec in enumerate(specs) if number != TWIN_OF and differs(spec)])


def told_wrong(spec: tiny_world.Spec) -> tiny_world.Spec:
    """Return what a caption says that names another background."""
    others = [colour for colour in tiny_world.COLOURS if colour not in (spec.colour, spec.background)]
    return replace(spec, background=random.Random(f"wrong {spec.caption()}").choice(others))


def run_of(workspace: Workspace, case: str, seed: int) -> Run:
    """Return a run whose settings hold the planted cause. It is not trained: a question trains what it needs."""
    if (workspace.runs / "base" / jobs.CONFIG).exists():
        return Run.open(workspace, "base")
    quiet: dict[str, Any] = {
        "preview_every": 0,
        "evaluate_every": 0,
        "device": "cpu",
        "seed": seed,
        "batch_size": BATCH,
    }
    settings: TrainSettings = demo.teach(CONCEPTS[case], demo.KNOWN).changed(**quiet, held_out=0)
    if case in SETTINGS:
        setting, wrong = SETTINGS[case]
        settings = settings.changed(**{setting: wrong})
    return Run.create(workspace, settings, "base")


def changes_of(case: str, names: Sequence[str], faulty: int, seed: int) -> list[str]:
    """Return five changes: the planted cause, two sound clips, and two null changes (a copy, weight decay)."""
    rng = random.Random(f"changes {case} {seed}")
    sound = rng.sample([one for number, one in enumerate(names[:CLIPS]) if number not in (faulty, TWIN_OF)], 2)
    if case in SETTINGS:
        name, _ = SETTINGS[case]
        planted = f"setting:{name}={getattr(demo.teach('a', 'b'), name)}"
    else:
        again = f",{names[CLIPS]}" if case == "flash" else ""
        planted = f"words:{WORD}" if case == "word" else f"clips:{names[faulty]}{again}"
    return [planted, *(f"clips:{one}" for one in sound), *nulls_of(names)]


def nulls_of(names: Sequence[str]) -> list[str]:
    """Return the changes without an effect worth telling."""
    return [f"clips:{names[-1]}", "setting:weight_decay=0.005"]


def sample_of(workspace: Workspace, case: str, faulty: int) -> Sample:
    """Return a sample that shows the faulty clip as the model sees it, made for that clip's caption."""
    spec = tiny_world.concept_specs(CONCEPTS[case])[0][faulty]
    clip = tiny_world.draw(spec, random.Random("asked"), tiny_world.SIZE)
    if fault := DRAWN.get(case):
        clip = fault.draw(clip)
    else:
        spec = told_wrong(spec)
    frames = ((clip.clamp(-1, 1) + 1) * 127.5).round().to(torch.uint8).permute(1, 2, 3, 0).numpy()
    settings = SampleSettings(prompt=spec.caption(), model=demo.MODEL)
    record: Row = {"settings": settings.model_dump(mode="json"), "fps": tiny_world.FPS, "frames": len(frames)}
    made = new_id()
    write_sample(video_path(workspace, made), frames, tiny_world.FPS, record | {"height": 40, "width": 40})
    return Samples(workspace).get(made)


def asked(workspace: Workspace, run: Run, changes: Sequence[str], options: Any, **more: Any) -> Path:
    """Ask as the page does, wait for the answer, and return the job's folder."""
    kinds = {"clips": "without_clip", "words": "without_word", "setting": "setting"}
    given = {
        name: tuple(one.partition(":")[2] for one in changes if one.startswith(f"{kind}:"))
        for kind, name in kinds.items()
    }
    settings = WhatIfSettings(**given, steps=options.steps, repeats=options.repeats, seeds=0, device="cpu", **more)
    folder = what_if.request(workspace, run, settings).folder
    status = jobs.wait(folder)
    assert status.state is jobs.State.FINISHED, status.message or jobs.log_tail(folder)
    return folder


def measure(root: Path, case: str, seed: int, options: Any) -> Row:
    """Ask about the planted cause and four other changes; return what was measured of every training."""
    began = time.monotonic()
    workspace, names, faulty = prepare(root, case, seed)
    run = run_of(workspace, case, seed)
    more: Row = {}
    if case == "caption":
        more = {"sample": sample_of(workspace, case, faulty).id}
    elif fault := DRAWN.get(case):
        left, top, right, bottom = fault.pixels(tiny_world.SIZE)
        sample = sample_of(workspace, case, faulty)
        more = {"sample": sample.id, "box": (left, top, right - left, bottom - top), "frames": fault.frames}
    changes = changes_of(case, names, faulty, seed)
    folder = asked(workspace, run, changes, options, **more)
    answer = what_if.read_answer(run, folder.name.rpartition("-")[2])
    assert answer is not None
    return {
        "case": case,
        "seed": seed,
        "planted": changes[0],
        "nulls": nulls_of(names),
        "asked": answer.asked,
        "trainings": json.loads((folder / what_if.TRAININGS).read_text()),
        "seconds": time.monotonic() - began,
    }


def judged(case: Row) -> list[tuple[str, what_if.Told]]:
    """Return every change with the measure that decides, the one that matters most first."""
    measured = case["trainings"]
    measure = next(name for name in what_if.MEASURES if name in measured["0-0"])
    repeats = sum(name.startswith("0-") for name in measured)

    def of(arm: int) -> list[float]:
        return [measured[f"{arm}-{repeat}"][measure] for repeat in range(repeats)]

    found = [(change, what_if.told(measure, of(0), of(number))) for number, change in enumerate(case["asked"], 1)]
    return sorted(found, key=lambda one: (one[1].verdict != "told", -abs(one[1].difference)))


def summary(cases: Sequence[Row]) -> list[Row]:
    rows: list[Row] = []
    first, null, nulls = 0, 0, 0
    for case in cases:
        changes = judged(case)
        for change, told in changes:
            mark = {case["planted"]: "planted", **dict.fromkeys(case["nulls"], "null")}.get(change, "")
            where = f"{case['case']} {case['seed']}, {what_if.label(change)[:44]}, {mark}: {told.verdict}"
            rows.append({"case": where, "ours": told.difference, "reference": told.band})
        first += changes[0][0] == case["planted"] and changes[0][1].verdict == "told"
        null += sum(told.verdict != "told" for change, told in changes if change in case["nulls"])
        nulls += len(case["nulls"])
    rows.append({"case": "planted cause first and told from chance", "ours": first, "reference": len(cases)})
    rows.append({"case": "null change called null", "ours": null, "reference": nulls})
    return rows


def main() -> None:
    parser = arguments(__doc__.splitlines()[0], cases=["clip"], steps=2, repeats=3)
    parser.add_argument("--work", type=Path, help="where runs and finished cases are kept; else in a temporary folder")
    parser.add_argument("--cases", nargs="+", choices=tuple(CONCEPTS), default=list(CONCEPTS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[1])
    parser.add_argument("--steps", type=int, default=STEPS, help="trained again")
    parser.add_argument("--repeats", type=int, default=REPEATS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = options.work or Path(folder)
        found = []
        for seed in options.seeds:
            for case in options.cases:
                kept = root / f"{case}-{seed}.json"
                row = json.loads(kept.read_text()) if kept.exists() else measure(root, case, seed, options)
                kept.write_text(json.dumps(row))
                found.append(row)
    report(summary(found), options.json, cases=found)


if __name__ == "__main__":
    main()
