"""A model's name is looked up where it comes in, and nowhere else: the modules that may are named here."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

from workbench.families import find_model, known_model, settled_model
from workbench.sampler.settings import SampleSettings

PACKAGE = Path(__file__).resolve().parents[2] / "workbench"
# How often a module may look a bare name up: of a face's text field, of a file, or of what LoRAs say they are for.
FINDS = {
    "dataset_builder/dataset.py": 2, "loras/converting.py": 2, "loras/making.py": 2, "loras/opened.py": 2,
    "loras/repair.py": 1, "operations/clip_plans.py": 1, "operations/clips.py": 1, "operations/datasets.py": 2,
    "publishing/facts.py": 1,
    "runs/from_scratch.py": 1, "sampler/prompt_enhancer.py": 1, "sampler/vae_reconstruction.py": 1,
    "trainer/previewer.py": 1,
}  # fmt: skip
# Forms, in which a name may be half written; and where the Hub may be asked.
OTHERS = {
    "known_model": {
        *("choices.py", "form_rules.py", "runs/settings.py", "sampler/settings.py", "sampler/view.py"),
        *("fit/estimate.py", "operations/loras.py", "operations/plans.py", "operations/sample_form.py"),
        "loras/making.py",  # what a LoRA's file says it was made for, which may be unknown here
        # Runs of models that may be unknown here by now.
        *("runs/analysis/diagnosis.py", "runs/failures.py", "runs/report.py", "runs/view.py"),
    },
    "settled_model": {"fit/estimate.py", "runs/sweeps.py", "sampler/generate.py"},
}


def calls(name: str) -> Counter[str]:
    """How often each module outside of families calls a function of that name."""
    found: Counter[str] = Counter()
    for path in PACKAGE.rglob("*.py"):
        module = path.relative_to(PACKAGE).as_posix()
        if not module.startswith("families/"):
            nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            found[module] += sum(
                isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) == name
                for node in nodes
            )
    return +found


def test_a_name_is_looked_up_where_it_comes_in() -> None:
    assert calls("find_model") == FINDS, "pass a ResolvedModel on, or take it of the settings: settings.resolved"
    for name, modules in OTHERS.items():
        assert set(calls(name)) == modules


def test_settings_resolve_the_model_that_they_name() -> None:
    family, model = SampleSettings(model="THUDM/CogVideoX-5b").resolved
    assert (family.name, model.id) == ("cogvideox", "cogvideox-5b")
    assert find_model("cogvideox-5b") == settled_model("cogvideox-5b") == (family, model)
    assert find_model("cogvideox-5b").facts == family.facts(model)
    assert known_model("cogvid") is None
