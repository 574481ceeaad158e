"""Write the model cards of the tiny models: what they are, how they were trained, and their accuracy."""

from __future__ import annotations

from pathlib import Path

CARD = """---
license: apache-2.0
pipeline_tag: text-to-video
library_name: diffusers
tags: [cogvideox, miniature, synthetic]
---

# tiny-cogvideox

A CogVideoX of {parameters:.1f} million parameters with the architecture of the real ones (AutoencoderKLCogVideoX,
CogVideoXTransformer3DModel, T5EncoderModel, CogVideoX's noise schedule, v-prediction), pretrained for the Video LoRA
Workbench so that everything in it runs on a laptop CPU without a download. It generates clips of 40x40 pixels and 9
frames: one colored shape (circle, square, triangle or frame), large or small, that moves left, right, up or down over a
plain background.

```python
import torch
from diffusers import CogVideoXPipeline

pipe = CogVideoXPipeline.from_pretrained("assets/tiny-cogvideox")
video = pipe(
    "a red circle moves left on a blue background",
    num_frames=9,
    num_inference_steps={sampling_steps},
    guidance_scale={guidance:g},
    max_sequence_length=pipe.transformer.config.max_text_seq_length,
    generator=torch.Generator().manual_seed(0),
).frames[0]
```

You must pass `max_sequence_length`: the pipeline's default of 226 does not fit this model's {text_length} tokens.

## Training

    {command}

{vae_steps} steps of the VAE (batches of {vae_batch}, crops of 32x32 pixels, the last 15% on whole frames, KL weight
1e-5), {decoder_steps} steps of its decoder alone, and {transformer_steps} steps of transformer and text encoder
together (batches of {transformer_batch}; {training_combinations} combinations of shape, color, motion and background,
{renditions} clips of each, and {small_renditions} with a small shape; 10% of the captions dropped; moving average of
the weights). All clips come from the generator in `assets/tiny_world.py`; no other data was used.
Transformer and VAE are stored in fp16 and load in fp32.
{note}
## Accuracy

An automatic check (`assets/tiny_check.py`) names the background, color, shape and direction of motion of a clip.

| | background | color | shape | motion | all four |
|---|---|---|---|---|---|
{rows}

PSNR of the reconstructions: {known_psnr:.1f} dB (known shapes), {new_psnr:.1f} dB (new shapes). Prompts: the {prompts}
combinations that never occurred in training, {sampling_steps} steps, guidance {guidance:g}. The VAE blurs
small shapes, so the check may take them for other shapes.
`python benchmarks/tiny_model_accuracy.py` repeats the measurement.

## Limitations

It does not know striped backgrounds, rings and crosses: the VAE has seen them, the transformer has not. They are for
LoRAs to teach (`assets/demo_clips` teaches stripes). The VAE blunts the points of stars, so do not teach those. Words
that are not in the captions have ids and random embeddings.
"""


