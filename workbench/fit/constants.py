"""Every figure that the fit check rests on, with where it comes from. No torch.

    simulated    fitted to steps of models of real size on tensors without memory (benchmarks/memory_simulation.py)
    measured     on the built-in models on a processor (benchmarks/fit_check.py)
    published    by the makers of a model, a trainer or a GPU
    counted      follows from formats and operations
    usual        what is commonly seen; nobody has measured it here

docs/memory.md names the publications and sets estimates beside them.
"""

from __future__ import annotations

from dataclasses import dataclass

# ---- formats: counted

NUMBER = {"fp32": 4, "fp16": 2, "bf16": 2}  # bytes
PRECISIONS = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}
# Bytes for a frozen value; scales of rows or of 64 values come on top.
FROZEN = {"int8": 1.0, "fp8": 1.0, "nf4": 0.5625}
# Bytes of state for a trained value, by optimizer.
STATES = {
    "adamw": 8.0,
    "adam": 8.0,
    "adamw-8bit": 2.1,
    "adam-8bit": 2.1,
    "prodigy": 16.0,
    "came": 4.1,
    "schedule-free": 8.0,
    "muon": 4.0,
}

# ---- what a transformer's blocks keep: simulated; fp32 counted in the operations


@dataclass(frozen=True)
class Rates:
    """Bytes for each token and unit of the model's width.

    saved: kept by a block, without inputs of trained layers;  inputs: each of those, for its own width
    boundary: a block's input;  attention: what "keep attention" keeps of a block beside it
    backward, forward: beside what is kept, at the worst moment of a backward pass, and of a pass that keeps nothing
    full: kept in addition where all weights are trained;  shared: whether layers with the same input keep it once
    within: for each unit of the feed-forward's width, in addition to saved, backward and forward
    cast: the widest input of a trained layer, at the worst moment of a backward pass;  outside: kept beside the blocks
    table: of the positions, once however many clips there are
    """

    saved: float
    inputs: float
    boundary: float
    attention: float
    backward: float
    forward: float
    full: float
    shared: bool
    within: float = 0.0
    cast: float = 0.0
    outside: float = 0.0
    table: float = 0.0


SINGLE = Rates(47.0, 4.0, 4.0, 4.1, 36.0, 50.0, 24.0, shared=True)
MIXED = Rates(32.5, 2.0, 2.0, 2.1, 20.0, 30.0, 16.0, shared=True)
MIXED_STOCK = Rates(32.5, 2.0, 2.0, 2.1, 20.0, 34.0, 16.0, shared=False)
# Where the caption's tokens stand beside the video's and have layers of their own (Mochi): norms in fp32, a gated
# feed-forward. Counted in the operations, not simulated yet.
TWO_STREAMS_SINGLE = Rates(72.0, 4.0, 4.0, 4.1, 40.0, 52.0, 24.0, shared=False)
TWO_STREAMS_MIXED = Rates(52.0, 2.0, 2.0, 2.1, 27.0, 27.0, 16.0, shared=False)
# Where the caption is only looked at.
CROSS_SINGLE = Rates(40.0, 4.0, 4.0, 8.1, 8.0, 33.0, 24.0, shared=True, within=4.0, cast=4.0)
CROSS_MIXED = Rates(36.9, 2.0, 2.0, 4.1, 6.0, 21.5, 16.0, shared=False, within=2.0, cast=4.0)

# ---- what is no tensor: of CUDA and the host usual, reserves of GPUs fitted to published peaks; a processor: measured

