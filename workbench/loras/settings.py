"""What can be made of LoRAs: one declaration of settings an operation."""

from __future__ import annotations

from workbench.settings import Settings, field

WHAT, HOW = "What", "How"
LORA_HELP = "A LoRA of the workspace (runs/RUN, runs/RUN@STEP, loras/NAME), a run's name or a .safetensors file."


class MergeSettings(Settings):
    """Several LoRAs become one."""

    loras: tuple[str, ...] = field(
        (), title="LoRAs", section=WHAT, source="loras", lines=3,
        help="At least one, each with =WEIGHT behind it if not 1: loras/ring=0.7. " + LORA_HELP,
        path=True,
    )  # fmt: skip
    name: str = field("", title="Name", section=WHAT, help="What the new LoRA is called. Empty: made from the others'.")
    rank: int | None = field(
        None, title="Rank", section=HOW, low=1, high=4096,
        help="Rank of the new LoRA. Empty: the sum of the ranks, which is exact; less makes a smaller file and says "
        "what is lost.",
    )  # fmt: skip


class ResizeSettings(Settings):
    """A LoRA of another rank that comes as close as that rank can."""

    lora: str = field("", title="LoRA", section=WHAT, source="loras", help=LORA_HELP, path=True)
    name: str = field(
        "", title="Name", section=WHAT, help="What the new LoRA is called. Empty: made from the old name."
    )
    rank: int | None = field(
        None,
        title="Rank",
        section=HOW,
        low=1,
        high=4096,
        help="At most this rank in every layer. Empty: as `share` says.",
    )
    share: float | None = field(
        None, title="Kept share", section=HOW, low=0.01, high=1.0,
        help="Each layer keeps as much rank as this share of its energy needs: 0.99 loses about a tenth of the change, "
        "0.9999 a hundredth.",
    )  # fmt: skip


class ExtractSettings(Settings):
    """A LoRA that does what a full fine-tune does, as far as its rank can."""

    source: str = field(
        "", title="Fine-tuned model", section=WHAT,
        help="A run that trained all weights, or a folder in diffusers' layout (or its transformer's folder).",
        path=True,
    )  # fmt: skip
    model: str = field(
        "", title="Base model", section=WHAT, source="models",
        help="What it was fine-tuned from. Empty for a run of this workspace, which knows it.",
        path=True,
    )  # fmt: skip
    name: str = field(
        "", title="Name", section=WHAT, help="What the new LoRA is called. Empty: made from the source's."
    )
    rank: int | None = field(
        64,
        title="Rank",
        section=HOW,
        low=1,
        high=4096,
        help="At most this rank in every layer. Empty: as `share` says.",
    )
    share: float | None = field(
        None, title="Kept share", section=HOW, low=0.01, high=1.0, advanced=True,
        help="Each layer keeps as much rank as this share of its change's energy needs.",
    )  # fmt: skip


class BakeSettings(Settings):
    """A model whose transformer has LoRAs worked in."""

    loras: tuple[str, ...] = field(
        (), title="LoRAs", section=WHAT, source="loras", lines=3,
        help="At least one, each with =SCALE behind it if not 1. " + LORA_HELP,
        path=True,
    )  # fmt: skip
    model: str = field(
        "", title="Model", section=WHAT, source="models",
        help="The model they are worked into. Empty: the one that they were made for.",
        path=True,
    )  # fmt: skip
    name: str = field(
        "", title="Name", section=WHAT, help="What the new model's folder is called. Empty: from the LoRAs'."
    )


class LoraImportSettings(Settings):
    """A LoRA of another trainer, or of the Hub, comes onto the shelf."""

    source: str = field(
        "", title="From", section=WHAT,
        help="A .safetensors file (or SAT's .pt), or a repository of the Hub: OWNER/NAME, OWNER/NAME:FILE@REVISION.",
        path=True,
    )  # fmt: skip
    model: str = field(
        "", title="Made for", section=WHAT, source="models",
        help="The model that it was trained on. Empty: as the file says, or the only one that it fits.",
        path=True,
    )  # fmt: skip
    name: str = field(
        "", title="Name", section=WHAT, advanced=True, help="What it is called here. Empty: the file's name."
    )
    trigger: str = field(
        "",
        title="Trigger word",
        section=WHAT,
        advanced=True,
        help="What a prompt must say. Empty: as the file says, or none.",
    )


class ConvertSettings(Settings):
    """A LoRA as a file for another program."""

    lora: str = field("", title="LoRA", section=WHAT, source="loras", help=LORA_HELP, path=True)
    format: str = field(
        "diffusers", title="Format", section=HOW,
        help="Who shall read it; `workbench loras formats` lists what there is.",
    )  # fmt: skip
    target: str = field(
        "",
        title="File",
        section=HOW,
        help="A new file. Empty: one in the workspace, named after LoRA and format.",
        path=True,
    )
