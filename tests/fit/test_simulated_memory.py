"""Compare the fit check with runs simulated on fake tensors: every row of the results, and a few simulated here."""

from __future__ import annotations

import pytest

from benchmarks import memory_simulation as simulation
from benchmarks.fake_runs import Trained
from scripts import write_memory_tables
from workbench.families import find_model
from workbench.fit import memory

CASES = {case.name: case for case in simulation.cases()}
KNOWN = simulation.known(write_memory_tables.RESULTS)
NEAR, WHOLE = 0.1, 8
# Each family, and all that comes and goes.
QUICK = (
    "cogvideox-2b: training, none",
    "cogvideox1.5-5b: training, full, half of the blocks swapped",
    "wan2.1-t2v-1.3b: training, keep attention",
    "wan2.2-ti2v-5b-image: training, full",
    "ltx-video-2b-0.9.5: previews, denoising",
)
SLOW = "ltx-video-2b-0.9.5: training, offloaded, nf4, all blocks swapped"


def test_every_model_was_simulated_at_every_level() -> None:
    wanted = {
        f"{model}: {memory.TRAINING}, {level.name}" for model in simulation.TEXT_MODELS for level in simulation.LEVELS
    }
    wanted |= {case.name for case in simulation.previews()}
    assert wanted <= set(KNOWN)


def test_the_estimate_of_tensors_is_near_every_simulation() -> None:
    rows = {name: simulation.row(CASES[name], known) for name, known in KNOWN.items()}
    memory_off = {name: row["ratio"] for name, row in rows.items() if abs(row["ratio"] - 1) > NEAR}
    operations_off = {
        name: row["operations ratio"]
        for name, row in rows.items()
        if not name.endswith("encoding clips, in tiles")  # whose seams are not counted
        and abs(row["operations ratio"] - 1) > NEAR
    }
    assert (memory_off, operations_off) == ({}, {})


@pytest.mark.long
@pytest.mark.parametrize("name", [*QUICK, pytest.param(SLOW, marks=pytest.mark.release)])
def test_a_few_blocks_of_real_width_need_what_is_estimated_for_them(name: str) -> None:
    """Simulated here, with the code of today; the whole model that follows is the one of the results."""
    found = simulation.simulate(CASES[name])
    assert found.gb == pytest.approx(KNOWN[name].gb, rel=0.01)
    assert found.operations == pytest.approx(KNOWN[name].operations, rel=0.01)
    assert sum(found.causes.values()) == pytest.approx(found.gb)


@pytest.mark.long
@pytest.mark.parametrize("level", ["none", "full"])
def test_two_streams_without_gates_need_what_is_estimated_for_them(level: str) -> None:
    """HunyuanVideo 1.5, whose blocks also have layers for captions."""
    found = next(one for one in simulation.LEVELS if one.name == level)
    case = simulation.Case("HunyuanVideo 1.5", "hunyuanvideo1.5-t2v-480p", memory.TRAINING, found)
    row = simulation.row(case, simulation.simulate(case))
    assert row["ratio"] == pytest.approx(1, abs=NEAR)
    assert row["operations ratio"] == pytest.approx(1, abs=0.02)


@pytest.mark.release
def test_blocks_follow_from_few_of_them() -> None:
    """On a straight line, as when all are simulated."""
    family, model = find_model("ltx-video-2b-0.9.5")
    for level in simulation.LEVELS[:4]:
        case = f"{model.id}, {level.name}"
        few = simulation.FEW_THAT_MOVE if level.moves else simulation.FEW
        steps = [Trained(family, model, level.settings(model.id, count), count).step() for count in (*few, WHOLE + 2)]
        line = simulation.extended(steps[0], steps[1], (WHOLE + 2 - few[0]) / (few[1] - few[0]))
        assert line.gb == pytest.approx(steps[2].gb, rel=1e-3), case
        assert line.operations == pytest.approx(steps[2].operations, rel=1e-6), case


def test_the_tables_are_those_of_the_results() -> None:
    text = write_memory_tables.FILE.read_text(encoding="utf-8")
    assert write_memory_tables.written(text) == text, "run scripts/write_memory_tables.py"
