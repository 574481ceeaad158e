"""Models in single files: those that ComfyUI and a model's authors use, as the base of a run, instead of a folder.

A model's name may list files and folders of files, joined by " + ", and at most one model:

    wan2.1_t2v_1.3B_fp16.safetensors
    diffusion_models/wan2.2_t2v_high_noise_14B.safetensors + diffusion_models/wan2.2_t2v_low_noise_14B.safetensors
    my_finetune.safetensors + umt5_xxl_fp8_e4m3fn_scaled.safetensors + wan2.1-t2v-14b

A file replaces the weights of the parts that it holds; everything else (configs, tokenizer, the other parts) comes from
the model. If none is named, it is the published model whose denoiser has as many values as the file's. Names, shapes
and sizes are read from headers, so a model is known without torch and without a download. Weights are read from the
file whenever a part is loaded: nothing is written twice.

Weights in fp8 are multiplied by their scale (`scale_weight` or `weight_scale`, one for the tensor or one for each row)
in float32, as ComfyUI stores them. Other quantizations are refused.
"""

from __future__ import annotations

import atexit
import math
import re
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.errors import ConfigError, ModelUnavailable
from workbench.families import facts, model_files, other_families
from workbench.families.model import Model
from workbench.workspace import link_or_copy, named_paths, writing
from workbench.workspace.safetensors_header import FLOAT8, FLOATS, Header, Stored, read_header

if TYPE_CHECKING:
    import torch

    from workbench.families.base import Family

    Tensors = dict[str, torch.Tensor]

JOIN = " + "
ENDS = (".safetensors", ".sft")
# Where ComfyUI keeps files, below its `models`.
SUBFOLDERS = ("checkpoints", "diffusion_models", "unet", "vae", "text_encoders", "clip", "clip_vision")
TRANSFORMER, VAE, TEXT, IMAGE = "transformer", "vae", "text_encoder", "image_encoder"
# Beginning of tensor names in files with several parts -> the part.
PREFIXES = (
    (r"model\.diffusion_model\.", TRANSFORMER),
    (r"diffusion_model\.", TRANSFORMER),
    (r"first_stage_model\.", VAE),
    (r"vae\.", VAE),
    (r"audio_vae\.", "audio_vae"),
    (r"vocoder\.", "vocoder"),
    (r"(?:text_encoders|cond_stage_model)\.[\w-]+\.transformer\.", TEXT),
    (r"(?:text_encoders|cond_stage_model|text_embedding_projection|conditioner)\.", ""),  # what is not read
)
# A tensor's name in a file with one part -> the part.
MARKS = (
    (r"encoder\.block\.0\.layer\.0\.SelfAttention\.q\.weight", TEXT),  # T5, UMT5
    (r"token_embedding\.weight", TEXT),  # UMT5 as Wan's authors name it
    (r"(?:model\.)?(?:language_model\.)?layers\.0\.self_attn\.q_proj\.weight", TEXT),  # Qwen2.5-VL, Gemma
    (r"text_model\.encoder\.layers\.0\.self_attn\.q_proj\.weight", TEXT),  # CLIP
    (r"vision_model\.encoder\.layers\.0\.self_attn\.q_proj\.weight", IMAGE),
    (r"(?:encoder|decoder)\.(?:conv_in|conv1|mid|middle|mid_block)\..+", VAE),
)
EMBEDDING = re.compile(r"(?:.*\.)?(?:shared|embed_tokens|token_embedding)\.weight")
# Tensors beside a quantized weight, and marks of a whole file.
SCALE = re.compile(r"(?P<layer>.+)\.(?:scale_weight|weight_scale)")
BESIDE = re.compile(r"(?:.+\.)?(?:scale_weight|weight_scale|scale_input|input_scale|comfy_quant|scaled_fp8)")
IN_BLOCK = re.compile(r"(?:^|[._])(?:blocks|block|layers)\.\d+\.")
IGNORED = re.compile(r"(?:.*\.)?(?:spiece_model|tekken_model|logit_scale)|(?:video|audio)_embeddings_connector\..+")
NEAR = 0.03  # a published model's size may differ by this share from a file's denoiser
NOISE_WORDS = {"high": 0, "low": 1}  # word in a file's name -> index of its expert


