"""oneDNN computes what conv3d does, for small inputs, too, and the built-in autoencoders take it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from workbench.families import find_model
from workbench.memory.cpu_convolutions import OneDNNConvolutions, faster_convolutions

pytestmark = pytest.mark.skipif(
    not torch.backends.cpu.get_cpu_capability().startswith("AVX"), reason="oneDNN is used on x86 only"
)
CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "padded": {"padding": 1},
    "strided": {"stride": (1, 2, 2), "padding": (0, 1, 1)},
    "dilated": {"dilation": (2, 1, 1)},
    "in groups": {"groups": 2},
    "without bias": {"bias": False},
    "one pixel": {"kernel_size": 1},
    "time only": {"kernel_size": (3, 1, 1)},
    "padding in words": {"padding": "same"},
    "replicated": {"padding": 1, "padding_mode": "replicate"},
}


class Convolutions(TorchDispatchMode):
    """Lists the operators that compute convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if "convolution" in str(func):
            self.names.append(str(func))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("batch", [1, 2])
def test_the_result_is_that_of_conv3d(case: str, batch: int) -> None:
    torch.manual_seed(0)
    layer = torch.nn.Conv3d(4, 6, **{"kernel_size": 3, **CASES[case]})
    clips = torch.randn(batch, 7, 4, 10, 12).transpose(1, 2)[..., 1:-1]  # with gaps in memory
    with torch.no_grad():
        expected = layer(clips)
        with OneDNNConvolutions():
            found = layer(clips)
    assert found.shape == expected.shape
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_other_inputs_are_left_to_torch() -> None:
    layer = torch.nn.Conv3d(4, 6, 3)
    for clips, model in (
        (torch.randn(4, 5, 8, 8), layer),  # no batch
        (torch.randn(1, 4, 5, 8, 8).double(), torch.nn.Conv3d(4, 6, 3).double()),
        (torch.randn(1, 4, 5, 8, 8, device="meta"), torch.nn.Conv3d(4, 6, 3, device="meta")),
    ):
        with torch.no_grad(), Convolutions() as seen, OneDNNConvolutions():
            model(clips)
        assert seen.names == ["aten.convolution.default"]
    with FakeTensorMode(), OneDNNConvolutions():
        assert torch.nn.Conv3d(4, 6, 3)(torch.randn(1, 4, 5, 8, 8)).shape == (1, 6, 3, 6, 6)


def test_only_models_on_the_cpu_are_given_it() -> None:
    assert isinstance(faster_convolutions(torch.nn.Conv3d(1, 1, 3)), OneDNNConvolutions)
    assert not isinstance(faster_convolutions(torch.nn.Conv3d(1, 1, 3, device="meta")), OneDNNConvolutions)


@pytest.mark.parametrize("name", ["tiny-cogvideox", "tiny-wan"])
def test_the_built_in_autoencoders_take_it_and_make_the_same(name: str) -> None:
    family, model = find_model(name)
    folder = Path(model.source)
    vae = family.load_vae(folder, torch.device("cpu"), torch.float32)
    torch.manual_seed(0)
    clip = torch.rand(1, 3, model.frames, model.height, model.width) * 2 - 1
    with Convolutions() as encoding:
        latents = family.encode_video(vae, clip)["mean"]
    with Convolutions() as decoding:
        video = family.decode(vae, latents)
    for seen in (encoding, decoding):
        assert seen.names.count("aten.mkldnn_convolution.default") > 10
    with torch.no_grad():
        plain = family.channels_first(vae.encode(clip).latent_dist.mode())
        if name == "tiny-wan":
            mean, std = family.latent_scale(vae)
            plain = (plain - mean) / std
            decoded = vae.decode(latents * std + mean).sample
        else:
            plain = plain * vae.config.scaling_factor
            decoded = vae.decode(family.channels_first(latents) / vae.config.scaling_factor).sample
    torch.testing.assert_close(latents, plain, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(video, decoded.clamp(-1, 1), rtol=1e-4, atol=1e-5)
