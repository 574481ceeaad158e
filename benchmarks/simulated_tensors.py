"""Tensors that report cuda but keep their values on the CPU, and the errors a card would raise (see simulated_gpu)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from simulated_gpu import BLOCKING_UPLOAD, FEW, FLOAT32, FLOAT64, ROUND_TRIP, UNPINNED, Watch
from torch._decomp import decomposition_table
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

aten = torch.ops.aten
# Their result's size or value is needed by the processor.
WAITS = {"_local_scalar_dense", "nonzero", "masked_select", "equal", "_unique2", "unique_dim", "unique_consecutive"}
INDEXING = {"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index", "_unsafe_index_put"}
COPIES = {"_to_copy", "copy_", "copy"}  # between devices
MOVES = COPIES | {"detach", "clone", "view", "alias", "slice", "empty_like", "_unsafe_view", "expand", "unsqueeze"}
PRODUCTS = {"mm", "addmm", "bmm", "baddbmm", "convolution", "convolution_backward"}
ALIGNED = 8  # values; what the attention's kernels ask of a head's width in half precision
SMALL_PRODUCT = 1 << 12  # values that it reads; below, fp32 costs nothing, as in the embeddings of timesteps


class OnGpu(torch.Tensor):
    """A tensor on cuda:0 whose values are those of `held`, a CPU tensor."""

    held: torch.Tensor

    @staticmethod
    def __new__(cls, held: torch.Tensor) -> OnGpu:
        made: OnGpu = torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls,
            held.size(),
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            layout=held.layout,
            device="cuda:0",
        )
        made.held = held
        return made

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return f"OnGpu({self.held})"

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.tolist:  # torch refuses it for subclasses
            return args[0].cpu().tolist()
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return compute(func, args, kwargs or {})


class Functions(TorchFunctionMode):
    """Support what bypasses operators: shared memory and `tensor.data = value`."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        setter = torch.Tensor.data.__set__  # type: ignore[attr-defined]
        if func == setter and any(isinstance(one, OnGpu) for one in args):
            return replace(*args)
        if func is torch.Tensor.untyped_storage and isinstance(args[0], OnGpu):
            return args[0].held.untyped_storage()
        return func(*args, **(kwargs or {}))


def replace(tensor: torch.Tensor, value: torch.Tensor) -> None:
    """Assign `tensor.data` when either side is on the card; the Python object stays the same."""
    made = value.detach()
    if isinstance(tensor, torch.nn.Parameter):
        made = torch.nn.Parameter(made, requires_grad=False)
    made.requires_grad_(tensor.requires_grad)
    if tensor.grad is not None and tensor.grad.device == made.device:
        made.grad = tensor.grad
    for name, attribute in tensor.__dict__.items():
        if name not in ("held", "_is_param"):
            setattr(made, name, attribute)
    torch.utils.swap_tensors(tensor, made)


class Operations(TorchDispatchMode):
    """Intercept factory functions. Operators on tensors of the card are dispatched by the tensors themselves."""

    watch: Watch = Watch()

    def __init__(self, watch: Watch) -> None:
        super().__init__()
        Operations.watch = watch

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return compute(func, args, kwargs or {})