@dataclass(frozen=True)
class Piece:
    """One part of a model in a file."""

    path: Path
    part: str  # "transformer", "vae", ... A text encoder may be a model's first or second one.
    family: str  # name of the family whose denoiser it is; "" for other parts
    prefix: str
    # Name without `prefix` -> what the header says of it; scales and the like are not among them
    tensors: Mapping[str, Stored]

    @property
    def values(self) -> int:
        return sum(math.prod(one.shape) for one in self.tensors.values())


# ---- names


def listed(name: str) -> tuple[str, ...]:
    """Split a model's name into the files, folders of files and the model that it lists; () if it lists no file."""
    if "\0" in name:
        return ()
    parts = tuple(part.strip() for part in name.split(JOIN))
    if len(parts) > 1 and named_paths.names_file(name) and named_paths.resolve(name, "model").exists():
        parts = (name,)
    return parts if any(_files_of(part) for part in parts) else ()


def _files_of(text: str) -> list[Path]:
    """Return the files that one item of a name stands for. Raises ConfigError for paths outside allowed folders."""
    if not text or not named_paths.names_file(text):
        return []
    path = named_paths.resolve(text, "model")
    if path.is_file():
        return [path] if path.suffix in ENDS else []
    if not path.is_dir() or (path / model_files.INDEX).is_file():
        return []
    folders = [path, *(path / name for name in SUBFOLDERS)]
    return [file for folder in folders for end in ENDS for file in sorted(folder.glob(f"*{end}"))]


def resolved(
    name: str, families: Sequence[Family], find: Callable[[str], tuple[Family, Model]]
) -> tuple[Family, Model]:
    """Return the model that a name with files stands for. `find` looks up a model by its name. Raises ConfigError."""
    items = listed(name)
    files = [file for item in items for file in _files_of(item)]
    others = [item for item in items if not _files_of(item)]
    if len(others) > 1:
        raise _refused(f"model names two models, {others[0]} and {others[1]}: files replace parts of one")
    if others and others[0].endswith(other_families.FILES):
        path = named_paths.resolve(others[0], "model")
        if not path.is_file():
            raise _refused(f"model names {others[0]}, which does not exist: check its spelling")
        raise _refused(other_families.single_file(path, families))
    pieces = [piece for file in files for piece in pieces_of(file, families)]
    if others:
        family, base = find(others[0])
    else:
        family, base = _published_like(pieces, families)
    if base.files:
        raise _refused(f"model names {others[0]}, which has files of its own: list all files in one name")
    for piece in pieces:
        if piece.family and piece.family != family.name:
            theirs = next(one.title for one in families if one.name == piece.family)
            raise _refused(
                f"{piece.path.name} is a model of {theirs}, {base.title} one of {family.title}: leave one out"
            )
    return family, _with_pieces(family, base, pieces, files)


def _with_pieces(family: Family, base: Model, pieces: Sequence[Piece], files: Sequence[Path]) -> Model:
    """Return the base with the parts in files. Raises ConfigError if two files hold one part, or none is of use."""
    parts, found = family.weighted_parts(base), dict[str, Path]()
    for piece in pieces:
        part = _part_of(family, base, piece, sum(one.part == TRANSFORMER for one in pieces))
        if part not in parts or part not in family.file_parts:
            if len(files) == 1 and len(pieces) == 1:
                raise _refused(f"model is {piece.path.name}, a {piece.part} that {base.title} cannot take from a file")
            continue  # an all-in-one file's other parts come from the base
        if part in found:
            raise _refused(f"{found[part].name} and {piece.path.name} both hold the {part}: leave one out")
        found[part] = piece.path
    names = JOIN.join(dict.fromkeys(path.name for path in found.values()))
    model = replace(
        base,
        id=JOIN.join([*map(str, dict.fromkeys(found.values())), base.id]),
        title=f"{names} ({base.title})",
        files=tuple((part, str(path)) for part, path in found.items()),
        stored=_stored(base, pieces),
        embedded=False,
        whole_gb=base.download_gb,
    )
    if base.local or base.source not in facts.published():
        return model
    return replace(model, download_gb=round(sum(facts.download_parts(model).values()), 1))