IMAGE_CARD = """---
license: apache-2.0
pipeline_tag: image-to-video
library_name: diffusers
tags: [cogvideox, miniature, synthetic]
---

# tiny-cogvideox-i2v

The image-to-video sibling of `assets/tiny-cogvideox`: a CogVideoX of {parameters:.1f} million parameters that
continues a first frame of 40x40 pixels for 9 frames, following a caption. VAE, text encoder, tokenizer and scheduler
are the sibling's and are stored there (`shared_parts.json`); the transformer was trained from the sibling's weights.

```python
import torch
from diffusers import CogVideoXImageToVideoPipeline, CogVideoXPipeline, CogVideoXTransformer3DModel
from PIL import Image

sibling = CogVideoXPipeline.from_pretrained("assets/tiny-cogvideox")
transformer = CogVideoXTransformer3DModel.from_pretrained("assets/tiny-cogvideox-i2v", subfolder="transformer")
pipe = CogVideoXImageToVideoPipeline(**{{**sibling.components, "transformer": transformer}})
video = pipe(
    image=Image.open("frame.png"),
    prompt="a red circle moves left on a blue background",
    num_frames=9,
    num_inference_steps={sampling_steps},
    guidance_scale={guidance:g},
    max_sequence_length=pipe.transformer.config.max_text_seq_length,
    generator=torch.Generator().manual_seed(0),
).frames[0]
```

## Training

    {command}

The sibling's `patch_embed.proj` was widened with zeros, then {image_steps} steps of the transformer alone (batches of
{transformer_batch}; {training_combinations} combinations of shape, color, motion and background, {renditions} clips of
each, and {small_renditions} with a small shape; moving average of the weights). The condition of the first latent
frame is the clip's first frame, noised by exp(N(-3, 0.5)), which is sampled at each step, and encoded alone; the others
are zeros. 5% of the images and 10% of the captions were dropped. All clips come from the generator in
`assets/tiny_world.py`; no other data was used.
Transformer and VAE are stored in fp16 and load in fp32.
{note}
## Accuracy

The sibling's automatic check, on clips sampled from the first frames of {prompts} clips whose combinations never
occurred in training, {sampling_steps} steps, guidance {guidance:g}. More guidance makes the first frame less accurate,
because it moves away from what the caption does not say.

| | background | color | shape | motion | all four |
|---|---|---|---|---|---|
{rows}

PSNR of the sampled first frame against the given one: {sampled_psnr:.1f} dB; the VAE alone reaches {vae_psnr:.1f} dB.
`python benchmarks/tiny_model_accuracy.py --model assets/tiny-cogvideox-i2v` repeats the measurement.

## Limitations

A shape starts at one side and crosses the middle, so the first frame tells nearly as much as the caption; the second
row of the table shows how much. The model has never seen a shape shrink or fade, a striped background or a ring. Those
are for LoRAs to teach.
"""


PHENAKI_CARD = """---
license: apache-2.0
pipeline_tag: text-to-video
tags: [phenaki, miniature, synthetic]
---

# tiny-phenaki

A Phenaki of {parameters:.1f} million parameters: a causal C-ViViT with finite scalar quantization turns 9 frames of
40x40 pixels into 125 codes of 1,024 kinds, and a MaskGit with a self-critic fills codes in from a caption. It was
pretrained for the Video LoRA Workbench so that the family can be tried on a laptop CPU without a download. Text
encoder and tokenizer are copied from `assets/tiny-cogvideox`. It generates one colored shape (circle, square, triangle
or frame) that moves left, right, up or down over a plain background.

    workbench sample --model tiny-phenaki "a red circle moves left on a blue background"

```python
import torch
from workbench.families import find_model
from workbench.families.denoising import DenoiseInputs, Guidance

family, model = find_model("tiny-phenaki")
folder, cpu = family.fetch(model), torch.device("cpu")
text_encoder = family.load_text_encoder(folder, cpu, torch.float32)
inputs = DenoiseInputs(
    folder,
    text=family.encode_text(text_encoder, ["a red circle moves left on a blue background"]),
    negative_text=family.encode_text(text_encoder, [""]),
    latents_shape=family.latents_shape(folder, 9, 40, 40),
    steps={sampling_steps},
    guidance=Guidance({guidance:g}),
    noise=torch.Generator().manual_seed(0),
)
codes = family.denoise(family.load_transformer(folder, cpu, torch.float32), inputs)
video = family.decode(family.load_vae(folder, cpu, torch.float32), codes)  # [1, 3, 9, 40, 40] in [-1, 1]
```

## Training

    {command}

{tokenizer_steps} steps of the tokenizer (batches of {tokenizer_batch}; known and new shapes, {striped:.0%} of the clips
striped), then {transformer_steps} steps of the transformer on the frozen tokenizer's codes (batches of
{transformer_batch}; {training_combinations} combinations of shape, color, motion and background, {renditions} clips of
each; 10% of the captions dropped; moving average of the weights), the last {critic_part:.0%} of them together with the
self-critic. All clips come from the generator in `assets/tiny_world.py`; no other data was used. Weights are stored in
fp16 and load in fp32.
{note}
## Accuracy

The automatic check of tiny-cogvideox (`assets/tiny_check.py`) names the background, color, shape and direction of
motion of a clip.

| | background | color | shape | motion | all four |
|---|---|---|---|---|---|
{rows}

PSNR of the reconstructions: {known_psnr:.1f} dB (known shapes), {new_psnr:.1f} dB (new shapes). {stripes:.0%} of the
striped backgrounds come back striped. Prompts: the {prompts} combinations that never occurred in training,
{sampling_steps} steps, guidance {guidance:g}.

## Limitations

It does not know striped backgrounds, rings and crosses: the tokenizer has seen them, the transformer has not. A LoRA
can teach it stripes (docs/phenaki.md). It often confuses shapes, as the table shows, because one code covers 8x8
pixels of two frames.
"""


