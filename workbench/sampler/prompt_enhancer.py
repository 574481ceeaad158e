"""Prompt enhancement: a language model writes a long prompt from a short one, in the background. No torch.

    samples/.prompting/             a job folder (workbench.jobs); config.json holds PromptSettings
      request.json                  {prompt, model, image}: the short prompt, and the video model it is for
      result.json                   {prompt, tokens, limit}: the long prompt
      accepted.jsonl                lines {prompt, short, time}: prompts that were used, possibly after edits

Video models are trained on long captions and follow long prompts better. The user starts the enhancement, and reads the
prompt before it is used. `python -m workbench.sampler.prompt_enhancer FOLDER` is the job.
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from workbench import jobs
from workbench.captioners.base import CaptionerSettings, CaptionFailed, whole_sentences
from workbench.captioners.endpoint import Endpoint
from workbench.captioners.keys import handed_over
from workbench.errors import ConfigError, ModelUnavailable, OutOfMemory
from workbench.families import find_model
from workbench.jobs import processes, queue
from workbench.jobs.devices import Device, DeviceChoice, pick_device
from workbench.sampler.inputs import read_picture
from workbench.sampler.settings import SampleSettings
from workbench.settings import Settings, field
from workbench.workspace import Workspace, append_line, make_folder, named_paths, read_json, write_json
from workbench.workspace.records import read_json_lines

MODULE = "workbench.sampler.prompt_enhancer"
FOLDER, REQUEST, ACCEPTED = ".prompting", "request.json", "accepted.jsonl"
WHICH, SERVER, LOCAL, REQUEST_SECTION = "Prompt enhancer", "Server", "On this machine", "Request"
TITLE, GPU_TIMEOUT = "the prompt enhancer", 30.0  # seconds to wait for the GPU
FILES = ("*.json", "*.safetensors", "*.jinja", "*.txt", "*.model")
PICTURE_SIDE = 512  # pixels of the first frame sent to a server
THOUGHT = re.compile(r"<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)", re.DOTALL | re.IGNORECASE)
LABEL = re.compile(r"^(?:(?:video|final|extended|long) )?(?:prompt|caption|description)\s*:\s*", re.IGNORECASE)
QUOTES = "\"'`“”„«»*"
PICTURE = "The picture is the video's first frame: describe it as it is, and what happens from there.\n"
INSTRUCTION = """\
Rewrite the idea below as one prompt for a model that generates a video of a few seconds in a single take.
Write one paragraph of 80 to 130 English words, in whole sentences and in the present tense, like a caption by \
somebody who has watched that video. Say who or what is seen and how it looks (shape, color, material, clothes), what \
it does from beginning to end, what surrounds it, where the light comes from and what mood it gives, how the camera \
stands or moves, and the style of the picture.
Keep everything the idea says, its unusual words and names letter by letter. Add only what fits it and can be seen: no \
sounds, no thoughts, no cuts to other scenes, no text on the screen.
Answer with the paragraph alone.
{picture}
The idea: {prompt}"""


class PromptSettings(Settings):
    """Which language model enhances prompts, and how it is called; samples/.prompting/config.json."""

    enhancer: Literal["endpoint", "local"] = field("endpoint", title="Prompt enhancer", section=WHICH)
    """Where the language model runs. endpoint: on a server that speaks OpenAI's protocol, on this machine or elsewhere.
    local: the workbench loads it itself."""

    base_url: str = field("", title="Address", section=SERVER)
    """For endpoint: the server's address, such as http://localhost:11434/v1. The prompt is sent there."""

    endpoint_model: str = field("", title="Remote model name", section=SERVER)
    """For endpoint: the name of the model on the server."""

    local_model: str = field("", title="Language model", section=LOCAL, path=True)
    """For local: OWNER/NAME of an instruction-tuned model on the Hub, which is downloaded once, or a folder in
    transformers' layout."""

    key_variable: str = field("OPENAI_API_KEY", title="API key variable", section=SERVER, advanced=True)
    """For endpoint: the environment variable with the API key. The key itself is never a setting. It is sent only to
    the host that WORKBENCH_KEY_HOSTS names for it (OPENAI_API_KEY: api.openai.com). If the variable is not set, the
    system's keyring is used. Most servers on this machine need no key."""

    show_picture: bool = field(False, title="Send the first frame", section=SERVER, advanced=True)
    """For endpoint: send the first frame with the prompt, if the model accepts pictures."""

    timeout_seconds: float = field(
        120.0, title="Timeout", section=SERVER, unit="seconds", low=0.1, high=3600, advanced=True
    )
    """For endpoint: how long to wait for the answer."""

    device: DeviceChoice = field("auto", title="Device", section=LOCAL, source="devices", advanced=True)
    """For local: the device to compute on. A GPU is used once the sampler has released it."""

    instruction: str = field(INSTRUCTION, title="Instruction", section=REQUEST_SECTION, lines=6, advanced=True)
    """The instruction to the language model. {prompt} stands for the short prompt."""

    longest_answer: int = field(
        600, title="Longest answer", section=REQUEST_SECTION, unit="tokens", low=16, high=4096, advanced=True
    )
    """The maximum number of tokens in the answer, including reasoning. A prompt that is too long for the video model
    is cut back to whole sentences."""