def _stored(base: Model, pieces: Sequence[Piece]) -> str:
    """Return the transformer's dtype for precision auto: the base model's if it is known, else the file's.

    Files in fp16 are common where the authors train in bf16.
    """
    if (known := facts.published().get(base.source)) is not None:
        return known.stored
    try:
        return model_files.stored_dtype(Path(base.source))
    except ModelUnavailable:
        dtypes = [one.dtype for piece in pieces if piece.part == TRANSFORMER for one in piece.tensors.values()]
        return "float32" if dtypes and max(dtypes, key=dtypes.count) == "F32" else "bfloat16"


def _part_of(family: Family, base: Model, piece: Piece, transformers: int) -> str:
    """Return the name of the part that a piece replaces. Raises ConfigError."""
    if piece.part == TRANSFORMER and len(base.experts) > 1:
        named = [number for word, number in NOISE_WORDS.items() if word in piece.path.stem.lower()]
        if len(named) != 1:
            raise _refused(
                f"{base.title} has a transformer for high noise and one for low noise, and {piece.path.name} does not "
                f"say which it is: put 'high' or 'low' into its name"
            )
        return base.experts[named[0]].part
    if piece.part == TRANSFORMER and transformers > 1:
        raise _refused(f"{base.title} has one transformer, and {transformers} are given: leave the others out")
    if piece.part != TEXT:
        return piece.part
    widths = {}
    for part in (one for one in facts.TEXT_PARTS[:2] if one in family.weighted_parts(base)):
        config = family.part_config(base, part)
        config = config.get("text_config") or config
        widths[part] = int(config.get("d_model") or config.get("hidden_size") or 0)
    own = next((one.shape[-1] for name, one in piece.tensors.items() if EMBEDDING.fullmatch(name)), 0)
    fitting = next((part for part, width in widths.items() if width == own), None)
    if fitting is None:
        theirs = " and ".join(map(str, widths.values()))
        raise _refused(
            f"{piece.path.name} is a text encoder of width {own}, {base.title} needs {theirs}: leave it out, then the "
            f"model's own is used"
        )
    return fitting


def _published_like(pieces: Sequence[Piece], families: Sequence[Family]) -> tuple[Family, Model]:
    """Return the published model whose denoiser is as large as the files'. Raises ConfigError."""
    denoisers = [piece for piece in pieces if piece.part == TRANSFORMER]
    if not denoisers:
        held = " and ".join(dict.fromkeys(f"{piece.path.name} ({piece.part})" for piece in pieces))
        raise _refused(f"model is {held}, without a denoiser: add the model whose part it replaces, as in FILE + MODEL")
    first = denoisers[0]
    family = next(one for one in families if one.name == first.family)
    distances = {model: abs(family.facts(model).values - first.values) for model in family.models if not model.embedded}
    least = min(distances.values(), default=0)
    if not distances or least > NEAR * first.values:
        raise _refused(
            f"model is {first.path.name}, a model of {family.title} with {first.values:,} values, and no published one "
            f"has that size: add the model that it was made from, as in {first.path.name} + FOLDER"
        )
    nearest = [model for model, distance in distances.items() if distance == least]
    others = sum(piece.values for piece in pieces if piece.part == VAE)
    words = " ".join(piece.path.stem for piece in denoisers).lower()
    two = len(denoisers) > 1 or any(word in re.split(r"[\W_]+", words) for word in NOISE_WORDS)

    def likeness(model: Model) -> tuple[float, ...]:
        parts = facts.published()[model.source].parts if model.source in facts.published() else {}
        vae = -abs(parts[VAE].values - others) if others and VAE in parts else 0
        tokens = re.split(r"[-_.]", model.id.lower())
        found = sum(token in words for token in tokens)
        return (vae, bool(model.boundary) == two, found / len(tokens), found)

    return family, max(nearest, key=likeness)


