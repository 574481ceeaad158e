"""Does the search for causes find the clips that taught a LoRA a fault? Measured on faults that are planted.

    python benchmarks/causes.py --work DIR                          six concepts; no case is repeated
    python benchmarks/causes.py --concepts ring --leave-one-out     also against 24 trainings that each leave out a clip
    python benchmarks/causes.py --without                           also trains again without the named clips

Each concept's 24 clips are rendered as for the demo, two of them with a fault in a known place: a black or white bar,
or a white flash at the end. A run with the demo's settings, none held out, trains on them. Samples are then generated
for the captions of the faulty clips and for prompts that no clip has, and the one that shows the fault most is asked
about: with the fault marked and without a mark. A sample that shows the fault least is asked about with the same mark;
there nothing of the fault is to be blamed.

"auc" is the share of pairs of a faulty and a sound clip in which the faulty one has the higher score. A concept whose
samples never show the fault cannot be asked about; it is listed and not counted.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import concepts
import torch
from common import arguments, report

from workbench import demo, jobs
from workbench.dataset_builder import Dataset
from workbench.families import find_model
from workbench.families.model_inputs import ModelInputs
from workbench.jobs.devices import pick_device
from workbench.runs.data import seed_for
from workbench.runs.run import Run
from workbench.runs.settings import TrainSettings
from workbench.sampler.samples import Sample, Samples, new_id, video_path, write_sample
from workbench.sampler.settings import SampleSettings
from workbench.trainer import attribution, causes, lora, optimizers
from workbench.trainer.batch_inputs import BatchInputs
from workbench.workspace import Workspace

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "assets"))

import tiny_world  # noqa: E402

PLANTED = 2
SHOWN = 0.5  # from here on a sample shows the fault
OWN_SAMPLES, OTHER_SAMPLES = 4, 4  # for each faulty clip's caption; for captions that no clip has
LEFT_OUT_STEPS = 150
Row = dict[str, Any]


@dataclass(frozen=True)
class Fault:
    """A fault drawn over a clip.

    box: left, top, right and bottom as shares of the picture.
    frames: the first and the last.
    colour: of the box, -1 to 1.
    """

    box: tuple[float, float, float, float]
    frames: tuple[int, int]
    colour: tuple[float, float, float]

    def pixels(self, size: int) -> tuple[int, int, int, int]:
        """Return left, top, right and bottom in a picture of this size."""
        left, top, right, bottom = (round(edge * size) for edge in self.box)
        return left, top, right, bottom

    def draw(self, clip: torch.Tensor) -> torch.Tensor:
        """Return a clip [3, F, H, W] with the fault."""
        clip, (first, last) = clip.clone(), self.frames
        left, top, right, bottom = self.pixels(clip.shape[-1])
        clip[:, first : last + 1, top:bottom, left:right] = torch.tensor(self.colour).view(3, 1, 1, 1)
        return clip

    def differs(self, spec: tiny_world.Spec) -> bool:
        """Return whether the fault can be told from a clip's own colors."""
        own = "black" if self.colour[0] < 0 else "white"
        return own not in (spec.background, spec.colour)

    def shown(self, clip: torch.Tensor) -> float:
        """Return how much a clip shows it: 1 in exactly its color, 0 from a third of the range away."""
        left, top, right, bottom = self.pixels(clip.shape[-1])
        inside = clip[:, self.frames[0] : self.frames[1] + 1, top:bottom, left:right]
        away = (inside - torch.tensor(self.colour).view(3, 1, 1, 1)).abs().mean()
        return max(0.0, 1 - float(away) / 0.67)


FAULTS = {
    "bar": Fault((0.0, 0.8, 1.0, 1.0), (0, 8), (-0.9, -0.9, -0.9)),
    "top": Fault((0.0, 0.0, 1.0, 0.2), (0, 8), (0.95, 0.95, 0.95)),
    "side": Fault((0.0, 0.0, 0.2, 1.0), (0, 8), (-0.9, -0.9, -0.9)),
    "flash": Fault((0.0, 0.0, 1.0, 1.0), (5, 8), (0.95, 0.95, 0.95)),
}
CASES = {"stripes": "side", "ring": "bar", "shrinks": "flash", "cross": "top", "dots": "bar", "fades": "side"}


# ---- runs with faulty clips -----------------------------------------------------------------------------------------