RING = 2  # swapped blocks that are on the device at a time
CONTEXT_GB = 0.6  # CUDA's own, with cuBLAS's and cuDNN's workspaces
PROCESS_GB = {"cuda": 2.6, "mps": 2.6, "cpu": 0.51}  # what Python and its libraries take of the machine's memory
EARLIER_GB = {"encoding captions": 0.37, "encoding clips": 0.47}  # on a processor, before all of them are loaded
# What is no tensor, as a share of tensors that are kept and of those that a backward pass works with: workspaces
# inside of kernels, room between tensors that the allocator cannot give to others.
RESERVES = {"cuda": (0.03, 1.4), "cpu": (0.5, 0.5)}
COMING_BACK = 3  # inputs of blocks that are on their way from the machine's memory
CAPTIONS_AT_ONCE = 8
TEXT_UNITS = 24  # widths of text that an encoder's layer holds for a token
VAE_RESERVES = {"cuda": 0.15, "mps": 0.15, "cpu": 2.7}  # the same of a video autoencoder
# A processor: what weights take that are mapped and trained, and how much of the video encoder's memory is still the
# process's in the next phase. HEAP_GB: the most of that and of a reserve, since tensors of 32 MB and more lie outside
# of the C library's heap and go back at once.
MAPPED, NOT_GIVEN_BACK, HEAP_GB = 1.25, 0.8, 0.5
SMALLEST_GB = 0.005  # parts below this are not worth a word
TILED_FROM = 256  # pixels of height from which previews are decoded in tiles

# ---- GPUs: rates from published times of A100 and H100; of the others about 70 % of the maker's figure for consumer
# GPUs and half of it for the rest

# Part of the GPU's name -> TFLOP/s. The first that fits counts.
RATES = {
    "B200": 900.0,
    "H200": 400.0,
    "H100": 394.0,
    "H800": 394.0,
    "A100": 197.0,
    "A800": 197.0,
    "L40S": 180.0,
    "L40": 120.0,
    "RTX 6000 Ada": 180.0,
    "RTX A6000": 90.0,
    "A6000": 90.0,
    "A40": 90.0,
    "A10": 60.0,
    "L4": 45.0,
    "V100": 60.0,
    "T4": 25.0,
    "PRO 6000": 280.0,
    "5090": 165.0,
    "5080": 90.0,
    "5070 Ti": 70.0,
    "5070": 50.0,
    "5060": 35.0,
    "4090": 130.0,
    "4080": 78.0,
    "4070 Ti": 64.0,
    "4070": 46.0,
    "4060": 33.0,
    "3090": 55.0,
    "3080": 45.0,
    "3070": 31.0,
    "3060": 20.0,
    "2080": 35.0,
}
# Of Apple's by class: half of what the newest is said to do. Nothing was measured.
APPLE_RATES = {"Ultra": 14.0, "Max": 8.0, "Pro": 4.0}
APPLE_RATE = 2.0
# Where the name says nothing: by memory in GiB, a usual GPU of that size.
USUAL = ((10, 33.0), (14, 35.0), (20, 70.0), (36, 110.0), (60, 150.0))
FASTEST = 300.0
CORE_RATE = 0.03  # TFLOP/s that a processor's core does in fp32
# Of its memory: the driver and the system keep some. Apple's was not measured.
USABLE = {"cuda": 0.97, "mps": 0.90, "cpu": 0.90}

# ---- time: estimated or published by others, to be measured on a GPU

TERA = 1e12
FULL_WIDTH = 3072  # a model of this width uses a GPU as the rates say; narrower ones less
NARROWER = 0.6  # exponent: 2B reaches three quarters of what 5B reaches (published inference times)
ATTENTION_BACKWARD = 2.5  # times its forward pass: flash attention computes the scores again
COMPILED = 0.87
STOCK = 1.1  # diffusers' own attention processor
UNPACKING = {"as stored": 1.0, "int8": 1.06, "fp8": 1.06, "nf4": 1.18}
LINK = 20e9  # bytes a second between the machine's memory and the GPU
EXPOSED = 0.3  # of a copy's time that no computing hides
OPTIMIZING = {"adamw-8bit": 1.005, "adam-8bit": 1.005}
DISPATCH = 0.004  # seconds a block and pass that a processor spends between operations
DRIFT_PASSES = 6
LOADING_BYTES = 1.0e9  # a second
START_SECONDS = 15.0