# ---- what a file holds


def pieces_of(path: Path, families: Sequence[Family]) -> list[Piece]:
    """Return the parts of a model in a file. Raises ConfigError for other files, saying what they are."""
    at = path.stat()
    return list(_pieces(path, tuple(families), at.st_size, at.st_mtime_ns))


@lru_cache(maxsize=64)
def _pieces(path: Path, families: tuple[Family, ...], *version: int) -> tuple[Piece, ...]:
    try:
        header = read_header(path)
    except (OSError, ValueError) as error:
        raise _refused(f"model is {path.name}, which cannot be read ({error}): download it again") from error
    if any(re.search(r"[._]lora_|\.lokr_|\.hada_", name) or name.startswith("lora_") for name in header.tensors):
        raise _refused(other_families.single_file(path, families))
    groups, kinds = defaultdict[str, dict[str, Stored]](dict), dict[str, str]()
    for name, one in header.tensors.items():
        prefixes = ((match[0], part) for pattern, part in PREFIXES if (match := re.match(pattern, name)))
        prefix, kind = next(prefixes, ("", TRANSFORMER))
        kinds[prefix] = kind
        if not BESIDE.fullmatch(name) and not IGNORED.fullmatch(name.removeprefix(prefix)):
            groups[prefix][name.removeprefix(prefix)] = one
    found = []
    for prefix, tensors in groups.items():
        kind, family = kinds[prefix], ""
        if kind == TRANSFORMER:
            family = other_families.own_family(tensors, families)
            if not family:
                kind = next((part for mark, part in MARKS if any(re.fullmatch(mark, name) for name in tensors)), "")
        if kind:
            found.append(Piece(path, kind, family, prefix, tensors))
    if not found:
        raise _refused(other_families.single_file(path, families))
    for piece in found:
        _refuse_other_numbers(piece, header)
    return tuple(found)


def _refuse_other_numbers(piece: Piece, header: Header) -> None:
    """Refuse a quantization other than fp8 with a scale for the tensor or each row. Raises ConfigError."""
    remedy = "which cannot be trained on exactly: use the file in bf16, fp16 or fp8 with scales"
    with piece.path.open("rb") as file:
        for name in (one for one in header.tensors if one.endswith(".comfy_quant")):
            file.seek(header.tensors[name].start)
            text = file.read(header.tensors[name].end - header.tensors[name].start).decode("utf-8", "replace")
            if '"float8_e' not in text or "convrot" in text:
                raise _refused(f"model is {piece.path.name}, quantized as {text[:80]} ({name[:80]}), {remedy}")
    scales = {match["layer"]: header.tensors[name] for name in header.tensors if (match := SCALE.fullmatch(name))}
    for name, one in piece.tensors.items():
        scale = scales.get((piece.prefix + name).removesuffix(".weight"))
        if one.dtype in FLOAT8 and scale is not None and math.prod(scale.shape) not in (1, one.shape[0]):
            raise _refused(
                f"model is {piece.path.name}, whose {name[:80]} has {math.prod(scale.shape)} scales for {one.shape[0]} "
                f"rows, {remedy}"
            )
        if one.dtype not in (*FLOATS, *FLOAT8, "F64") and name.endswith("weight"):
            raise _refused(f"model is {piece.path.name}, quantized to {one.dtype} ({name[:80]}), {remedy}")


# ---- reading weights


def check(family: Family, model: Model, folder: Path) -> None:
    """Check that each file fits its part, from headers alone. Raises ConfigError with what does not fit."""
    import torch

    for part, path in model.files:
        kind = family.part_class(folder, part)
        if not hasattr(kind, "load_config"):
            continue  # a class of transformers, checked while loading
        piece = _piece(family, folder, part)
        with torch.device("meta"):
            tensors = {name: torch.empty(one.shape) for name, one in piece.tensors.items()}
        _fitting(family, folder, part, Path(path), tensors)