def prepare(root: Path, concept: str, seed: int) -> tuple[Workspace, list[int]]:
    """Import a concept's 24 clips, two of them faulty, and the known clips; return the numbers of the faulty ones."""
    workspace, fault = Workspace.open(root / f"{concept}-{seed}"), FAULTS[CASES[concept]]
    if (kept := workspace.root / "planted.json").exists():
        return workspace, json.loads(kept.read_text())
    specs, made = tiny_world.concept_specs(concept)[0], root / f"{concept}-{seed}-clips"
    order = random.Random(f"planted {concept} {seed}").sample(range(len(specs)), len(specs))
    planted = sorted([number for number in order if fault.differs(specs[number])][:PLANTED])
    tiny_world.write_demo_clips(made, concept)
    rng, files = random.Random(f"demo {concept}"), sorted((made / concept).glob("*.mp4"))
    for number, spec in enumerate(specs):
        clip = tiny_world.draw(spec, rng, tiny_world.DEMO_SIZE)
        if number in planted:
            tiny_world.write_clip(fault.draw(clip), files[number])
    for name in (concept, demo.KNOWN):
        Dataset.ensure(workspace, name).import_files([made / name])
    kept.write_text(json.dumps(planted))
    return workspace, planted


def settings_for(concept: str, seed: int, steps: int | None) -> TrainSettings:
    quiet = {"held_out": 0, "preview_every": 0, "evaluate_every": 0, "device": "cpu"}
    taught = demo.teach(concept, demo.KNOWN).changed(seed=seed, **quiet)
    return taught.changed(steps=steps, save_every=max(1, steps // 3)) if steps else taught


def trained(workspace: Workspace, settings: TrainSettings, name: str) -> Run:
    """Return the run of this name, which is trained unless it was."""
    run = Run(workspace.run(name))
    if not (run.folder / jobs.CONFIG).exists():
        run = Run.create(workspace, settings, name)
    if run.lora is None:
        concepts.finish(run)
    return run


# ---- samples and questions ------------------------------------------------------------------------------------------


def prompts_of(concept: str, planted: Sequence[int], most: int | None) -> list[tiny_world.Spec]:
    """Return the faulty clips' specifications, several times, and others in whose clips the fault would be seen."""
    specs, others = tiny_world.concept_specs(concept)
    own = [specs[number] for number in planted] * OWN_SAMPLES
    return [*own, *filter(FAULTS[CASES[concept]].differs, others)][: most or len(own) + OTHER_SAMPLES]


def put_sample(workspace: Workspace, run: Run, spec: tiny_world.Spec, clip: torch.Tensor) -> Sample:
    """Write a clip [3, F, H, W] that a run's LoRA generated as a sample of the workspace."""
    made, frames = new_id(), ((clip.clamp(-1, 1) + 1) * 127.5).round().byte().permute(1, 2, 3, 0).numpy()
    settings = SampleSettings(prompt=spec.caption(), model=run.settings.model, loras=(f"runs/{run.name}",))
    record: Row = {"settings": settings.model_dump(mode="json"), "loras": [{"file": str(run.lora)}]}
    record |= {"fps": tiny_world.FPS, "frames": len(frames), "height": frames.shape[1], "width": frames.shape[2]}
    write_sample(video_path(workspace, made), frames, tiny_world.FPS, record)
    return Samples(workspace).get(made)


def asked(workspace: Workspace, sample: Sample, **marked: Any) -> causes.Answer:
    """Ask which clips caused a sample, as the page does, and return the answer."""
    folder = causes.request(workspace, sample, device="cpu", **marked).folder
    status = jobs.wait(folder)
    assert status.state is jobs.State.FINISHED, status.message or jobs.log_tail(folder)
    return next(answer for answer in causes.answers(sample) if answer.key == folder.name)


def number_of(name: str) -> int:
    """Return a clip's number, from 0, from its name: 01_red_ring_left_on_blue."""
    return int(name.split("_")[0]) - 1


def judged(answer: causes.Answer, planted: Sequence[int]) -> Row:
    """Return how well an answer tells faulty clips from sound ones."""
    scores = {number_of(one.name): one.score for one in answer.clips}
    named = sorted(number_of(one.name) for one in causes.named(answer))
    pairs = [(scores[bad], scores[good]) for bad in planted for good in scores if good not in planted]
    auc = statistics.mean((bad > good) + 0.5 * (bad == good) for bad, good in pairs)
    usual = {number_of(one.name): one.usual for one in answer.clips}
    lowest, highest = min(usual[bad] for bad in planted), max(usual[one] for one in usual if one not in planted)
    return {"auc": auc, "named": named, "faulty from": lowest, "sound up to": highest, "agreement": answer.agreement}


def measure(root: Path, concept: str, seed: int, options: Any) -> Row:
    """Train on faulty clips, ask about samples, and compare with what was planted."""
    workspace, planted = prepare(root, concept, seed)
    fault = FAULTS[CASES[concept]]
    run = trained(workspace, settings_for(concept, seed, options.steps), "base")
    specs = prompts_of(concept, planted, options.prompts)
    clips = generated(run, specs, seed)
    shown = [fault.shown(clip) for clip in clips]
    worst, best = max(range(len(shown)), key=shown.__getitem__), min(range(len(shown)), key=shown.__getitem__)
    row: Row = {"concept": concept, "seed": seed, "fault": CASES[concept], "planted": planted, "shown": shown[worst]}
    row |= {"mean shown": statistics.mean(shown), "samples": len(shown), "samples with it": with_it(shown)}
    if shown[worst] < SHOWN and not options.smallest:
        return row
    left, top, right, bottom = fault.pixels(tiny_world.SIZE)
    row["mark"] = {"box": (left, top, right - left, bottom - top), "frames": fault.frames}
    faulty, sound = (put_sample(workspace, run, specs[one], clips[one]) for one in (worst, best))
    began = time.monotonic()
    row["marked"], row["sample"] = judged(asked(workspace, faulty, **row["mark"]), planted), faulty.id
    row["seconds"] = time.monotonic() - began
    row["unmarked"] = judged(asked(workspace, faulty), planted)
    row["seconds of the second question"] = time.monotonic() - began - row["seconds"]
    row["sound sample"] = judged(asked(workspace, sound, **row["mark"]), planted)
    return row


def generated(run: Run, specs: list[tiny_world.Spec], seed: int) -> torch.Tensor:
    """Generate a clip for each specification with the stock pipeline and a run's LoRA."""
    (_, model), lora_file = find_model(demo.MODEL), run.lora
    assert lora_file is not None
    with concepts.lora_on(pipeline := concepts.stock(model), lora_file):
        return concepts.Prompts(specs, seed).generate(pipeline, model)


def with_it(shown: Sequence[float]) -> int:
    return sum(one >= SHOWN for one in shown)


def without(root: Path, line: Row, options: Any) -> Row:
    """Train again without the clips that were named, and return how much samples of the same prompts show the fault."""
    concept, seed = line["concept"], line["seed"]
    workspace, planted = prepare(root, concept, seed)
    sample, dataset = Samples(workspace).get(line["sample"]), Dataset.open(workspace, concept)
    answer = next(one for one in causes.answers(sample) if one.box or one.frames)
    named = [one.file_name for one in causes.named(answer)]
    if not named:
        return {"named": 0}
    dataset.remove(*named)
    try:
        run = trained(workspace, settings_for(concept, seed, options.steps), "without")
    finally:
        dataset.restore(*named)
    clips = generated(run, prompts_of(concept, planted, options.prompts), seed)
    shown = [FAULTS[CASES[concept]].shown(clip) for clip in clips]
    return {"named": len(named), "mean shown": statistics.mean(shown), "samples with it": with_it(shown)}


# ---- leaving one clip out -------------------------------------------------------------------------------------------


def leave_one_out(root: Path, line: Row, steps: int, repeats: int) -> Row:
    """Compare scores with real trainings that each leave one clip out, and with their means over several seeds.

    The trainings of a repeat have the same batches and noise, so that they differ in nothing but the clip, whose loss
    counts 0. They are short and have no regularization. The change that counts is that of the sample's loss, marked or
    not, on noise that the scores did not see. Each repeat is kept as soon as it is done.
    """
    workspace, _ = prepare(root, line["concept"], line["seed"])
    kept = workspace.root / f"left-out-{steps}.json"
    done: list[Row] = json.loads(kept.read_text()) if kept.exists() else []
    if len(done) < repeats:
        run, sample = Run.open(workspace, "base"), Samples(workspace).get(line["sample"])
        settings = run.settings.changed(regularization_dataset="", regularization_share=0.0, steps=steps)
        gradients = attribution.Gradients(workspace, run.folder, settings, pick_device("cpu"), lambda *_: None)
        question = attribution.question_of(sample)
        item = attribution.sample_clip(gradients.model, question)
        gradients.load([*gradients.clips, item])
        marks: tuple[Row, Row] = (line["mark"], {})
        asked = [question._replace(**some) for some in marks]
        masks = [attribution.marked_cells(gradients.family, gradients.folder, item, one) for one in asked]
        begin = lora.state(gradients.transformer)
        while len(done) < repeats:
            done.append(left_out(gradients, item, masks, begin, steps, len(done)))
            kept.write_text(json.dumps(done))
    return {"trainings": len(done[0]["changes"]), "steps": steps, **correlations(done[:repeats])}


def left_out(
    gradients: attribution.Gradients, item: Any, masks: Sequence[torch.Tensor | None], begin: Any, steps: int, seed: int
) -> Row:
    """Train with all clips and once without each; return what the gradients predict and how the loss changed."""
    settings = gradients.settings
    if seed:
        settings = settings.changed(seed=seed_for(settings.seed, "left out", seed) % 2**31)
    gradients.inputs = BatchInputs(gradients.encoder, gradients.model, gradients.data, settings)
    lora.set_state(gradients.transformer, begin)
    predicted = torch.zeros(len(masks), len(gradients.clips))
    for step in train(gradients, "", steps):
        if step % max(1, steps // 3) == 0:
            own = [gradients.of(item, mask) for mask in masks]
            for number, clip in enumerate(gradients.clips):
                other = gradients.of(clip)
                predicted[:, number] += torch.stack([torch.cosine_similarity(one, other).mean() for one in own])
    before, changes = losses(gradients, item, masks), []
    for clip in gradients.clips:
        lora.set_state(gradients.transformer, begin)
        for _ in train(gradients, clip.sha256, steps):
            pass
        changes.append([after - loss for after, loss in zip(losses(gradients, item, masks), before, strict=True)])
    return {"predicted": predicted.tolist(), "changes": changes, "loss": before}


def correlations(repeats: Sequence[Row]) -> Row:
    """Return rank correlations of scores and changes of the loss: in each repeat, and of the means over all repeats.

    "agreement" is that of the changes in one half of the repeats with those in the other. It says how much of the
    changes is due to the clips; no score can correlate much better than its square root allows.
    """
    predicted = torch.tensor([one["predicted"] for one in repeats])  # repeat, kind, clip
    changes = torch.tensor([one["changes"] for one in repeats]).transpose(1, 2)
    found: Row = {"repeats": len(repeats)}
    for kind, name in enumerate(("marked", "unmarked")):
        scores, real = predicted[:, kind], changes[:, kind]
        each = [causes.rank_correlation(*pair) for pair in zip(scores.tolist(), real.tolist(), strict=True)]
        found[name] = causes.rank_correlation(scores.mean(0).tolist(), real.mean(0).tolist())
        found[f"{name}, each repeat"] = each
        if len(repeats) > 1:
            halves = real[::2].mean(0).tolist(), real[1::2].mean(0).tolist()
            found[f"{name}, agreement"] = causes.rank_correlation(*halves)
    return found


def train(gradients: attribution.Gradients, left_out: str, steps: int) -> Iterator[int]:
    """Train the LoRA, yielding after each step. left_out: content of the clip whose loss does not count"""
    settings, transformer, schedule = gradients.settings, gradients.transformer, gradients.inputs.schedule
    optimizer = optimizers.build(settings, gradients.trainable.named)
    rate = optimizers.learning_rate(settings, optimizer)
    for step in range(1, steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = rate(step - 1)
        batch = gradients.inputs.batch(step, 0)
        counts = torch.tensor([float(item.sha256 != left_out) for item in batch.items])
        (gradients.family.loss(transformer, schedule, batch.inputs) * counts).mean().backward()
        torch.nn.utils.clip_grad_norm_(gradients.trainable.parameters, settings.max_grad_norm)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        yield step


def losses(gradients: attribution.Gradients, item: Any, masks: Sequence[torch.Tensor | None]) -> list[float]:
    """Return a sample's mean loss for each mask, on noise of its own."""
    (probe,) = gradients.inputs.clips([item])
    generator, found = torch.Generator().manual_seed(1), [0.0] * len(masks)
    with torch.no_grad():
        for level in attribution.LEVELS * 4:
            schedule = gradients.inputs.schedule
            inputs: ModelInputs = probe.sampled(gradients.family, schedule, level, generator, gradients.device)
            for number, mask in enumerate(masks):
                found[number] += float(gradients.family.loss(gradients.transformer, schedule, inputs, None, mask))
    return found


def finished(root: Path, concept: str, seed: int, options: Any) -> Row:
    """Return a case from its file, with every part that is asked for. Each part is kept as soon as it is done."""
    kept = root / f"{concept}-{seed}" / "case.json"
    line = json.loads(kept.read_text()) if kept.exists() else measure(root, concept, seed, options)
    kept.write_text(json.dumps(line))
    if options.leave_one_out and "sample" in line and "leave one out" not in line:
        line["leave one out"] = leave_one_out(root, line, options.left_out_steps, options.left_out_repeats)
        kept.write_text(json.dumps(line))
    if options.without and "sample" in line and "without" not in line:
        line["without"] = without(root, line, options)
        kept.write_text(json.dumps(line))
    return line


# ---- the report -----------------------------------------------------------------------------------------------------


def summary(lines: Sequence[Row]) -> list[Row]:
    """Return the table: a row for each case, then the totals."""
    rows: list[Row] = []
    shown = [line for line in lines if "marked" in line]
    for line in lines:
        case = f"{line['concept']}, seed {line['seed']}, {line['fault']}"
        if "marked" not in line:
            rows.append({"case": f"{case}: no sample shows the fault", "ours": line["shown"], "reference": ""})
            continue
        for kind in ("marked", "unmarked"):
            rows.append({"case": f"{case}: AUC, {kind}", "ours": line[kind]["auc"], "reference": 0.95})
        right = set(line["marked"]["named"]) == set(line["planted"])
        rows.append({"case": f"{case}: names exactly the two", "ours": right, "reference": True})
        if line.get("without", {}).get("named"):
            now, before = line["without"]["mean shown"], line["mean shown"]
            rows.append({"case": f"{case}: fault in samples without them", "ours": now, "reference": before})
        for kind in ("marked", "unmarked") if "leave one out" in line else ():
            value = line["leave one out"][kind]
            rows.append({"case": f"{case}: rank correlation, {kind}", "ours": value, "reference": 0.5})
    if shown:
        for kind in ("marked", "unmarked"):
            mean = statistics.mean(line[kind]["auc"] for line in shown)
            rows.append({"case": f"mean AUC of {len(shown)} cases, {kind}", "ours": mean, "reference": 0.95})
        named = [set(line["marked"]["named"]) == set(line["planted"]) for line in shown]
        rows.append({"case": f"names exactly the two, of {len(shown)}", "ours": sum(named), "reference": len(shown)})
        blamed = sum(bool(set(line["sound sample"]["named"]) & set(line["planted"])) for line in shown)
        rows.append({"case": "blames them for a sample without the fault", "ours": blamed, "reference": 0})
    return rows


def main() -> None:
    parser = arguments(__doc__.splitlines()[0], concepts=["ring"], steps=3, prompts=2)
    parser.add_argument("--work", type=Path, help="where runs and finished cases are kept; else in a temporary folder")
    parser.add_argument("--concepts", nargs="+", choices=tuple(CASES), default=list(CASES))
    parser.add_argument("--seeds", nargs="+", type=int, default=[1])
    parser.add_argument("--steps", type=int, help="instead of the demo's")
    parser.add_argument("--prompts", type=int, help="most samples to look for the fault in")
    parser.add_argument("--without", action="store_true", help="also train again without the named clips")
    parser.add_argument("--leave-one-out", action="store_true", help="also train once without each clip")
    parser.add_argument("--left-out-steps", type=int, default=LEFT_OUT_STEPS)
    parser.add_argument("--left-out-repeats", type=int, default=1, help="seeds over which their effects are averaged")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = options.work or Path(folder)
        lines = [finished(root, concept, seed, options) for seed in options.seeds for concept in options.concepts]
    report(summary(lines), options.json, cases=lines)


if __name__ == "__main__":
    main()