@dataclass(frozen=True)
class EnhancedPrompt:
    """An enhanced prompt. tokens: its length; limit: the video model's maximum; None if not known"""

    prompt: str
    short: str
    tokens: int | None = None
    limit: int | None = None


# ---- starting the job and reading its result


def folder_of(workspace: Workspace) -> Path:
    return workspace.samples / FOLDER


def write(workspace: Workspace, settings: PromptSettings, sample: SampleSettings) -> jobs.Status:
    """Start enhancing the prompt of a sample, in the background. Raises ConfigError, CannotWrite.

    If the prompt was itself enhanced, start from the short prompt it came from.
    """
    folder, short = folder_of(workspace), sample.prompt.strip()
    short = shorts(workspace).get(short, short)
    if jobs.status(folder).state.alive:
        raise ConfigError("a prompt is being written: wait for it, or stop it")
    if not short:
        raise ConfigError("the prompt is empty: say in a few words what the video shows")
    if "{prompt}" not in settings.instruction:
        raise ConfigError.of(
            "instruction", "instruction has no {prompt}, which stands for your prompt: put it where the prompt belongs"
        )
    _ = sample.resolved  # refuse an unknown model now
    image = str(named_paths.resolve(sample.image, "image")) if sample.image else ""
    if settings.enhancer == "endpoint":
        Endpoint(captioning(settings), workspace).check()
    elif not settings.local_model.strip():
        raise ConfigError.of(
            "local_model", "local_model is empty: give OWNER/NAME of a language model on the Hub, or a folder with one"
        )
    settings.save(folder / jobs.CONFIG)
    write_json(folder / REQUEST, {"prompt": short, "model": sample.model, "image": image})
    variable = settings.key_variable if settings.enhancer == "endpoint" else ""
    with handed_over(variable, settings.base_url) as secrets:
        return queue.submit(workspace, folder, MODULE, **secrets)  # the job downloads first, then waits for a GPU


def status(workspace: Workspace) -> jobs.Status:
    return jobs.status(folder_of(workspace))


def stop(workspace: Workspace) -> None:
    """Stop writing at once. Raises CannotWrite."""
    jobs.kill(folder_of(workspace))


def settings_of(workspace: Workspace) -> PromptSettings:
    return PromptSettings.load_or_default(folder_of(workspace) / jobs.CONFIG)


def written(workspace: Workspace) -> EnhancedPrompt | None:
    """Return the last enhanced prompt, or None."""
    with contextlib.suppress(ConfigError):
        result = jobs.result(folder_of(workspace))
        if result.get("prompt"):
            return EnhancedPrompt(
                result["prompt"], str(result.get("short", "")), result.get("tokens"), result.get("limit")
            )
    return None


def take(workspace: Workspace, text: str, prompt: str) -> str:
    """Accept an enhanced prompt, possibly edited, in place of `prompt`, and record where it came from.

    Raises ConfigError, CannotWrite.
    """
    text, found = text.strip(), written(workspace)
    if not text:
        raise ConfigError("the written prompt is empty: write one first")
    line = {"prompt": text, "short": found.short if found else prompt, "time": time.time()}
    make_folder(folder_of(workspace))
    append_line(folder_of(workspace) / ACCEPTED, json.dumps(line, ensure_ascii=False))
    return text


def shorts(workspace: Workspace) -> dict[str, str]:
    """Return a dict from each accepted prompt to the short prompt it came from."""
    records = read_json_lines(folder_of(workspace) / ACCEPTED)
    return {str(one["prompt"]): str(one["short"]) for one in records if "prompt" in one and "short" in one}


def captioning(settings: PromptSettings) -> CaptionerSettings:
    """Return the settings for the captioner `endpoint`, which calls the server."""
    names = ("base_url", "endpoint_model", "key_variable", "timeout_seconds", "longest_answer")
    return CaptionerSettings(captioner="endpoint").changed(**{name: getattr(settings, name) for name in names})


# ---- the job


