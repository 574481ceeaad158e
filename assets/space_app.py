"""Demo of a LoRA: write a prompt, get a video. Made by Video LoRA Workbench; change it as you like."""

# On ZeroGPU, `spaces` must be imported before anything that looks for a GPU.
try:
    import spaces
except ImportError:  # any other machine
    spaces = None

import inspect
import tempfile
from pathlib import Path

import av
import diffusers
import gradio as gr
import numpy as np
import torch
from diffusers.utils import load_image

# <facts>
TITLE, ABOUT = "A LoRA", ""
PIPELINE, BASE, REVISION = "DiffusionPipeline", "OWNER/BASE", None
PARTS = {}  # parts that stay in float32 -> their class
LORA, ALSO, TRANSFORMERS = "OWNER/LORA", None, ("transformer",)
TRIGGER, WITH_IMAGE = "", False
STEPS, GUIDANCE, FPS = 50, 6.0, 8.0
CALL = {"num_frames": 49, "height": 480, "width": 720}
EXAMPLES = []  # [prompt, first frame, seed, steps, guidance scale, video]


def prepared(pipe):
    """Change the pipeline where stock diffusers differs from training."""
    return pipe


# </facts>

HERE = Path(__file__).parent
GPU = torch.cuda.is_available()
SEEDS = 2**31 - 1
PRIVATE = (
    "The model or the LoRA cannot be read. If it is private or gated, give this Space a secret named "
    "HF_TOKEN (Settings, Variables and secrets) with read access, and restart it."
)


def loaded():
    """Load the base model's pipeline with the LoRA."""
    base = str(HERE / BASE) if (HERE / BASE).is_dir() else BASE
    kind = getattr(diffusers, PIPELINE)
    whole = {"dtype": torch.float32, "revision": REVISION}
    parts = {
        name: getattr(diffusers, one).from_pretrained(base, subfolder=name, **whole) for name, one in PARTS.items()
    }
    pipe = kind.from_pretrained(base, **parts, revision=REVISION, dtype=torch.bfloat16 if GPU else torch.float32)
    for name in TRANSFORMERS:
        into = {"load_into_transformer_2": True} if name == "transformer_2" else {}
        if hasattr(pipe, "load_lora_weights"):
            pipe.load_lora_weights(LORA, adapter_name="lora", **into)
        else:  # some pipelines leave it to their transformer
            getattr(pipe, name).load_lora_adapter(LORA, adapter_name="lora", use_safetensors=True)
    if not any("lora" in getattr(getattr(pipe, name), "peft_config", {}) for name in TRANSFORMERS):
        raise OSError(f"{LORA} holds no LoRA for {BASE}")
    if ALSO:
        from huggingface_hub import hf_hub_download
        from safetensors.torch import load_file

        for name in TRANSFORMERS:
            getattr(pipe, name).load_state_dict(load_file(hf_hub_download(LORA, ALSO)), strict=False)
    pipe = prepared(pipe)
    if not GPU:
        return pipe
    pipe.vae.enable_tiling()  # decoding a long video takes more memory than denoising
    return pipe.to("cuda")


try:
    PIPE, PROBLEM = loaded(), ""
except OSError as error:  # diffusers raises it for everything that it cannot find or read
    print(f"{type(error).__name__}: {error}", flush=True)
    PIPE, PROBLEM = None, PRIVATE


def seconds(prompt, image, seed, steps, guidance, *_):
    """Return how long to request a GPU from ZeroGPU."""
    pixels = CALL["num_frames"] * CALL["height"] * CALL["width"]
    return int(min(300, 30 + steps * (1 + pixels / 4e6)))


def generate(prompt, image, seed, steps, guidance, progress=gr.Progress()):  # noqa: B008 - Gradio looks for it here
    """Generate a video from the prompt. The same seed gives the same video."""
    if PIPE is None:
        raise gr.Error(PROBLEM)
    if not prompt.strip():
        raise gr.Error("Describe the video.")
    if WITH_IMAGE and not image:
        raise gr.Error("This model needs a first frame.")

    def report(pipe, step, timestep, tensors):
        progress((step + 1, steps), unit="steps")
        return tensors

    given = {**CALL, "image": load_image(image)} if WITH_IMAGE else CALL
    given = {**given, "guidance_scale": float(guidance), "callback_on_step_end": report}
    if hasattr(PIPE, "guider"):  # in place of the argument
        PIPE.guider.guidance_scale = float(guidance)
    known = inspect.signature(PIPE.__call__).parameters
    frames = PIPE(
        prompt=prompt,
        num_inference_steps=int(steps),
        generator=torch.Generator().manual_seed(int(seed)),
        output_type="np",
        **{name: value for name, value in given.items() if name in known},
    ).frames[0]
    return written((frames.clip(0, 1) * 255).round().astype(np.uint8))


def written(frames):
    """Write frames [F, H, W, 3] as an mp4 that plays in every browser."""
    path = Path(tempfile.mkdtemp()) / "video.mp4"
    with av.open(str(path), "w", options={"movflags": "faststart"}) as file:
        # With B frames, x264 reads uninitialized memory if a side is not a multiple of 16,
        # so the same frames give different files.
        stream = file.add_stream("libx264", rate=int(FPS), options={"crf": "14", "bf": "0"})
        stream.height, stream.width, stream.pix_fmt = *frames.shape[1:3], "yuv420p"
        for picture in frames:
            file.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        file.mux(stream.encode())
    return str(path)


if spaces is not None:
    generate = spaces.GPU(duration=seconds)(generate)

with gr.Blocks(title=TITLE) as demo:
    gr.Markdown(f"# {TITLE}\n\n{ABOUT}")
    if PROBLEM:
        gr.Markdown(f"**{PROBLEM}**")
    with gr.Row():
        with gr.Column():
            prompt = gr.Textbox(
                label="Prompt",
                lines=3,
                info=f'The trigger word is "{TRIGGER}".' if TRIGGER else "What the video shows.",
            )
            image = gr.Image(label="First frame", type="filepath", visible=WITH_IMAGE)
            with gr.Row():
                seed = gr.Slider(0, SEEDS, 0, step=1, label="Seed", info="The same seed gives the same video.")
                steps = gr.Slider(1, 100, STEPS, step=1, label="Steps", info="More is finer and slower.")
                guidance = gr.Slider(1, 15, GUIDANCE, step=0.1, label="Guidance", info="Strength of the prompt.")
            button = gr.Button("Generate", variant="primary")
        video = gr.Video(label="Video", autoplay=True, loop=True, interactive=False)
    if EXAMPLES:
        rows = [[*row[:1], row[1] and str(HERE / row[1]), *row[2:5], str(HERE / row[5])] for row in EXAMPLES]
        gr.Examples(rows, [prompt, image, seed, steps, guidance, video], label="Examples: click one to see it")
    button.click(generate, [prompt, image, seed, steps, guidance], video, api_name="generate")

if __name__ == "__main__":
    demo.queue(max_size=20).launch(show_error=True)
