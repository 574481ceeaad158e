"""Measure the effect of the demo's LoRA on prompts of its concept and on known prompts.

    python benchmarks/demo_effect.py                  trains the demo in a temporary workspace, then measures
    python benchmarks/demo_effect.py lora.safetensors measures that file
    python benchmarks/demo_effect.py --model tiny-wan the same on another built-in model

It uses 32 prompts of the concept that are in no demo clip, and 64 known prompts that the built-in model never saw.
Samples are generated as in benchmarks/concepts.py and judged by assets/tiny_check.py. "ours" is with the LoRA,
"reference" without. Other concepts, and the image-to-video model: benchmarks/concepts.py.
"""

from __future__ import annotations

import tempfile
from contextlib import nullcontext
from pathlib import Path

import concepts
from common import arguments, report

from workbench import demo
from workbench.families import find_model
from workbench.workspace import Workspace


def main() -> None:
    parser = arguments(__doc__.splitlines()[0], steps=2, prompts=1)
    parser.add_argument("lora", type=Path, nargs="?")
    parser.add_argument("--model", default=demo.MODEL, help="a built-in text-to-video model")
    parser.add_argument("--steps", type=int, help="instead of the demo's")
    parser.add_argument("--prompts", type=int, help="limit for each kind")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sheet", type=Path, help="also write a contact sheet of the concept's samples (PNG)")
    options = parser.parse_args()
    _, model = find_model(options.model)
    pipeline, prompts = concepts.stock(model), concepts.prompts_of(demo.concept(), options.seed, options.prompts)
    base = [part.generate(pipeline, model) for part in prompts]
    with tempfile.TemporaryDirectory() as folder:
        lora, trained = options.lora, []
        if lora is None:
            workspace = Workspace.open(Path(folder))
            settings = demo.prepare(workspace).changed(model=model.id)
            settings = settings.changed(steps=options.steps, preview_every=0) if options.steps else settings
            lora, trained = concepts.train(workspace, settings, "demo")
        with concepts.lora_on(pipeline, lora) if pipeline else nullcontext():
            with_lora = [part.generate(pipeline, model, (str(lora),)) for part in prompts]
    rows = concepts.compare(demo.concept(), prompts, base, with_lora) + trained
    report(
        [{"case": row["case"], "ours": row["ours"], "reference": row.get("reference", "")} for row in rows],
        options.json,
    )
    if options.sheet:
        concepts.contact_sheet(base[0], with_lora[0], options.sheet)


if __name__ == "__main__":
    main()
