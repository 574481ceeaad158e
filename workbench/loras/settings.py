"""The settings of the operations on LoRAs, one class an operation."""

from __future__ import annotations

from workbench.settings import Settings, field

WHAT, HOW = "What", "How"


class MergeSettings(Settings):
    """Merge LoRAs into one: exactly, or to a rank."""

    loras: tuple[str, ...] = field((), title="LoRAs", section=WHAT, source="loras", lines=3, path=True)
    """At least one, each with =WEIGHT behind it if not 1: loras/ring=0.7. A LoRA of the workspace (runs/RUN,
    runs/RUN@STEP, loras/NAME), a run's name or a .safetensors file."""

    name: str = field("", title="Name", section=WHAT)
    """What the new LoRA is called. Empty: made from the others'."""

    rank: int | None = field(None, title="Rank", section=HOW, low=1, high=4096)
    """Rank of the new LoRA. Empty: the sum of the ranks, which is exact; less makes a smaller file and says what is
    lost."""


class ResizeSettings(Settings):
    """Resize a LoRA to another rank, and say how much of its change is lost."""

    lora: str = field("", title="LoRA", section=WHAT, source="loras", path=True)
    """A LoRA of the workspace (runs/RUN, runs/RUN@STEP, loras/NAME), a run's name or a .safetensors file."""

    name: str = field("", title="Name", section=WHAT)
    """What the new LoRA is called. Empty: made from the old name."""

    rank: int | None = field(None, title="Rank", section=HOW, low=1, high=4096)
    """At most this rank in every layer. Empty: as `share` says."""

    share: float | None = field(None, title="Kept share", section=HOW, low=0.01, high=1.0)
    """Each layer keeps as much rank as this share of its energy needs: 0.99 loses about a tenth of the change, 0.9999 a
    hundredth."""


class ExtractSettings(Settings):
    """Make a LoRA of a full fine-tune: of a run that trained all weights, or of a folder in diffusers' layout."""

    source: str = field("", title="Fine-tuned model", section=WHAT, path=True)
    """A run that trained all weights, or a folder in diffusers' layout (or its transformer's folder)."""

    model: str = field("", title="Base model", section=WHAT, source="models", path=True)
    """What it was fine-tuned from. Empty for a run of this workspace, which knows it."""

    name: str = field("", title="Name", section=WHAT)
    """What the new LoRA is called. Empty: made from the source's."""

    rank: int | None = field(64, title="Rank", section=HOW, low=1, high=4096)
    """At most this rank in every layer. Empty: as `share` says."""

    share: float | None = field(None, title="Kept share", section=HOW, low=0.01, high=1.0, advanced=True)
    """Each layer keeps as much rank as this share of its change's energy needs."""


class FuseSettings(Settings):
    """Fuse LoRAs into a model: writes a folder that can be used as a model."""

    loras: tuple[str, ...] = field((), title="LoRAs", section=WHAT, source="loras", lines=3, path=True)
    """At least one, each with =SCALE behind it if not 1. A LoRA of the workspace (runs/RUN, runs/RUN@STEP, loras/NAME),
    a run's name or a .safetensors file."""

    model: str = field("", title="Model", section=WHAT, source="models", path=True)
    """The model they are fused into. Empty: the one that they were made for."""

    name: str = field("", title="Name", section=WHAT)
    """What the new model's folder is called. Empty: from the LoRAs'."""


class LoraImportSettings(Settings):
    """Add a LoRA of another trainer, or of the Hub, to the library."""

    source: str = field("", title="From", section=WHAT, path=True)
    """A .safetensors file, a torch file (.pt, .bin, .ckpt), a folder of diffusers or peft, or a repository of the Hub:
    OWNER/NAME, OWNER/NAME:FILE@REVISION or its address."""

    low_noise: str = field("", title="Low-noise file", section=WHAT, path=True, advanced=True)
    """The same of the low-noise expert, where a model has two and each has a file of its own (Wan 2.2 A14B): the other
    is then the high-noise one's. Empty: there is one file, for one expert or for both."""

    model: str = field("", title="Made for", section=WHAT, source="models", path=True)
    """The model that it was trained on. Empty: as the file says, or the only one that it fits."""

    name: str = field("", title="Name", section=WHAT, advanced=True)
    """What it is called here. Empty: the file's name."""

    trigger: str = field("", title="Trigger word", section=WHAT, advanced=True)
    """What a prompt must say. Empty: as the file says, or none."""

    force: bool = field(False, title="Take what fits", section=WHAT, advanced=True)
    """Import a LoRA although more than one in 20 of its layers do not fit the model; those are left out."""


class ConvertSettings(Settings):
    """Write a LoRA as a file for another program."""

    lora: str = field("", title="LoRA", section=WHAT, source="loras", path=True)
    """A LoRA of the workspace (runs/RUN, runs/RUN@STEP, loras/NAME), a run's name or a .safetensors file."""

    low_noise: str = field("", title="Low-noise LoRA", section=WHAT, source="loras", path=True, advanced=True)
    """The LoRA of the low-noise expert: the other is then the high-noise one's, and each becomes a file of its own,
    NAME_high_noise and NAME_low_noise, which is how ai-toolkit pairs them. Empty: one LoRA, one file."""

    format: str = field("diffusers", title="Format", section=HOW, source="lora_formats")
    """The program that will read it. Others may load the file without an error and change nothing; `workbench loras
    formats` lists the formats and who reads each."""

    target: str = field("", title="File", section=HOW, path=True)
    """A new file. Empty: one in the workspace, named after LoRA and format."""
