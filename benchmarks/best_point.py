"""Does a run stop at its best point, and does the forecast hold? Stops against the best of all checkpoints.

    python benchmarks/best_point.py                               six concepts, one seed; minutes a run
    python benchmarks/best_point.py --concepts ring pink --seeds 0 1 2
    python benchmarks/best_point.py --judge --keep FILE           judge the kept runs again, without training
    python benchmarks/best_point.py --thresholds --keep FILE      would other thresholds be better?

Each run trains all its steps with best_point set to "ask", so it measures but does not stop. Checkpoints are sampled:
`shown` is the share of prompts of the concept, none of them trained on, whose samples show it, `known` the share of
known prompts whose samples are right. The score of a checkpoint is shown x known / known of the base model. The rule is
then applied to the measurements as they came in; where it first says "reached", a run set to "do" would stop.

"ours" is the score of the checkpoint nearest to the stop, "reference" the oracle's, the highest of all sampled
checkpoints, "end" that of the run's end. With a few prompts, the oracle is also lucky, so "fair" compares differently:
each half of the prompts chooses the best checkpoint, which is scored on the other half. A run is one line in the file
of --keep (concept, kind, seed, steps, measurements, samples); runs that it has are not trained again. Some lines have
"settled", of a trial (docs/best_point.md): step, further steps with a learning rate that falls to zero, shown, known.

--thresholds takes the runs with a regularization dataset, chooses the rule's thresholds on all concepts but one, and
judges them on that one, in turn. It compares them with the present rule, with stops after a fixed share of the steps,
and with hindsight.

Measuring every 10 steps costs more than the 5% that a run takes by itself at most: these runs are short, and have 24
measurements, as many as a run of 1,000 steps has by itself with the same batch.

Kinds of runs: "demo", nearly the demo's settings with a regularization dataset, at a batch of 2; "plain", without one
and at a constant learning rate, so that known prompts suffer; "null", plain at a learning rate of 1e-7, which has no
effect and is not sampled; "known", plain on clips that the base model can make already.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import statistics
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import concepts
import torch
from common import arguments, report

from workbench import demo
from workbench.families import find_model
from workbench.runs.analysis import best_point
from workbench.runs.analysis.best_point import Fit, Forecast, Point, fit, forecast, points_of
from workbench.runs.checkpoints import LORA, best_point_step, folder_of
from workbench.runs.run import Run
from workbench.runs.settings import TrainSettings
from workbench.trainer.causes import rank_correlation
from workbench.workspace import Workspace

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "assets"))

import tiny_models  # noqa: E402
import tiny_world  # noqa: E402

MODEL = "tiny-cogvideox"
CONCEPTS = ("ring", "cross", "shrinks", "stripes", "pink", "gradient")
KINDS: dict[str, dict[str, Any]] = {
    "demo": {},
    "plain": {"regularization_dataset": None, "regularization_target": "clips", "lr_schedule": "constant"},
}
KINDS["null"] = {**KINDS["plain"], "learning_rate": 1e-7}
KINDS["known"] = {**KINDS["plain"], "dataset": demo.KNOWN}
WITHOUT_EFFECT = ("null", "known")
SAVED = 20  # steps between checkpoints
BAND_FROM, BAND_TO = 0.1, 0.5  # shares of a run in which the forecast's band is judged
ENOUGH, EARLY = 0.95, 0.6  # the goal: this much of the oracle's score in at most this share of the steps
THRESHOLDS = {
    "HARM": (0.0, 1.0, 3.0),
    "SATURATED": (0.85, 0.9, 0.94, 0.97),
    "CERTAIN": (0.5, 0.65, 0.8, 0.9),
    "ENOUGH": (6, 8, 10, 12, 14, 16),
    "CONFIRMED": (0.0, 0.85, 0.95),
}
Line = dict[str, Any]


def settings_for(
    workspace: Workspace, concept: str, kind: str, seed: int, options: argparse.Namespace
) -> TrainSettings:
    """Return the settings of a run that is never stopped and keeps every checkpoint."""
    return concepts.settings_for(workspace, concept, MODEL).changed(
        **KINDS[kind],
        device="cpu",
        seed=42 + seed,
        steps=options.steps,
        batch_size=2,
        best_point="ask",
        best_point_every=options.every,
        preview_every=0,
        evaluate_every=0,
        save_every=min(SAVED, options.steps),
        keep_checkpoints=1000,
    )


def recorded(concept: str, kind: str, seed: int, options: argparse.Namespace) -> Line:
    """Train a run and sample its checkpoints; return its line."""
    with tempfile.TemporaryDirectory() as folder:
        workspace = Workspace.open(Path(folder))
        run = Run.create(workspace, settings_for(workspace, concept, kind, seed, options), "run")
        concepts.finish(run)
        lines = run.metrics
        wanted = {*range(options.sampled, options.steps + 1, options.sampled), best_point_step(run.folder)}
        steps = () if kind in WITHOUT_EFFECT else tuple(one for one in run.checkpoints if one in wanted)
        samples = [[step, *sampled(folder_of(run.folder, step) / LORA, concept, options)] for step in steps]
        if steps:
            samples.insert(0, [0, *sampled(None, concept, options)])
    seconds = [sum(line.get(key, 0.0) for line in lines) for key in ("probe_seconds", "seconds")]
    return {
        **{"concept": concept, "kind": kind, "seed": seed, "steps": options.steps},
        "measuring_share": round(seconds[0] / seconds[1], 4),
        "points": [[one.step, round(one.effect, 5), one.drift and round(one.drift, 5)] for one in points_of(lines)],
        "samples": samples,  # step, shown, known
    }


def sampled(lora: Path | None, concept: str, options: argparse.Namespace) -> list[list[int]]:
    """Return whether the sample of each prompt of the concept shows it, and whether that of each known one is right."""
    own = tiny_world.concept_specs(concept)[1][: options.prompts]
    known = tiny_world.held_out()[: options.known]
    pipeline = concepts.stock(find_model(MODEL)[1])
    assert pipeline is not None
    if lora is not None:
        pipeline.load_lora_weights(lora.parent, weight_name=lora.name, adapter_name="lora")
    captions = [spec.caption() for spec in (*own, *known)]
    clips = tiny_models.sample(pipeline, captions, options.sampling_steps, seed=1, batch=len(captions))
    right = [int(concepts.is_right(*one)) for one in zip(clips[len(own) :], known, strict=True)]
    return [[int(concepts.shows(clip, concept)) for clip in clips[: len(own)]], right]


# ---- judging


def followed(line: Line) -> list[tuple[int, Forecast]]:
    """Return what was said after each measurement, up to where the run would have stopped."""
    settings = TrainSettings(steps=line["steps"], best_point="do")
    points, said = [Point(*one) for one in line["points"]], list[tuple[int, Forecast]]()
    for count in range(1, len(points) + 1):
        if (found := forecast(points[:count], settings)) is not None:
            said.append((points[count - 1].step, found))
            if found.reached:
                break
    return said


def share(found: float | Sequence[int]) -> float:
    """Return a share, kept as it is or as a list of 0 and 1."""
    return found if isinstance(found, int | float) else sum(found) / max(len(found), 1)


def score_of(shown: Any, known: Any, before: Any) -> float:
    return share(shown) * min(1.0, share(known) / max(share(before), 1e-9))


def scores(samples: Sequence[Any]) -> dict[int, float]:
    """Return the score of each sampled checkpoint; the first is the base model."""
    return {step: score_of(shown, known, samples[0][2]) for step, shown, known in samples}


def nearest(steps: Iterable[int], at: int) -> int:
    return min(steps, key=lambda step: (abs(step - at), step))


def fair(samples: Sequence[Any], at: int) -> tuple[float, float]:
    """Return the scores at a step and of the oracle that half of the prompts choose, both scored on the other half."""
    ours, reference = 0.0, 0.0
    for half in (0, 1):
        chosen, other = (
            scores([[step, shown[part::2], known[part::2]] for step, shown, known in samples])
            for part in (half, 1 - half)
        )
        reference += other[max(chosen, key=chosen.__getitem__)] / 2
        ours += other[nearest(other, at)] / 2
    return ours, reference


def judged(line: Line) -> Line:
    """Return a row about one run."""
    said, samples = followed(line), line["samples"]
    by_step = scores(samples)
    stopped = next((found.step for _, found in said if found.reached), None)
    at = line["steps"] if stopped is None else stopped
    oracle = max(by_step.values(), default=0.0)
    score = by_step[nearest(by_step, at)] if by_step else 0.0
    row: Line = {}
    if samples and isinstance(samples[0][1], list):
        row = dict(zip(("fair", "fair reference"), fair(samples, at), strict=True))
    if "settled" in line:
        row["settled"] = score_of(*line["settled"][2:], samples[0][2])
    bands = [
        one.low <= at <= one.high
        for step, one in said
        if not one.reached and BAND_FROM <= step / line["steps"] <= BAND_TO
    ]
    return {
        "case": f"{line['concept']}, {line['kind']}, seed {line['seed']}",
        "ours": score,
        "reference": oracle,
        "end": by_step.get(line["steps"], ""),
        "fair": "",
        "fair reference": "",
        "settled": "",
        **row,
        "stopped": stopped or "",
        "trained": next((step for step, one in said if one.reached), line["steps"]),
        "of": line["steps"],
        "band holds": f"{sum(bands)} of {len(bands)}",
        "bands": bands,
        "enough": score >= ENOUGH * oracle,
    }


def mean(values: Sequence[float]) -> float:
    return sum(values) / max(len(values), 1)


def summary(lines: list[Line], rows: list[Line]) -> list[Line]:
    """Return rows about all runs: what is promised, and how often it held."""
    taught = [row for line, row in zip(lines, rows, strict=True) if line["kind"] not in WITHOUT_EFFECT]
    null = [row for line, row in zip(lines, rows, strict=True) if line["kind"] in WITHOUT_EFFECT]
    bands = [held for row in taught for held in row["bands"]]
    fairly = [row for row in taught if row["fair"] != ""]
    tried = [row for row in taught if row["settled"] != ""]
    found = [
        ("runs with an effect", len(taught)),
        ("of these at least 95% of the oracle's score", sum(row["enough"] for row in taught)),
        ("and at most 60% of the steps", sum(row["enough"] and row["trained"] <= EARLY * row["of"] for row in taught)),
        ("mean score", mean([row["ours"] for row in taught])),
        ("mean score of the oracle", mean([row["reference"] for row in taught])),
        ("mean score at the end", mean([row["end"] for row in taught if row["end"] != ""])),
        ("runs with a fair comparison", len(fairly)),
        ("fair: mean score", mean([row["fair"] for row in fairly])),
        ("fair: mean score of the oracle", mean([row["fair reference"] for row in fairly])),
        ("fair: at least 95% of the oracle's", sum(row["fair"] >= ENOUGH * row["fair reference"] for row in fairly)),
        ("runs with a trial of settling", len(tried)),
        ("of these, mean score", mean([row["ours"] for row in tried])),
        ("of these, mean score settled", mean([row["settled"] for row in tried])),
        ("mean share of the steps", mean([row["trained"] / row["of"] for row in taught])),
        ("forecasts in runs that stopped", len(bands)),
        ("of these the band held the stop, share", mean(bands)),
        ("runs without an effect", len(null)),
        ("of these stopped early", sum(bool(row["stopped"]) for row in null)),
    ]
    if shares := [line["measuring_share"] for line in lines if "measuring_share" in line]:
        found.append(("measuring, share of the steps' time, mean", sum(shares) / len(shares)))
    return [{"case": case, "ours": value} for case, value in found]


# ---- other thresholds


def stopped_after(line: Line, share_of_steps: float) -> Line:
    """Return a row about a run that is stopped after a fixed share of its steps, as `judged` does."""
    by_step, at = scores(line["samples"]), round(share_of_steps * line["steps"])
    score, oracle = by_step[nearest(by_step, at)], max(by_step.values())
    return {"ours": score, "reference": oracle, "trained": at, "of": line["steps"], "enough": score >= ENOUGH * oracle}


def in_hindsight(line: Line) -> Line:
    """Return a row about a run that is stopped at its first checkpoint that is enough."""
    enough = [step for step, score in scores(line["samples"]).items() if score >= ENOUGH * judged(line)["reference"]]
    return stopped_after(line, enough[0] / line["steps"])


def kept(rows: Sequence[Line]) -> float:
    return mean([row["ours"] / row["reference"] for row in rows])


def worth(rows: Sequence[Line]) -> tuple[bool, float]:
    """Rank rules: first those that stop early enough on average, then by how much of the oracle's score is kept."""
    return mean([row["trained"] / row["of"] for row in rows]) <= EARLY, kept(rows)


