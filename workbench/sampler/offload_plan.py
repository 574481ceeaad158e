"""How a model lies in memory for sampling: chosen from what is free, so that drawing never begins what cannot end.

    exact, fast   everything on the GPU where it fits; else text encoder, transformer and VAE come there in turn; else
                  the transformer's blocks, too, come when they are needed
    frugal        the blocks in 8 bits, the parts in turn, guidance's two predictions one after the other; blocks that
                  still do not fit come when they are needed

The choice changes no number but `frugal`'s rounding. Constants are fitted to published figures (33 GB for 5B at
49x480x720 with everything on the GPU). No torch. Not covered: doing it (generate, engine).
"""

from __future__ import annotations

from dataclasses import dataclass

from workbench.clips.frame_plan import Shape
from workbench.families.facts import ModelFacts
from workbench.jobs.devices import GIGABYTE, Device, load
from workbench.sampler.settings import Speed

BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
WAVES = 16  # tensors of [tokens, width] that a block holds at once, its feed-forward included
DECODING = 7  # tensors of the decoder's widest channels at full size that it holds at once
CONTEXT_GB = 1.0  # what CUDA and its libraries take for themselves
SLOTS = 2  # blocks on the device while others come and go


@dataclass(frozen=True)
class Loadout:
    """weights: "as stored" or "int8"; in_turn: one part on the device at a time; streamed: blocks that come and go;
    one_by_one: the two predictions of guidance apart; tiled: the VAE decodes in tiles from the start."""

    weights: str = "as stored"
    in_turn: bool = False
    streamed: int = 0
    one_by_one: bool = False
    tiled: bool = False

    @property
    def words(self) -> str:
        """For a record and for people."""
        said = ["everything on the device"] if not self.in_turn else ["its parts on the device in turn"]
        if self.streamed:
            said.append(f"{self.streamed} blocks come when they are needed")
        if self.weights != "as stored":
            said.append(f"blocks in {self.weights}")
        return ", ".join(said)


def choose(speed: Speed, device: Device, facts: ModelFacts, shape: Shape) -> Loadout:
    """The loadout for samples of this shape on this device as it is now."""
    frugal = speed == "frugal"
    weights = "int8" if frugal else "as stored"
    if device.kind == "cpu":
        return Loadout(weights, one_by_one=frugal, tiled=False)
    now = load(device)
    return fitted(frugal, now.memory_total_gb - now.memory_used_gb, facts, shape)


def fitted(frugal: bool, free_gb: float, facts: ModelFacts, shape: Shape) -> Loadout:
    """The loadout for a GPU with so much free memory."""
    each = BYTES[facts.stored]
    size = (shape.frames, shape.height, shape.width)
    free = (free_gb - CONTEXT_GB) * GIGABYTE
    blocks = facts.block_values * facts.blocks * (1 if frugal else each)
    rest = (facts.values - facts.block_values * facts.blocks) * each
    waves = WAVES * facts.tokens(*size) * facts.width * each * (1 if frugal else 2)
    vae, text = facts.vae.values * each, facts.text_encoder_values * each
    decoding = _decoding(facts, size, each)
    tiled = frugal or vae + decoding > free
    if not frugal and blocks + rest + vae + text + max(waves, decoding) <= free:
        return Loadout(tiled=False)
    streamed = 0
    if blocks + rest + waves > free:
        room = max(free - rest - waves, 0.0)
        kept = max(int(room // (blocks / facts.blocks)) - SLOTS, 0)
        streamed = facts.blocks - min(kept, facts.blocks)
    return Loadout("int8" if frugal else "as stored", True, streamed, one_by_one=frugal, tiled=tiled)


def _decoding(facts: ModelFacts, size: tuple[int, int, int], each: int) -> float:
    """Bytes that the VAE's decoder needs for a whole clip, beside its weights."""
    frames, height, width = size
    at_once = min(frames, facts.vae.frames_at_once) * height * width
    return DECODING * facts.vae.decoder_width * at_once * each + 3 * frames * height * width * 4