def load(family: Family, folder: Path, part: str, dtype: torch.dtype) -> Any:
    """Load a part from its file, as `from_pretrained` would from a folder. Raises ConfigError."""
    import torch

    piece, kind = _piece(family, folder, part), family.part_class(folder, part)
    home = model_files.part_folder(folder, part)
    kept = kind._keep_in_fp32_modules or []
    kept = [kept] if isinstance(kept, str) else list(kept)
    tensors = dict(_read(piece, dtype, kept))
    with torch.random.fork_rng(devices=[]):
        if hasattr(kind, "load_config"):
            fitting = _fitting(family, folder, part, piece.path, tensors)
            return _assembled(kind, model_files.config(folder, part), fitting, dtype, kept)
        renamed = family.from_file(part, tensors, {})
        settings = kind.config_class.from_pretrained(home)
        model, info = kind.from_pretrained(
            None, config=settings, state_dict=renamed, dtype=dtype, output_loading_info=True
        )
    missing, mismatched = sorted(info["missing_keys"]), [str(one[0]) for one in info["mismatched_keys"]]
    if missing or mismatched:
        _refuse_fit(piece.path, part, missing, [], mismatched)
    return model


@lru_cache(maxsize=4)
def written_out(family: Family, model: Model, folder: Path) -> Path:
    """Return a folder in diffusers' layout with the parts in files written out, removed when the process ends.

    For programs that read weights in folders: stock diffusers, and fusing a LoRA. Raises ConfigError, CannotWrite.
    """
    import torch

    target = Path(tempfile.mkdtemp(prefix=f"{folder.name}-", dir=folder.parent))
    atexit.register(shutil.rmtree, target, ignore_errors=True)
    own = dict(model.files)
    model_files.link_parts(target, folder, without_weights=tuple(own))
    with writing(target):
        for name in (model_files.INDEX, model_files.MADE_FOR):
            if (folder / name).is_file():
                link_or_copy(str(folder / name), str(target / name))
        for part in own:
            (target / part / model_files.OWN_FILE).unlink()
            dtypes = [one.dtype for one in _piece(family, folder, part).tensors.values()]
            name = {"F32": "float32", "F16": "float16"}.get(max(dtypes, key=dtypes.count), "bfloat16")
            load(family, folder, part, getattr(torch, name)).save_pretrained(target / part)
    return target


def _piece(family: Family, folder: Path, part: str) -> Piece:
    """Return the piece of a file that replaces a part. Raises ModelUnavailable."""
    from workbench.families import families

    path = model_files.own_file(folder, part)
    assert path is not None
    if not path.is_file():
        raise ModelUnavailable(f"{path} is missing, the file of the model's {part}: restore it")
    kind = TRANSFORMER if part.startswith(TRANSFORMER) else TEXT if part.startswith(TEXT) else part
    return next(piece for piece in pieces_of(path, families()) if piece.part == kind)


