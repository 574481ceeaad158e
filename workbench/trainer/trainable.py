"""What of the transformer is trained, and how it goes to disk and back: a LoRA, some weights beside it, or everything.

    checkpoint                  method lora: lora.safetensors, and also.safetensors where `train_also` names weights
                                method full: weights.safetensors
    export beside the run       method lora: the same files;  method full: transformer/, as diffusers saves it (or
                                transformer_2/, for that expert), which the export makes a whole model

Trained values are float32 whatever the base is in. Then what makes a step cheaper is put on the transformer, in the one
order in which it fits together:

    host -> attention -> LoRA -> joined projections -> fewer bits -> device, or shards -> swapped blocks -> recomputing
    -> compiling

Every level computes the same as the plain model: bit for bit on a processor where nothing is rounded, within rounding
elsewhere (benchmarks/memory_levels.py). `fit` says which levels a GPU needs, `memory` has each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save

from workbench.errors import ConfigError, DataError, WorkbenchError
from workbench.families.base import Family
from workbench.families.lora_files import plain_name, with_metadata
from workbench.memory import compiling
from workbench.memory.checkpointing import recomputing
from workbench.runs.settings import TrainSettings
from workbench.trainer import lora
from workbench.trainer.ranks import shard, shard_like, whole
from workbench.workspace import write_bytes, writing
from workbench.workspace.lora_names import ALSO

Named = list[tuple[str, torch.nn.Parameter]]
LORA, WEIGHTS = "lora.safetensors", "weights.safetensors"
WEIGHTS_PATTERN = "diffusion_pytorch_model{suffix}.safetensors"  # of the files in the part's folder


class Trainable:
    """The trained part of a transformer. `names` and `parameters` go together, LoRA first."""

    def __init__(
        self, family: Family, transformer: Any, settings: TrainSettings, seed: int, part: str = "transformer"
    ) -> None:
        """Attach what is trained. part: of the pipeline. Raises ConfigError where a name fits no layer."""
        self.family, self.transformer, self.full = family, transformer, settings.method == "full"
        self.part = part
        found: Named = []
        if self.full:
            found = list(transformer.named_parameters())
        else:
            found = lora.attach(family, transformer, settings, seed)
            found += _also(transformer, settings.train_also)
        for _, parameter in found:
            parameter.requires_grad_(True)
            parameter.data = parameter.data.float()
        self.names = [name for name, _ in found]
        self.parameters = [parameter for _, parameter in found]
        self._beside = [] if self.full else [name for name in self.names if not _of_lora(name)]

    def follow(self) -> None:
        """Take the parameters that the transformer has now: sharding it makes new ones of the same names."""
        present = dict(self.transformer.named_parameters())
        self.parameters = [present[name] for name in self.names]

    @property
    def named(self) -> Named:
        return list(zip(self.names, self.parameters, strict=True))

    @property
    def summary(self) -> str:
        """In words, with the count of trained values."""
        count = sum(parameter.numel() for parameter in self.parameters)
        kind = "a LoKr" if any(".lokr_" in name for name in self.names) else "a LoRA"
        what = "the whole transformer" if self.full else kind
        beside = f" and {len(self._beside)} weights beside it" if self._beside else ""
        return f"{what}{beside}, {count:,} values"

    # ---- checkpoints

    def plain(self, keep: bool = True) -> dict[str, torch.Tensor]:
        """The trained values that are no LoRA, by plain name, on the processor; {} where they are not kept.

        Shards are put together, for which every process must call this. Raises DataError when a value is not finite.
        """
        wanted = set(self.names if self.full else self._beside)
        found = dict[str, Any]()
        for name, parameter in self.named:
            if name in wanted:
                value = whole(parameter.detach())
                _refuse_broken(name, value)
                found |= {plain_name(name): value.cpu().contiguous()} if keep else {}
        return found

    def write(
        self, folder: Path, notes: Mapping[str, str], plain: Mapping[str, torch.Tensor] | None = None
    ) -> list[Path]:
        """Write the trained values; the files written. `plain`: what the method of that name gave, where it was asked.

        Raises DataError when a value is not finite, CannotWrite.
        """
        plain = self.plain() if plain is None else plain
        if self.full:
            return [_write_plain(folder / WEIGHTS, plain, notes)]
        lora.write(self.family, self.transformer, folder / LORA, notes)
        return [folder / LORA, *([_write_plain(folder / ALSO, plain, notes)] if plain else [])]

    def load(self, folder: Path) -> None:
        """Put back what `write` left."""
        if self.full:
            self._load_plain(folder / WEIGHTS)
            return
        lora.load_state(self.family, self.transformer, folder / LORA)
        if self._beside:
            self._load_plain(folder / ALSO)

    def _load_plain(self, path: Path) -> None:
        tensors = load_file(path)
        for name, parameter in self.named:
            if (tensor := tensors.get(plain_name(name))) is not None:
                parameter.data.copy_(shard_like(tensor, parameter.data))

    # ---- the export

    def export(self, run: Path, notes: Mapping[str, str], first: bool = True) -> Path:
        """Write what a person takes away into the run's folder; its path. Raises DataError, CannotWrite.

        first: whether it is this process that writes; the others give their shards
        """
        if not self.full:
            plain = self.plain(first)
            return self.write(run, notes, plain)[0] if first else run / LORA
        from huggingface_hub import save_torch_state_dict

        tensors = dict[str, Any]()
        for name, value in self.transformer.state_dict().items():  # buffers as well, as diffusers saves it
            value = whole(value)
            _refuse_broken(name, value)
            tensors |= {name: value.cpu()} if first else {}
        if first:
            self.transformer.save_config(run / self.part)
            with writing(run / self.part):
                save_torch_state_dict(tensors, run / self.part, filename_pattern=WEIGHTS_PATTERN)
        return run / self.part

    def prove(self, folder: Path, exported: Path, inputs: dict[str, Any]) -> float:
        """Load the export as its users will; return how much it changes the model's output (see `lora.judged`).

        inputs: arguments of `family.predict` for a fixed batch. The transformer is spent afterwards.
        Raises WorkbenchError when the export gives another model than the one trained, or changes nothing.
        """
        if not self.full:
            return lora.prove(self.family, folder, self.transformer, exported, inputs)
        trained = lora.output(self.family, self.transformer, inputs)
        loaded = lora.output(self.family, self._filled_from(exported), inputs)
        base = lora.output(self.family, self._filled_from(folder / self.part), inputs)
        return lora.judged(trained, loaded, base, exported.name)

    def _filled_from(self, source: Path) -> Any:
        """The transformer with the weights of a folder: no second model needs to fit beside it."""
        tensors = {
            name: tensor for file in sorted(source.glob("*.safetensors")) for name, tensor in load_file(file).items()
        }
        present = self.transformer.state_dict()
        if differing := sorted(set(present) ^ set(tensors)):
            raise WorkbenchError(f"{source.name} lacks {differing[0]} or should not have it: please report this")
        for name, value in present.items():
            value.copy_(shard_like(tensors[name], value))
        return self.transformer


def continue_from(family: Family, transformer: Any, settings: TrainSettings, path: Path) -> str:
    """Start the attached LoRA from a file of any known trainer; what was taken, in words.

    The file's own strength is kept: its matrices are scaled so that with this run's alpha they do what they did.
    Raises ConfigError when its rank or its layers are others.
    """
    own = lora.state(transformer)
    if settings.method == "lokr":
        return _continue_lokr(family, transformer, own, path)
    found = family.lora_weights(*family.lora_tensors(path))
    if found.mixed and len({found.rank_of(layer) for layer in found.layers}) > 1:
        raise ConfigError.of(
            "start_from",
            f"the LoRA {path.name} has layers of different rank, a run trains one rank: resize it first "
            f"(workbench loras resize)",
        )
    if found.rank != settings.rank:
        raise ConfigError.of(
            "start_from",
            f"the LoRA {path.name} has rank {found.rank}, rank is {settings.rank}: set rank to {found.rank}",
        )
    if set(found.tensors) != set(own):
        first = sorted(set(found.tensors) ^ set(own))[0]
        raise ConfigError.of(
            "start_from",
            f"the LoRA {path.name} sits on other layers than this run trains ({first}): set targets, and dora, as "
            f"they were for it",
        )
    wrong = [name for name, tensor in found.tensors.items() if tensor.shape != own[name].shape]
    if wrong:
        raise ConfigError.of(
            "start_from",
            f"the LoRA {path.name} was made for another model ({wrong[0]} has another size): choose its model",
        )
    ours = settings.alpha / (settings.rank**0.5 if settings.rslora else settings.rank)
    factors = {layer: found.scale_of(layer) / ours for layer in found.layers}
    tensors = {
        name: tensor.float() * (factors[name.rpartition(".lora_")[0]] if "lora_B" in name else 1)
        for name, tensor in found.tensors.items()
    }
    lora.set_state(transformer, tensors)
    times = " to ".join(f"{factor:g}" for factor in sorted({min(factors.values()), max(factors.values())}))
    scaled = "" if set(factors.values()) == {1.0} else f", its strength kept by scaling it {times} times"
    return f"going on from {path.name} ({found.origin}, rank {found.rank}{scaled})"


def _continue_lokr(family: Family, transformer: Any, own: Mapping[str, torch.Tensor], path: Path) -> str:
    """The same of a LoKr: a file of ours, of the same factors. Raises ConfigError."""
    tensors, _ = family.lora_tensors(path)
    found = {name.removeprefix(f"{family.lora_prefix}."): tensor for name, tensor in tensors.items()}
    if {name: one.shape for name, one in found.items()} != {name: one.shape for name, one in own.items()}:
        raise ConfigError.of(
            "start_from",
            f"the LoRA {path.name} is no LoKr of the same factors on the same layers: set method, rank, lokr_factor "
            f"and targets as they were for it",
        )
    lora.set_state(transformer, found)
    return f"going on from {path.name} (a LoKr)"


def _refuse_broken(name: str, value: torch.Tensor) -> None:
    if not value.isfinite().all():
        raise DataError(f"{name} holds values that are not numbers: lower the learning rate")


def _write_plain(path: Path, tensors: Mapping[str, torch.Tensor], notes: Mapping[str, str]) -> Path:
    write_bytes(path, with_metadata(save(dict(tensors)), {"format": "pt", **notes}))
    return path


def _of_lora(name: str) -> bool:
    return ".lora_" in name or ".lokr_" in name


def _also(transformer: Any, prefixes: Sequence[str]) -> Named:
    """The weights that `train_also` names. Raises ConfigError."""
    pairs = [(name, parameter) for name, parameter in transformer.named_parameters() if not _of_lora(name)]
    chosen: Named = []
    for prefix in (text.strip() for text in prefixes if text.strip()):
        fitting = [(name, parameter) for name, parameter in pairs if plain_name(name).startswith(prefix)]
        if not fitting:
            known = ", ".join(dict.fromkeys(name.split(".")[0] for name, _ in pairs))
            raise ConfigError.of(
                "train_also",
                f"train_also has {prefix!r}, with which no weight begins: use a beginning of {known}",
            )
        chosen += [pair for pair in fitting if pair[0] not in {name for name, _ in chosen}]
    return chosen


# ---- memory levels


def begins_on_host(settings: TrainSettings, sharded: bool = False) -> bool:
    """Whether the model must not come to the device as it is stored: it may not fit there."""
    return sharded or settings.base_model_precision != "as stored" or settings.blocks_to_swap > 0


def apply_memory_levels(
    family: Family, transformer: Any, settings: TrainSettings, device: torch.device, sharded: bool = False
) -> None:
    """Apply the levels to a transformer whose LoRA is attached and whose attention is chosen; move it to the device.

    sharded: a part of it for each process. Raises ConfigError.
    """
    blocks = family.all_blocks(transformer)
    if settings.method != "full" and settings.attention != "stock":
        family.join_projections(transformer)
    if settings.base_model_precision != "as stored":
        from workbench.memory.low_bit import shrink

        for block in blocks:  # rounded where that is fast, one at a time, so that one at most is there unrounded
            shrink([block.to(device)], settings.base_model_precision)
            if settings.blocks_to_swap:
                block.to("cpu")
    if settings.blocks_to_swap:
        from workbench.memory.block_swap import BlockSwap

        BlockSwap(blocks, settings.blocks_to_swap, device)
    if sharded:
        shard(blocks, transformer, device)
    else:
        transformer.to(device)
    level, random = settings.gradient_checkpointing, settings.lora_dropout > 0
    recompute = recomputing(level, random) if level != "none" else None
    # Within a translated block the compiler plans what is kept; what comes and goes must stay outside of it.
    inside = settings.compile and not settings.blocks_to_swap and level in ("keep attention", "full")
    if recompute is not None and not inside:
        transformer.enable_gradient_checkpointing(recompute)
    if settings.compile:
        compiling.check_compiler()
        compiling.compile_blocks(blocks, recompute if inside else None)