def gains_agree(lines: Sequence[Line]) -> float:
    """Return the rank correlation, over runs, of what effect and score gain from half of the steps to the end."""
    gains: list[tuple[float, float]] = []
    for line in lines:
        by_step, half = scores(line["samples"]), line["steps"] // 2
        effects = [[one[1] for one in line["points"] if one[0] <= until][-3:] for until in (half, line["steps"])]
        if half in by_step:
            before, after = (statistics.median(newest) for newest in effects)
            gains.append((after - before, by_step[line["steps"]] - by_step[half]))
    return rank_correlation(*(list(column) for column in zip(*gains, strict=True)))


def other_thresholds(lines: Sequence[Line]) -> list[Line]:
    """Return a row for the rule as it is, for thresholds chosen on the other concepts, and for what needs no rule."""
    by_rule: dict[tuple[float, ...], list[Line]] = {}
    fitted = functools.cache(lambda _, *measured: fit(*measured))  # by SATURATED and the measurements
    for values in itertools.product(*THRESHOLDS.values()):
        rule = dict(zip(THRESHOLDS, values, strict=True))

        def fit_once(steps: list[int], gains: list[float], total: int, saturated: float = rule["SATURATED"]) -> Fit:
            return fitted(saturated, tuple(steps), tuple(gains), total)

        best_point._seen.cache_clear()
        with mock.patch.multiple(best_point, **rule, fit=fit_once):
            by_rule[values] = [judged(line) for line in lines]
    best_point._seen.cache_clear()
    held_out: list[Line] = []
    for concept in sorted({line["concept"] for line in lines}):
        is_held = [line["concept"] == concept for line in lines]
        others = {
            rule: [row for row, held in zip(rows, is_held, strict=True) if not held] for rule, rows in by_rule.items()
        }
        chosen = max(others, key=lambda rule: worth(others[rule]))
        held_out += [row for row, held in zip(by_rule[chosen], is_held, strict=True) if held]
    cases = {
        "the rule as it is": [judged(line) for line in lines],
        "thresholds chosen on the other concepts": held_out,
        **{
            f"stopped after {part:.0%} of the steps": [stopped_after(one, part) for one in lines]
            for part in (1 / 2, 2 / 3)
        },
        "not stopped": [stopped_after(line, 1.0) for line in lines],
        "stopped in hindsight": [in_hindsight(line) for line in lines],
    }
    return [
        {
            "case": case,
            "runs": len(rows),
            "kept": kept(rows),
            "share of the steps": mean([row["trained"] / row["of"] for row in rows]),
            "at least 95%": sum(row["enough"] for row in rows),
            "and at most 60% of the steps": sum(row["enough"] and row["trained"] <= EARLY * row["of"] for row in rows),
        }
        for case, rows in cases.items()
    ]