def compute(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Compute one operator on the CPU, as if the tensors were on a card. Raises what a card would raise."""
    tensors = list(_tensors((*args, *kwargs.values())))
    on_gpu = [tensor for tensor in tensors if isinstance(tensor, OnGpu)]
    named = None if kwargs.get("device") is None else torch.device(kwargs["device"]).type
    if not on_gpu and named != "cuda":
        return func(*args, **kwargs)
    name = func.overloadpacket.__name__
    if name == "record_stream":
        return None
    if name == "is_pinned":
        return False
    _refuse_mixed(name, tensors, args)
    watch, pinned = Operations.watch, _pinned(name, args)
    _notice(watch, name, args, kwargs, tensors, named, pinned)
    held_args, held_kwargs = _held(args), {key: _held(value) for key, value in kwargs.items()}
    if named is not None:
        held_kwargs["device"] = torch.device("cpu")
    try:
        found = KERNELS.get(name, func)(*held_args, **held_kwargs)
    except NotImplementedError:  # only CUDA has a kernel for it
        found = decomposition_table[func](*held_args, **held_kwargs)
    if found is held_args[0] and name == "_to_copy":
        found = found.clone()
    owners = {id(tensor.held): tensor for tensor in on_gpu}
    stays = named == "cpu" or (name == "copy_" and not isinstance(args[0], OnGpu))

    def made(one: torch.Tensor) -> torch.Tensor:
        owner = owners.get(id(one))
        if owner is None:
            return one if stays else OnGpu(one)
        assert owner.shape == one.shape, f"{name} changes a tensor's shape in place, which is not simulated"
        return owner

    result = made(found) if isinstance(found, torch.Tensor) else tree_map_only(torch.Tensor, made, found)
    for one in _tensors((result,)):
        if isinstance(one, OnGpu) and one.dtype == torch.float64 and one.numel() > FEW and name not in MOVES:
            watch.note(FLOAT64, name)
    return result


def _tensors(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)


def _held(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return type(value)(_held(one) for one in value)
    return value.held if isinstance(value, OnGpu) else value


# ---- what a card refuses, and what is noted


def _refuse_mixed(name: str, tensors: Sequence[torch.Tensor], args: tuple[Any, ...]) -> None:
    """Refuse tensors on two devices, except in copies, as indices, or as CPU scalars."""
    if name in COPIES or len({tensor.device.type for tensor in tensors}) < 2:
        return
    first = args[0] if isinstance(args[0], torch.Tensor) else None
    if name in INDEXING and isinstance(first, OnGpu):
        values = args[2:3] if name.startswith("index_put") else ()
        if all(isinstance(one, OnGpu) or one.ndim == 0 for one in values if isinstance(one, torch.Tensor)):
            return
    strict = name.startswith("_fused")
    on_host = [one for one in tensors if one.device.type == "cpu" and (strict or one.ndim > 0)]
    written = name.endswith("_") and not name.startswith("_") and first is not None and not isinstance(first, OnGpu)
    if on_host or written:
        raise RuntimeError(
            f"Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu! "
            f"({name} of {', '.join(f'{one.device} {tuple(one.shape)}' for one in tensors[:4])})"
        )


def _pinned(name: str, args: tuple[Any, ...]) -> bool:
    """Whether the host side of a copy is pinned memory."""
    host = next((one for one in args if isinstance(one, torch.Tensor) and not isinstance(one, OnGpu)), None)
    return host is not None and host.is_pinned()


def _notice(
    watch: Watch,
    name: str,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    tensors: Sequence[torch.Tensor],
    named: str | None,
    pinned: bool,
) -> None:
    if name in COPIES:
        source = args[1] if name == "copy_" else args[0]
        target = args[0].device.type if name == "copy_" else named or source.device.type
        if source.device.type == target:
            return
        later = kwargs.get("non_blocking", False) or (name == "copy_" and len(args) > 2 and args[2])
        if later:
            if not pinned and source.device.type == "cpu":
                watch.note(UNPINNED, name)
        elif watch.in_step:
            watch.note(ROUND_TRIP if target == "cpu" else BLOCKING_UPLOAD, name)
    elif watch.in_step and (name in WAITS or _waits_for_indices(name, args)):
        watch.note(ROUND_TRIP, name)
    elif watch.half and (name in PRODUCTS or "attention" in name):
        floats = [one for one in tensors if one.dtype == torch.float32]
        if name == "bmm" and any(size % ALIGNED for one in floats for size in one.shape[1:]):
            return  # attention of a miniature whose heads no kernel takes; real heads have a width of 64 or 128
        if len(floats) > 1 and max(one.numel() for one in floats) >= SMALL_PRODUCT:
            watch.note(FLOAT32, name)


def _waits_for_indices(name: str, args: tuple[Any, ...]) -> bool:
    if name not in INDEXING or not isinstance(args[0], OnGpu):
        return False
    indices = [one for one in args[1] if one is not None]
    return any(one.dtype in (torch.bool, torch.uint8) or one.device.type == "cpu" for one in indices)


# ---- the card's attention, by the processor's


def _flash(query: Any, key: Any, value: Any, dropout: float = 0.0, causal: bool = False, *_: Any, **more: Any) -> Any:
    out, sums = aten._scaled_dot_product_flash_attention_for_cpu(query, key, value, dropout, causal, **more)
    empty = query.new_empty(0, dtype=torch.int64)
    return out, sums, empty, empty, query.shape[2], key.shape[2], empty, empty, query.new_empty(0)


def _cudnn(
    query: Any,
    key: Any,
    value: Any,
    bias: Any,
    sums: bool,
    dropout: float = 0.0,
    causal: bool = False,
    *_: Any,
    **m: Any,
) -> Any:
    return _flash(query, key, value, dropout, causal, attn_mask=bias, **m)


def _efficient(
    query: Any, key: Any, value: Any, bias: Any, sums: bool, dropout: float = 0.0, causal: bool = False, **more: Any
) -> Any:
    found = _flash(query, key, value, dropout, causal, attn_mask=bias, **more)
    return found[0], found[1], found[2], found[3]


def _flash_back(g: Any, q: Any, k: Any, v: Any, out: Any, sums: Any, *more: Any, **scale: Any) -> Any:
    return _back(g, q, k, v, out, sums, more[4], more[5], None, **scale)


def _cudnn_back(g: Any, q: Any, k: Any, v: Any, out: Any, sums: Any, *more: Any, **scale: Any) -> Any:
    return _back(g, q, k, v, out, sums, more[7], more[8], more[2], **scale)


def _efficient_back(g: Any, q: Any, k: Any, v: Any, bias: Any, out: Any, sums: Any, *more: Any, **scale: Any) -> Any:
    causal = more[4] if len(more) > 4 else False
    return (*_back(g, q, k, v, out, sums, more[2], causal, bias, **scale), None)


def _back(
    g: Any, q: Any, k: Any, v: Any, out: Any, sums: Any, dropout: float, causal: bool, bias: Any, **scale: Any
) -> Any:
    return aten._scaled_dot_product_flash_attention_for_cpu_backward(
        g, q, k, v, out, sums, dropout, causal, attn_mask=bias, **scale
    )


KERNELS: dict[str, Any] = {
    "_scaled_dot_product_flash_attention": _flash,
    "_scaled_dot_product_flash_attention_backward": _flash_back,
    "_scaled_dot_product_cudnn_attention": _cudnn,
    "_scaled_dot_product_cudnn_attention_backward": _cudnn_back,
    "_scaled_dot_product_efficient_attention": _efficient,
    "_scaled_dot_product_efficient_attention_backward": _efficient_back,
}