def _read(piece: Piece, dtype: torch.dtype, kept: Sequence[str]) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield a piece's tensors.

    fp8 becomes float32, or `dtype` inside blocks, which hold nearly all weights, except in modules of the names `kept`.
    """
    import torch
    from safetensors import safe_open

    scales = {}
    header: Header = read_header(piece.path)
    with safe_open(piece.path, framework="pt") as file:
        for name in header.tensors:
            if name.startswith(piece.prefix) and (match := SCALE.fullmatch(name)) is not None:
                scales[match["layer"].removeprefix(piece.prefix)] = file.get_tensor(name).float()
        for name, one in piece.tensors.items():
            tensor = file.get_tensor(piece.prefix + name)
            if one.dtype in FLOAT8:
                scale = scales.get(name.removesuffix(".weight"), torch.ones(()))
                scale = scale.reshape(-1, *[1] * (len(one.shape) - 1)) if scale.numel() > 1 else scale.reshape(())
                tensor = tensor.float() * scale
                if IN_BLOCK.search(name) and not set(kept) & set(name.split(".")):
                    tensor = tensor.to(dtype)
            yield name, tensor


def _fitting(family: Family, folder: Path, part: str, path: Path, tensors: Tensors) -> Tensors:
    """Return a file's tensors under diffusers' names. Raises ConfigError if they are not those of the part."""
    empty = model_files.empty_part(folder, part).state_dict()
    shapes = {name: tuple(one.shape) for name, one in empty.items()}
    try:
        found = tensors if set(shapes) <= set(tensors) else family.from_file(part, tensors, shapes)
    except (KeyError, ValueError, RuntimeError) as error:  # the library's converters, which miss a tensor
        raise _refused(
            f"model is {path.name}, whose {part} lacks {str(error)[:120]}: name the model that it was made from, as in "
            f"FILE + MODEL"
        ) from error
    missing, other = sorted(set(shapes) - set(found)), sorted(set(found) - set(shapes))
    wrong = [
        f"{name} is {list(found[name].shape)}, not {list(shape)}"
        for name, shape in shapes.items()
        if name in found and tuple(found[name].shape) != shape
    ]
    if missing or other or wrong:
        _refuse_fit(path, part, missing, other, wrong)
    return found


def _refuse_fit(path: Path, part: str, missing: list[str], other: list[str], wrong: list[str]) -> None:
    """Raise ConfigError with what does not fit: how many tensors, and the first of each kind."""

    def some(names: list[str], word: str) -> str:
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        return f"{word}{names[0][:120]}{more}" if names else ""

    reasons = ", ".join(filter(None, [some(missing, "it lacks "), some(other, "it also has "), some(wrong, "")]))
    raise _refused(
        f"model is {path.name}, which does not fit as the {part} ({reasons}): name the model that it was made from, as "
        f"in FILE + MODEL"
    )


def _assembled(kind: Any, config: Mapping[str, Any], tensors: Tensors, dtype: torch.dtype, kept: Sequence[str]) -> Any:
    """Build a class of diffusers around tensors, each in the dtype that `from_pretrained` gives it."""
    import torch
    from accelerate import init_empty_weights
    from diffusers.models.model_loading_utils import load_model_dict_into_meta

    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with init_empty_weights():
            model = kind.from_config(dict(config))
    finally:
        torch.set_default_dtype(before)
    load_model_dict_into_meta(model, tensors, dtype=dtype, keep_in_fp32_modules=list(kept), device_map={"": "cpu"})
    return model


# ---- names in files


AUTHORS_T5 = (  # Wan's authors' names -> transformers'
    (r"token_embedding\.", "shared."),
    (r"blocks\.(\d+)\.attn\.", r"encoder.block.\1.layer.0.SelfAttention."),
    (r"blocks\.(\d+)\.pos_embedding\.embedding\.", r"encoder.block.\1.layer.0.SelfAttention.relative_attention_bias."),
    (r"blocks\.(\d+)\.norm1\.", r"encoder.block.\1.layer.0.layer_norm."),
    (r"blocks\.(\d+)\.norm2\.", r"encoder.block.\1.layer.1.layer_norm."),
    (r"blocks\.(\d+)\.ffn\.gate\.0\.", r"encoder.block.\1.layer.1.DenseReluDense.wi_0."),
    (r"blocks\.(\d+)\.ffn\.fc1\.", r"encoder.block.\1.layer.1.DenseReluDense.wi_1."),
    (r"blocks\.(\d+)\.ffn\.fc2\.", r"encoder.block.\1.layer.1.DenseReluDense.wo."),
    (r"norm\.", "encoder.final_layer_norm."),
)


def encoder_names(tensors: Tensors) -> Tensors:
    """Return a text or image encoder's tensors under transformers' names."""
    if "token_embedding.weight" not in tensors:
        return tensors
    found = {}
    for name, tensor in tensors.items():
        theirs, ours = next(((one, new) for one, new in AUTHORS_T5 if re.match(one, name)), ("", ""))
        found[re.sub(theirs, ours, name, count=1) if theirs else name] = tensor
    return found


def _refused(sentence: str) -> ConfigError:
    return ConfigError.of("model", sentence)