def main() -> None:
    parser = arguments(__doc__.splitlines()[0], concepts=["stripes"], steps=20, prompts=1, known=1, sampling_steps=2)
    parser.add_argument("--concepts", nargs="+", choices=tiny_world.CONCEPTS, default=CONCEPTS)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=["demo"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--steps", type=int, default=240)
    parser.add_argument("--every", type=int, default=10, help="steps between measurements")
    parser.add_argument("--prompts", type=int, default=32, help="of the concept")
    parser.add_argument("--known", type=int, default=32, help="known prompts")
    parser.add_argument("--sampled", type=int, default=40, help="steps between checkpoints that are sampled")
    parser.add_argument("--sampling-steps", type=int, default=6)
    parser.add_argument("--keep", type=Path, help="a line for each run; those that it has are not trained again")
    parser.add_argument("--judge", action="store_true", help="only judge the runs of --keep")
    parser.add_argument(
        "--thresholds", action="store_true", help="only choose other thresholds, for the runs of --keep"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    lines: list[Line] = []
    if options.keep and options.keep.exists():
        lines = [json.loads(line) for line in options.keep.read_text(encoding="utf-8").splitlines()]
    if options.thresholds:
        demos = [line for line in lines if line["kind"] == "demo"]
        agree = gains_agree(demos)
        report(other_thresholds(demos), options.json, rank_correlation_of_later_gains=agree)
        print(f"rank correlation of what effect and score gain after half of the steps: {agree:.2f}")
        return
    known = {(line["concept"], line["kind"], line["seed"]) for line in lines}
    asked = [(one, kind, seed) for seed in options.seeds for kind in options.kinds for one in options.concepts]
    for case in asked if not options.judge else ():
        if case not in known:
            lines.append(recorded(*case, options))
            if options.keep:
                with options.keep.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(lines[-1]) + "\n")
    rows = [judged(line) for line in lines]
    shown = ("case", "ours", "reference", "end", "fair", "fair reference", "settled", "stopped", "of", "band holds")
    blank = dict.fromkeys(shown, "")
    found = [{name: row[name] for name in shown} for row in rows]
    report([*found, *({**blank, **row} for row in summary(lines, rows))], options.json)


if __name__ == "__main__":
    main()
