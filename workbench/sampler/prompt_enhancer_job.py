"""The job of prompt enhancement: `python -m workbench.sampler.prompt_enhancer_job FOLDER`.

The language model is one on this machine, or a server that speaks OpenAI's protocol, called as the captioner `endpoint`
calls it (its key never reaches the disk). Not covered: starting the job and its folder (prompt_enhancer).
"""

from __future__ import annotations

import contextlib
import re
import sys
from pathlib import Path
from typing import Any

from workbench import jobs, policy
from workbench.captioners.base import CaptionFailed, whole_sentences
from workbench.captioners.endpoint import Endpoint
from workbench.errors import ConfigError, ModelUnavailable, OutOfMemory
from workbench.families import find_model
from workbench.jobs import gpu_lock, processes
from workbench.jobs.devices import pick_device
from workbench.sampler.input_files import read_picture
from workbench.sampler.prompt_enhancer import REQUEST, PromptSettings, captioning
from workbench.workspace import Workspace, read_json

GPU_TIMEOUT = 30.0  # seconds a warm sampler gets to unload its model
FILES = ("*.json", "*.safetensors", "*.jinja", "*.txt", "*.model")
PICTURE_SIDE = 512  # pixels of the first frame as it is sent to a server
THOUGHT = re.compile(r"<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)", re.DOTALL | re.IGNORECASE)
LABEL = re.compile(r"^(?:(?:video|final|extended|long) )?(?:prompt|caption|description)\s*:\s*", re.IGNORECASE)
QUOTES = "\"'`“”„«»*"
PICTURE = "The picture is the video's first frame: describe it as it is, and what happens from there.\n"


def main(folder: Path) -> int:
    """Write the prompt that the folder requests. Returns the exit code."""
    with jobs.Job(folder) as job:
        workspace = Workspace.of(folder)
        settings, request = PromptSettings.load(folder / jobs.CONFIG), read_json(folder / REQUEST)
        job.beat("writing the prompt", patient=True)
        instruction = settings.instruction.replace("{prompt}", request["prompt"])
        answer = _by_server if settings.enhancer == "endpoint" else _by_local_model
        text = tidy(answer(settings, workspace, instruction, request["image"]))
        if not text:
            raise ModelUnavailable("the language model returned nothing: raise longest_answer, or choose another")
        prompt, tokens, limit = fitted(text, request["model"])
        job.outcome = {"prompt": prompt, "short": request["prompt"], "tokens": tokens, "limit": limit}
    return int(job.exit_code)


def tidy(answer: str) -> str:
    """An answer as a prompt: without thoughts, labels and quotes around it, in one paragraph."""
    text = " ".join(THOUGHT.sub(" ", answer).split()).strip(QUOTES + " ")
    return LABEL.sub("", text).strip(QUOTES + " ")


def fitted(prompt: str, model: str) -> tuple[str, int | None, int | None]:
    """The prompt cut back to whole sentences that the video model reads, its tokens, and how many it reads.

    Tokens are None while the model's tokenizer is not on the disk; then nothing is cut.
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
        picture = read_picture(policy.resolve(image, "image"), PICTURE_SIDE, PICTURE_SIDE)
    server = Endpoint(captioning(settings), workspace)
    server.open()
    try:
        return server.caption(picture, 1.0, instruction.replace("{picture}\n", PICTURE if len(picture) else ""))
    except CaptionFailed as error:
        raise ModelUnavailable(f"no prompt was written: {error}") from error
    finally:
        server.close()


def _by_local_model(settings: PromptSettings, workspace: Workspace, instruction: str, image: str) -> str:
    """Raises ConfigError, ModelUnavailable, DeviceBusy, OutOfMemory."""
    device, folder = pick_device(settings.device), _fetched(settings.local_model.strip())
    instruction = instruction.replace("{picture}\n", "")
    with contextlib.ExitStack() as held:
        if device.is_gpu:
            held.enter_context(gpu_lock.hold(workspace.locks, device.uuid, "the prompt enhancer", GPU_TIMEOUT))
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
    """The folder with a language model's files, downloaded once. Raises ConfigError, ModelUnavailable."""
    folder = policy.resolve(model, "local_model")
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
        raise ConfigError(f"local_model is {model!r}, which is no folder here and no name on the Hub") from None
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        reason = str(error).split("\n")[0][:200]
        raise ModelUnavailable(f"{model} cannot be downloaded ({reason}): check the name and the network") from error


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
