"""The settings of the operations on LoRAs, one class for each operation."""

from __future__ import annotations

from workbench.jobs.devices import DeviceChoice
from workbench.settings import Settings, field

WHAT, HOW = "What", "How"


class MergeSettings(Settings):
    """Merge LoRAs into one, exactly or to a given rank."""

    loras: tuple[str, ...] = field((), title="LoRAs", section=WHAT, source="loras", lines=3, path=True)
    """One or more LoRAs, with =WEIGHT appended if it is not 1: loras/ring=0.7. Each is a LoRA of the workspace
    (runs/RUN, runs/RUN@STEP, loras/NAME), a run's name or a .safetensors file."""

    name: str = field("", title="Name", section=WHAT)
    """Name of the new LoRA. Empty: made from the others' names."""

    rank: int | None = field(None, title="Rank", section=HOW, low=1, high=4096)
    """Rank of the new LoRA. Empty: the sum of the ranks, which is exact. A lower rank makes a smaller file; the result
    says how much of the change is lost."""


class ResizeSettings(Settings):
    """Resize a LoRA to another rank, and report how much of its change is lost."""

    lora: str = field("", title="LoRA", section=WHAT, source="loras", path=True)
    """A LoRA of the workspace (runs/RUN, runs/RUN@STEP, loras/NAME), a run's name or a .safetensors file."""

    name: str = field("", title="Name", section=WHAT)
    """Name of the new LoRA. Empty: made from the old name."""

    rank: int | None = field(None, title="Rank", section=HOW, low=1, high=4096)
    """Highest rank of a layer. Empty: `share` alone decides."""

    share: float | None = field(None, title="Kept share", section=HOW, low=0.01, high=1.0)
    """Share of its energy that each layer keeps, with the rank this takes: 0.99 loses about a tenth of the change,
    0.9999 a hundredth."""


class ExtractSettings(Settings):
    """Extract a LoRA from a full fine-tune: a run that trained all weights, or a folder in diffusers' layout."""

    source: str = field("", title="Fine-tuned model", section=WHAT, path=True)
    """A run that trained all weights, or a folder in diffusers' layout (or its transformer's folder)."""

    model: str = field("", title="Base model", section=WHAT, source="models", path=True)
    """The model that it was fine-tuned from. Empty: the one that the run was trained on."""

    name: str = field("", title="Name", section=WHAT)
    """Name of the new LoRA. Empty: made from the source's name."""

    rank: int | None = field(64, title="Rank", section=HOW, low=1, high=4096)
    """Highest rank of a layer. Empty: `share` alone decides."""

    share: float | None = field(None, title="Kept share", section=HOW, low=0.01, high=1.0, advanced=True)
    """Share of its change's energy that each layer keeps, with the rank this takes."""


class SurvivesSettings(Settings):
    """Measure how much of LoRAs would be left after fusing them into a model, before it is done."""

    loras: tuple[str, ...] = field((), title="LoRAs", section=WHAT, source="loras", lines=3, path=True)
    """One or more LoRAs, with =SCALE appended if it is not 1. Each is a LoRA of the workspace (runs/RUN, runs/RUN@STEP,
    loras/NAME), a run's name or a .safetensors file."""

    model: str = field("", title="Model", section=WHAT, source="models", path=True)
    """The model to fuse them into. Empty: the one that they were made for."""


class FuseSettings(SurvivesSettings):
    """Fuse LoRAs into a model, which writes a model folder that needs no LoRA files."""

    name: str = field("", title="Name", section=WHAT)
    """Name of the new model's folder. Empty: made from the LoRAs' names."""


class RepairSettings(Settings):
    """Repair a LoRA: train its matrices to keep its effect and leave other prompts alone."""

    lora: str = field("", title="LoRA", section=WHAT, source="loras", path=True)
    """A LoRA of the workspace (runs/RUN, runs/RUN@STEP, loras/NAME), a run's name or a .safetensors file."""

    name: str = field("", title="Name", section=WHAT)
    """Name of the new LoRA. Empty: made from the old name."""

    prompts: tuple[str, ...] = field((), title="Its prompts", section=WHAT, lines=3)
    """Prompts that show what it learned. Empty: captions of its run, else general prompts with its trigger word. Up to
    24 are used."""

    others: tuple[str, ...] = field((), title="Prompts to leave alone", section=WHAT, lines=3)
    """Prompts that it should not change, as close to its own as possible. Empty: captions of its run's regularization
    dataset, then general prompts without its trigger word. Up to 40 are used; the more, the better."""

    model: str = field("", title="Model", section=WHAT, source="models", path=True, advanced=True)
    """The model to repair it on. Empty: the one that it was made for."""

    weight: float = field(0.2, title="Weight of the others", section=HOW, low=0.01, high=10.0, advanced=True)
    """Weight of the prompts to leave alone, relative to its own. A higher one means less drift and less effect."""

    steps: int = field(160, title="Steps", section=HOW, low=1, high=10_000, advanced=True)
    """Training steps, of four inputs of each kind."""

    device: DeviceChoice = field("auto", title="Device", section=HOW, source="devices", advanced=True)
    """The device to compute on. auto: a GPU if there is one, else the CPU."""


class LoraImportSettings(Settings):
    """Import a LoRA from another trainer or from the Hub into the library."""

    source: str = field("", title="From", section=WHAT, path=True)
    """A .safetensors file, a torch file (.pt, .bin, .ckpt), a diffusers or peft folder, or a Hub repository:
    OWNER/NAME, OWNER/NAME:FILE@REVISION or its address."""

    low_noise: str = field("", title="Low-noise file", section=WHAT, path=True, advanced=True)
    """The low-noise expert's file, if the model has two experts with a file each (Wan 2.2 A14B); the other file is then
    the high-noise expert's. Empty: there is one file, for one expert or both."""

    model: str = field("", title="Made for", section=WHAT, source="models", path=True)
    """The model that it was trained on. Empty: the one that the file names, or the only one that it fits."""

    name: str = field("", title="Name", section=WHAT, advanced=True)
    """Name in the library. Empty: the file's name."""

    trigger: str = field("", title="Trigger word", section=WHAT, advanced=True)
    """Words that prompts need. Empty: those in the file, if any."""

    force: bool = field(False, title="Take what fits", section=WHAT, advanced=True)
    """Import the LoRA even if more than one in 20 of its layers do not fit the model. Those are left out."""


class ConvertSettings(Settings):
    """Write a LoRA as a file for another program."""

    lora: str = field("", title="LoRA", section=WHAT, source="loras", path=True)
    """A LoRA of the workspace (runs/RUN, runs/RUN@STEP, loras/NAME), a run's name or a .safetensors file."""

    low_noise: str = field("", title="Low-noise LoRA", section=WHAT, source="loras", path=True, advanced=True)
    """The low-noise expert's LoRA; the other one is then the high-noise expert's. Each becomes a file of its own,
    NAME_high_noise and NAME_low_noise, which is how ai-toolkit pairs them. Empty: one LoRA, one file."""

    format: str = field("diffusers", title="Format", section=HOW, source="lora_formats")
    """The program that will read the file. Others may load it without an error but ignore its weights. `workbench loras
    formats` lists the formats and who reads each."""

    target: str = field("", title="File", section=HOW, path=True)
    """The file to write. Empty: a file in the workspace, named after LoRA and format."""
