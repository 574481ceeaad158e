"""What a run needs by phase, as HTML: bars as long as the GPU's memory, then what is needed beside the GPU.

The page and the notebook show it. Not covered: the figures (estimate), how bars are rendered (charts).
"""

from __future__ import annotations

from workbench.display.charts import COLOURS, StackedBar, stacked
from workbench.display.html import escaped
from workbench.fit.estimate import Fit
from workbench.fit.memory import SMALLEST_GB, Phase, gb_text

# Parts that have a colour of the charts' series, red being left for what does not fit; the others are grey.
SERIES = {
    "weights": 1,
    "trained weights": 1,
    "LoRA": 2,
    "activations": 3,
    "VAE": 4,
    "backward pass": 5,
    "text encoder": 7,
    "optimizer": 8,
}
OTHERS = "var(--wb-idle,#566070)"


def phases_html(fit: Fit) -> str:
    """A bar a phase, of its parts, and a legend; below, what is needed beside the GPU."""
    names = {name for phase in fit.phases for name, gb in phase.parts.items() if gb >= SMALLEST_GB}
    keys = [(name, _colour(name)) for name in SERIES if name in names]
    facts = "".join(f"<dt>{escaped(name)}</dt><dd>{escaped(text)}</dd>" for name, text in fit.beside)
    head = f"On {fit.gpu.name}, {fit.gpu.memory_gb:.0f} GB. The line marks what it has."
    bars = stacked([_bar(fit, phase) for phase in fit.phases], fit.gpu.memory_gb, [*keys, ("others", OTHERS)])
    return f'<p class="hint">{escaped(head)}</p>{bars}<dl class="beside">{facts}</dl>'


def _bar(fit: Fit, phase: Phase) -> StackedBar:
    """Its parts are estimated; where the whole was measured they fill it in the same proportions."""
    large = {name: gb for name, gb in phase.parts.items() if gb >= SMALLEST_GB}
    scale = phase.gb / (sum(large.values()) or 1.0)
    parts = [(f"{name} {gb_text(gb)}", gb * scale, _colour(name)) for name, gb in large.items()]
    how = "measured" if phase.measured is not None else "estimated"
    return StackedBar(
        phase.name, f"{gb_text(phase.gb)} {how}", parts, f"{how}: {phase.made_of}", not fit.phase_fits(phase)
    )


def _colour(part: str) -> str:
    number = SERIES.get(part)
    return OTHERS if number is None else f"var(--series-{number},{COLOURS[number - 1]})"