def enhance(job: jobs.Job) -> None:
    """Write the prompt that the job's folder requests, with a local model or through the captioner `endpoint`."""
    folder, workspace = job.folder, Workspace.of(job.folder)
    settings, request = PromptSettings.load(folder / jobs.CONFIG), read_json(folder / REQUEST)
    job.beat("writing the prompt", patient=True)
    instruction = settings.instruction.replace("{prompt}", request["prompt"])
    if settings.enhancer == "endpoint":
        answer = _by_server(settings, workspace, instruction, request["image"])
    else:
        device, model = pick_device(settings.device), _fetched(settings.local_model.strip())
        with queue.acquired(workspace, [device] if device.is_gpu else [], job, TITLE, GPU_TIMEOUT):
            job.beat("writing the prompt", patient=True)
            answer = _by_local_model(settings, device, model, instruction.replace("{picture}\n", ""))
    text = tidy(answer)
    if not text:
        raise ModelUnavailable("the language model returned nothing: raise longest_answer, or choose another")
    prompt, tokens, limit = fitted(text, request["model"])
    job.outcome = {"prompt": prompt, "short": request["prompt"], "tokens": tokens, "limit": limit}


def tidy(answer: str) -> str:
    """Turn an answer into a prompt: one paragraph without reasoning, labels and quotes."""
    text = " ".join(THOUGHT.sub(" ", answer).split()).strip(QUOTES + " ")
    return LABEL.sub("", text).strip(QUOTES + " ")


def fitted(prompt: str, model: str) -> tuple[str, int | None, int | None]:
    """Cut a prompt back to whole sentences that fit the video model.

    Returns:
        The prompt, its number of tokens and the model's limit. While the model's tokenizer is not on disk, nothing is
        cut and both numbers are None.
    """
    family, known = find_model(model)
    folder = family.on_disk(known)
    if folder is None:
        return prompt, None, None
    counted = family.caption_tokens(folder, [prompt])[0]
    if counted.cut:
        prompt = whole_sentences(prompt[: len(prompt) - len(counted.cut)].strip())
        counted = family.caption_tokens(folder, [prompt])[0]
    return prompt, counted.count, counted.limit


def _by_server(settings: PromptSettings, workspace: Workspace, instruction: str, image: str) -> str:
    picture: Any = []
    if image and settings.show_picture:
        picture = read_picture(named_paths.resolve(image, "image"), PICTURE_SIDE, PICTURE_SIDE)
    server = Endpoint(captioning(settings), workspace)
    server.open()
    try:
        return server.caption(picture, 1.0, instruction.replace("{picture}\n", PICTURE if len(picture) else ""))
    except CaptionFailed as error:
        raise ModelUnavailable(f"no prompt was written: {error}") from error
    finally:
        server.close()


def _by_local_model(settings: PromptSettings, device: Device, folder: Path, instruction: str) -> str:
    """Generate the answer on this machine. Raises ConfigError, OutOfMemory."""
    with processes.loading():
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer
    local: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    dtype = torch.bfloat16 if device.is_gpu else torch.float32
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, **local)
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, use_safetensors=True, **local)
        model = model.to(device.torch_name).eval()
    except torch.OutOfMemoryError as error:
        raise OutOfMemory(f"{folder.name} does not fit into the GPU's memory: choose a smaller one") from error
    except (ImportError, ValueError, OSError) as error:
        reason = str(error).strip().split("\n")[0][:200]
        raise ConfigError(f"local_model is {folder}, which cannot be loaded ({reason}): choose another") from error
    if tokenizer.chat_template:
        inputs = tokenizer.apply_chat_template(
            [{"role": "user", "content": instruction}],
            add_generation_prompt=True,
            return_dict=True,
            return_tensors="pt",
        )
    else:
        inputs = tokenizer(f"{instruction}\n\n", return_tensors="pt")
    with torch.inference_mode():
        inputs = {name: value.to(model.device) for name, value in inputs.items() if name != "token_type_ids"}
        tokens = model.generate(**inputs, max_new_tokens=settings.longest_answer, do_sample=False)
    tokens = tokens[0, inputs["input_ids"].shape[1] :]
    text = str(tokenizer.decode(tokens, skip_special_tokens=True))
    return whole_sentences(text) if len(tokens) >= settings.longest_answer else text


def _fetched(model: str) -> Path:
    """Return the folder of a language model, downloading it if needed. Raises ConfigError, ModelUnavailable."""
    folder = named_paths.resolve(model, "local_model")
    if folder.is_dir():
        if not any(folder.glob("*.safetensors")):
            raise ConfigError(f"local_model is {model}, a folder without .safetensors files: convert its weights")
        return folder
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    wanted: dict[str, Any] = {"repo_id": model, "allow_patterns": list(FILES)}
    try:
        with contextlib.suppress(LocalEntryNotFoundError):
            return Path(snapshot_download(**wanted, local_files_only=True))
        return Path(snapshot_download(**wanted))
    except HFValidationError:
        raise ConfigError(f"local_model is {model!r}, which is neither a folder nor a name on the Hub") from None
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        reason = str(error).split("\n")[0][:200]
        raise ModelUnavailable(f"{model} cannot be downloaded ({reason}): check the name and the network") from error


if __name__ == "__main__":
    sys.exit(jobs.Job.main(enhance))