WAN_CARD = """---
license: apache-2.0
pipeline_tag: text-to-video
library_name: diffusers
tags: [wan, miniature, synthetic]
---

# tiny-wan

A Wan of {parameters:.1f} million parameters with the architecture of Wan 2.1 (AutoencoderKLWan, WanTransformer3DModel,
UMT5EncoderModel, flow matching with a shift of {shift:g}), pretrained for the Video LoRA Workbench so that everything
in it runs on a laptop CPU without a download. It generates clips of 64x64 pixels and 9 frames: one colored shape
(circle, square, triangle or frame), large or small, that moves left, right, up or down over a plain background. It
shows how Wan is trained and sampled, not how good Wan is.

Two siblings share its weights and have more input channels: `tiny-wan-i2v` takes a first frame, a last one or both, and
`tiny-wan-control` also follows a control video.

```python
import torch
from diffusers import WanPipeline

pipe = WanPipeline.from_pretrained("assets/tiny-wan")
video = pipe(
    "a red circle moves left on a blue background",
    negative_prompt="",
    height=64,
    width=64,
    num_frames=9,
    num_inference_steps={sampling_steps},
    guidance_scale={guidance:g},
    max_sequence_length={text_length},
    generator=torch.Generator().manual_seed(0),
).frames[0]
```

You must pass `max_sequence_length`: the model was trained with captions of {text_length} tokens, padding included.

## Training

    {command}

{vae_steps} steps of the VAE (batches of {vae_batch}, random crops of {crop}x{crop} pixels that show a shape, the last
{whole_part:.0%} on whole clips; crops with less detail weigh more; KL weight 1e-5) and
{decoder_steps} of its decoder alone. Then {transformer_steps} steps of transformer and text encoder together (batches
of {transformer_batch}; {training_combinations} combinations of shape, color, motion and background, {renditions} clips
of each, and {small_renditions} with a small shape; 10% of the captions dropped; moving average of the weights), with
52 input channels. Inputs besides the caption: {told}.
All clips come from the generator in `assets/tiny_world.py`; no other data was used. Transformer and VAE are stored in
fp16 and load in fp32.
{note}
## Accuracy

The automatic check of tiny-cogvideox (`assets/tiny_check.py`) names the background, color, shape and direction of
motion.

| | background | color | shape | motion | all four |
|---|---|---|---|---|---|
{rows}

PSNR of the reconstructions: {known_psnr:.1f} dB (known shapes), {new_psnr:.1f} dB (new shapes). Prompts: {prompts}
combinations that never occurred in training, {sampling_steps} steps, guidance {guidance:g}; with a small shape
{small:.0%} are right in all four. Clips between a given first and last frame, without guidance, reproduce them with
{first:.1f} and {last:.1f} dB.

## Limitations

It does not know striped backgrounds, rings and crosses: the VAE has seen them, the transformer has not. They are for
LoRAs to teach (`assets/demo_clips` teaches stripes). Words that are not in the captions have ids and random embeddings.
"""


WAN_SIBLING_CARD = """---
license: apache-2.0
pipeline_tag: image-to-video
library_name: diffusers
tags: [wan, miniature, synthetic]
---

# {name}

{what} This folder holds only the first layer of its transformer. Everything else comes from `assets/tiny-wan`, as
`shared_parts.json` says. The workbench reads both; stock diffusers loads the folder that `whole_folder` builds.

```python
from diffusers import WanImageToVideoPipeline
from workbench.families import find_model

pipe = WanImageToVideoPipeline.from_pretrained(find_model("{name}").whole_folder())
```

[The card of tiny-wan](../tiny-wan/README.md) describes training and accuracy.
"""
WAN_SIBLINGS = {
    "-i2v": """The image-to-video sibling of `assets/tiny-wan`: with 36 input channels like Wan's image-to-video models,
it takes a first frame, a last one, both, or any others.""",
    "-control": """The sibling of `assets/tiny-wan` with the 52 input channels of Wan 2.2 Fun-Control: it follows a
control video of edges and also takes frames. diffusers has no pipeline with a control video for it; use
`workbench sample --control`.""",
}


