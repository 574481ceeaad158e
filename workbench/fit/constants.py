"""The constants of the fit check, with their sources. No torch.

    simulated    fitted to steps of models of real size on tensors without memory (benchmarks/memory_simulation.py)
    measured     on the built-in models on a CPU (benchmarks/fit_check.py)
    published    by the makers of a model, a trainer or a GPU
    counted      derived from formats and operations
    usual        commonly seen, not measured here

docs/memory.md names the publications and compares estimates with them.
"""

from __future__ import annotations

from dataclasses import dataclass

# ---- formats: counted

NUMBER = {"fp32": 4, "fp16": 2, "bf16": 2}  # bytes
PRECISIONS = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}
# Bytes per frozen value, without the scales per row or per 64 values.
FROZEN = {"int8": 1.0, "fp8": 1.0, "nf4": 0.5625}
# Bytes of optimizer state per trained value.
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

# ---- activations of a transformer's blocks: simulated; fp32 counted


@dataclass(frozen=True)
class Rates:
    """Bytes per token and unit of the model's width."""

    saved: float  # kept by a block for its backward pass, without inputs of trained layers
    inputs: float  # kept of each trained layer's input, per unit of its own width
    boundary: float  # a block's input
    attention: float  # what "keep attention" keeps of a block in addition to its input
    # backward, forward: working memory at the peak of a backward pass, and of a pass that keeps nothing
    backward: float
    forward: float
    full: float  # kept in addition when all weights are trained
    shared: bool  # whether layers with the same input keep it only once
    within: float = 0.0  # in addition to saved, backward and forward, per unit of the feed-forward's width
    cast: float = 0.0  # of the widest input of a trained layer, at the peak of a backward pass
    outside: float = 0.0  # kept outside the blocks
    table: float = 0.0  # for positions, independent of the number of clips


SINGLE = Rates(47.0, 4.0, 4.0, 4.1, 36.0, 50.0, 24.0, shared=True)
MIXED = Rates(32.5, 2.0, 2.0, 2.1, 20.0, 30.0, 16.0, shared=True)
MIXED_STOCK = Rates(32.5, 2.0, 2.0, 2.1, 20.0, 34.0, 16.0, shared=False)
# Caption tokens have layers of their own next to the video's (Mochi): norms in fp32, a gated feed-forward. Simulated in
# bf16, only counted in fp32.
TWO_STREAMS_SINGLE = Rates(72.0, 4.0, 4.0, 4.1, 40.0, 52.0, 24.0, shared=False)
TWO_STREAMS_MIXED = Rates(52.0, 2.0, 2.0, 2.1, 27.0, 36.0, 16.0, shared=False)
UNGATED = 37.0  # saved, if the feed-forward has no gate (HunyuanVideo 1.5): simulated, in both
# The caption is only used in cross-attention.
CROSS_SINGLE = Rates(40.0, 4.0, 4.0, 8.1, 8.0, 33.0, 24.0, shared=True, within=4.0, cast=4.0)
CROSS_MIXED = Rates(36.9, 2.0, 2.0, 4.1, 6.0, 21.5, 16.0, shared=False, within=2.0, cast=4.0)

# ---- memory besides tensors: CUDA and host usual, GPU reserves fitted to published peaks, CPU measured

RING = 2  # swapped blocks on the device at the same time
CONTEXT_GB = 0.6  # CUDA context, with cuBLAS's and cuDNN's workspaces
PROCESS_GB = {"cuda": 2.6, "mps": 2.6, "cpu": 0.51}  # CPU memory of Python and its libraries
EARLIER_GB = {"encoding captions": 0.37, "encoding clips": 0.47}  # on a CPU, before all libraries are loaded
# Kernel workspaces and fragmentation, as a share of the tensors that are kept and of a backward pass's working memory.
RESERVES = {"cuda": (0.03, 1.4), "cpu": (0.5, 0.5)}
COMING_BACK = 3  # offloaded block inputs on their way back from CPU memory
HINTS_KEPT = 2  # tensors per block of a side branch (VACE) that wait for it in an offloaded backward pass
CAPTIONS_AT_ONCE = 8
TEXT_UNITS = 24  # text widths that an encoder layer holds per token
VAE_RESERVES = {"cuda": 0.15, "mps": 0.15, "cpu": 2.7}  # like RESERVES, for a video autoencoder
# On a CPU: the factor for weights that are mapped and trained; the share of the video encoder's memory that the process
# still holds in the next phase; and the most that such memory, or a reserve, can be, since tensors of 32 MB and more
# are allocated outside the C library's heap and returned at once.
MAPPED, NOT_GIVEN_BACK, HEAP_GB = 1.25, 0.8, 0.5
SMALLEST_GB = 0.005  # smaller parts are not shown
TILED_FROM = 256  # pixels of height from which previews are decoded in tiles

# ---- GPUs: rates of A100 and H100 from published times; for the rest about 70% of the maker's figure (consumer GPUs)
# or half of it (others)

# Part of the GPU's name -> TFLOP/s. The first match counts.
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
# Apple GPUs by class: half of the newest one's published figure. Not measured.
APPLE_RATES = {"Ultra": 14.0, "Max": 8.0, "Pro": 4.0}
APPLE_RATE = 2.0
# If the name is unknown: the rate of a typical GPU with up to that much memory (GiB).
USUAL = ((10, 33.0), (14, 35.0), (20, 70.0), (36, 110.0), (60, 150.0))
FASTEST = 300.0
CORE_RATE = 0.03  # TFLOP/s of a CPU core in fp32
# Share of the memory that a run can use: driver and system keep the rest. Apple's was not measured.
USABLE = {"cuda": 0.97, "mps": 0.90, "cpu": 0.90}

# ---- time: estimated or published by others, to be measured on a GPU

TERA = 1e12
FULL_WIDTH = 3072  # models of this width reach a GPU's rate, narrower ones less
NARROWER = 0.6  # exponent: 2B reaches three quarters of 5B's rate (published inference times)
ATTENTION_BACKWARD = 2.5  # times the forward pass: flash attention recomputes the scores
COMPILED = 0.87
STOCK = 1.1  # diffusers' own attention processor
UNPACKING = {"as stored": 1.0, "int8": 1.06, "fp8": 1.06, "nf4": 1.18}
LINK = 20e9  # bytes per second between CPU memory and the GPU
EXPOSED = 0.3  # share of a copy's time that does not overlap with computing
OPTIMIZING = {"adamw-8bit": 1.005, "adam-8bit": 1.005}
DISPATCH = 0.004  # CPU overhead in seconds per block and pass
DRIFT_PASSES = 6
LOADING_BYTES = 1.0e9  # per second
START_SECONDS = 15.0