def row(title: str, report: dict[str, float], prefix: str = "") -> str:
    """Return a line of the accuracy table."""
    shares = [report[f"{prefix}{part}"] for part in ("background", "colour", "shape", "motion", "all")]
    return f"| {title} | " + " | ".join(f"{share:.0%}" for share in shares) + " |"


def write_card(
    folder: Path,
    facts: dict[str, object],
    vae: dict[str, float],
    prompts: dict[str, float],
    small: dict[str, float],
) -> None:
    """Write the text-to-video card from the reports of the VAE, of prompts, and of prompts for small shapes."""
    rows = [
        row("known shapes through the VAE and back", vae, "known "),
        row("new shapes (ring, cross) through the VAE and back", vae, "new "),
        row("small shapes through the VAE and back", vae, "small "),
        row("sampled from prompts not seen in training", prompts),
        row("the same with a small shape", small),
    ]
    text = CARD.format(rows="\n".join(rows), known_psnr=vae["known PSNR"], new_psnr=vae["new PSNR"], **facts)
    (folder / "README.md").write_text(text, encoding="utf-8")
    (folder / "README.md").chmod(0o644)


def write_image_card(
    folder: Path, facts: dict[str, object], captioned: dict[str, float], alone: dict[str, float]
) -> None:
    """Write the image-to-video card. `captioned` and `alone` are reports with and without captions."""
    rows = [row("first frame and caption", captioned), row("first frame, empty caption", alone)]
    psnr = {"sampled_psnr": captioned["first frame PSNR"], "vae_psnr": captioned["first frame PSNR, VAE"]}
    (folder / "README.md").write_text(IMAGE_CARD.format(rows="\n".join(rows), **psnr, **facts), encoding="utf-8")
    (folder / "README.md").chmod(0o644)


def write_phenaki_card(
    folder: Path, facts: dict[str, object], tokenizer: dict[str, float], prompts: dict[str, float]
) -> None:
    """Write the card of tiny-phenaki from the reports of its tokenizer and prompts."""
    rows = [
        row("known shapes through the tokenizer and back", tokenizer, "known "),
        row("new shapes (ring, cross) through the tokenizer and back", tokenizer, "new "),
        row("generated from prompts not seen in training", prompts),
    ]
    psnr = {"known_psnr": tokenizer["known PSNR"], "new_psnr": tokenizer["new PSNR"]}
    text = PHENAKI_CARD.format(rows="\n".join(rows), stripes=tokenizer["stripes"], **psnr, **facts)
    (folder / "README.md").write_text(text, encoding="utf-8")
    (folder / "README.md").chmod(0o644)


def write_wan_cards(folder: Path, facts: dict[str, object], vae: dict[str, float], prompts: dict[str, float]) -> None:
    """Write the cards of tiny-wan and its two siblings from the reports of its VAE and prompts."""
    rows = [
        row("known shapes through the VAE and back", vae, "known "),
        row("new shapes (ring, cross) through the VAE and back", vae, "new "),
        row("small shapes through the VAE and back", vae, "small "),
        row("sampled from prompts not seen in training", prompts),
    ]
    ends = {name: prompts[name] for name in ("small", "first", "last")}
    text = WAN_CARD.format(
        rows="\n".join(rows), known_psnr=vae["known PSNR"], new_psnr=vae["new PSNR"], **ends, **facts
    )
    cards = {folder: text}
    for suffix, what in WAN_SIBLINGS.items():
        sibling = folder.with_name(folder.name + suffix)
        cards[sibling] = WAN_SIBLING_CARD.format(name=f"tiny-wan{suffix}", what=what)
    for place, card in cards.items():
        (place / "README.md").write_text(card, encoding="utf-8")
        (place / "README.md").chmod(0o644)
