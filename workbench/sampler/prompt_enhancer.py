"""A language model writes a long prompt from a short one: `python -m workbench.sampler.prompt_enhancer FOLDER`.

    samples/.prompting/             a job folder (workbench.jobs); config.json holds PromptSettings
      request.json                  {prompt, model, image}: the short one, and the video model it is for
      result.json                   {prompt, tokens, limit}: the long one
      accepted.jsonl                {prompt, short, time} a line: what a person took, maybe changed, and what it was

Video models were trained on long captions and draw more of what a long prompt says. Nothing is written unless it is
asked for, and nothing is used before a person has seen it. The language model is one on this machine, or a server that
speaks OpenAI's protocol, asked as the captioner `endpoint` asks (its key never reaches the disk). Not covered: captions
of clips (dataset_builder).
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from workbench import jobs, policy
from workbench.captioners.base import CaptionFailed, whole_sentences
from workbench.captioners.endpoint import Endpoint
from workbench.captioners.keys import handed_over
from workbench.captioners.settings import CaptionerSettings
from workbench.errors import ConfigError, ModelUnavailable, OutOfMemory
from workbench.families import find_model
from workbench.jobs import gpu_lock, processes
from workbench.jobs.devices import pick_device
from workbench.sampler.settings import SampleSettings
from workbench.settings import Settings, field
from workbench.workspace import Workspace, append_line, read_json, write_json

if TYPE_CHECKING:
    from workbench.clips.media import Pixels

MODULE = "workbench.sampler.prompt_enhancer"
FOLDER, REQUEST, ACCEPTED = ".prompting", "request.json", "accepted.jsonl"
WHO, SERVER, HERE, ASKING = "Writer", "Server", "On this machine", "Asking"
GPU_PATIENCE = 30.0  # seconds a warm sampler gets to unload its model
FILES = ("*.json", "*.safetensors", "*.jinja", "*.txt", "*.model")
PICTURE_SIDE = 512  # pixels of the first frame as it is shown to a server
THOUGHT = re.compile(r"<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)", re.DOTALL | re.IGNORECASE)
LABEL = re.compile(r"^(?:(?:video|final|extended|long) )?(?:prompt|caption|description)\s*:\s*", re.IGNORECASE)
QUOTES = "\"'`“”„«»*"
INSTRUCTION = """\
Rewrite the idea below as one prompt for a model that draws a video of a few seconds in a single take.
Write one paragraph of 80 to 130 English words, in whole sentences and in the present tense, like a caption by \
somebody who has watched that video. Say who or what is seen and how it looks (shape, colour, material, clothes), what \
it does from beginning to end, what surrounds it, where the light comes from and what mood it gives, how the camera \
stands or moves, and the style of the picture.
Keep everything the idea says, its unusual words and names letter by letter. Add only what fits it and can be seen: no \
sounds, no thoughts, no cuts to other scenes, no text on the screen.
Answer with the paragraph alone.
{picture}
The idea: {prompt}"""
PICTURE = "The picture is the video's first frame: describe it as it is, and what happens from there.\n"


class PromptSettings(Settings):
    """Who writes prompts, and how it is asked; samples/.prompting/config.json."""

    writer: Literal["endpoint", "local"] = field("endpoint", title="Who writes", section=WHO)
    """endpoint: a server that speaks OpenAI's protocol, on this machine or elsewhere. local: a language model that this
    workbench loads itself."""

    base_url: str = field("", title="Address", section=SERVER)
    """For endpoint: where the server is, such as http://localhost:11434/v1. The prompt is sent there."""

    endpoint_model: str = field("", title="Model's name there", section=SERVER)
    """For endpoint: the name the server knows its model by."""

    local_model: str = field("", title="Language model", section=HERE, path=True)
    """For local: OWNER/NAME of an instruction-tuned model on the Hub, downloaded once, or a folder with one in
    transformers' layout."""

    key_variable: str = field("OPENAI_API_KEY", title="Key's variable", section=SERVER, advanced=True)
    """For endpoint: the environment variable that holds the key. The key itself is never a setting. It is sent to the
    host that WORKBENCH_KEY_HOSTS names for it alone (OPENAI_API_KEY: api.openai.com). Without it the system's keyring
    is asked. Most servers on this machine need none."""

    show_picture: bool = field(False, title="Show it the first frame", section=SERVER, advanced=True)
    """For endpoint, where its model can see: the first frame is sent with the prompt."""

    timeout_seconds: float = field(
        120.0, title="Patience", section=SERVER, unit="seconds", low=0.1, high=3600, advanced=True
    )
    """For endpoint: how long the answer may take."""

    device: Literal["auto", "cuda", "cpu"] = field("auto", title="Device", section=HERE, advanced=True)
    """For local: where it computes. On a GPU it waits until the sampler has let go of it."""

    instruction: str = field(INSTRUCTION, title="Instruction", section=ASKING, lines=6, advanced=True)
    """What it is asked. {prompt} stands for the short prompt."""

    longest_answer: int = field(
        600, title="Longest answer", section=ASKING, unit="tokens", low=16, high=4096, advanced=True
    )
    """What the language model may write, its thoughts included. An answer that gets longer than the video model reads
    is cut back to its last whole sentence."""


@dataclass(frozen=True)
class Written:
    """What came out. tokens, limit: how many the video model reads of it, and at most; None while that is unknown."""

    prompt: str
    short: str
    tokens: int | None = None
    limit: int | None = None


# ---- asking: no torch -----------------------------------------------------------------------------------------------


def folder_of(workspace: Workspace) -> Path:
    return workspace.samples / FOLDER


def write(workspace: Workspace, settings: PromptSettings, sample: SampleSettings) -> jobs.Status:
    """Have the prompt of a sample written, in the background. Raises ConfigError, CannotWrite.

    A prompt that was written before is no idea to begin with: the words that it came from are.
    """
    folder, short = folder_of(workspace), sample.prompt.strip()
    short = shorts(workspace).get(short, short)
    if jobs.status(folder).state.alive:
        raise ConfigError("a prompt is being written: wait for it, or stop it")
    if not short:
        raise ConfigError("the prompt is empty: say in a few words what the video shows")
    if "{prompt}" not in settings.instruction:
        sentence = "instruction has no {prompt}, so the writer would not hear of your idea: put it where it belongs"
        raise ConfigError(sentence, {"instruction": sentence})
    find_model(sample.model)
    image = str(policy.resolve(sample.image, "image")) if sample.image else ""
    if settings.writer == "endpoint":
        Endpoint(_captioning(settings), workspace).check()
    elif not settings.local_model.strip():
        sentence = "local_model is empty: give OWNER/NAME of a language model on the Hub, or a folder with one"
        raise ConfigError(sentence, {"local_model": sentence})
    settings.save(folder / jobs.CONFIG)
    write_json(folder / REQUEST, {"prompt": short, "model": sample.model, "image": image})
    variable = settings.key_variable if settings.writer == "endpoint" else ""
    with handed_over(variable, settings.base_url) as secrets:
        return jobs.start(folder, MODULE, **secrets)


def status(workspace: Workspace) -> jobs.Status:
    return jobs.status(folder_of(workspace))


def stop(workspace: Workspace) -> None:
    """End the writing at once. Raises CannotWrite."""
    jobs.kill(folder_of(workspace))


def settings_of(workspace: Workspace) -> PromptSettings:
    """Those that were used last."""
    with contextlib.suppress(ConfigError):
        return PromptSettings.load(folder_of(workspace) / jobs.CONFIG)
    return PromptSettings()


def written(workspace: Workspace) -> Written | None:
    """The prompt that was written last; None when there is none."""
    with contextlib.suppress(ConfigError):
        result = jobs.result(folder_of(workspace))
        if result.get("prompt"):
            return Written(result["prompt"], str(result.get("short", "")), result.get("tokens"), result.get("limit"))
    return None


def accept(workspace: Workspace, prompt: str, short: str) -> None:
    """Remember what a prompt that a person takes was written from. Raises CannotWrite."""
    line = {"prompt": prompt, "short": short, "time": time.time()}
    append_line(folder_of(workspace) / ACCEPTED, json.dumps(line, ensure_ascii=False))


def take(workspace: Workspace, text: str, prompt: str) -> str:
    """Use the written prompt, maybe changed by hand, in place of `prompt`. Raises ConfigError, CannotWrite."""
    text, found = text.strip(), written(workspace)
    if not text:
        raise ConfigError("the written prompt is empty: write one first")
    accept(workspace, text, found.short if found else prompt)
    return text


def own_words(workspace: Workspace) -> str:
    """What the prompt was written from. Raises ConfigError before one was."""
    found = written(workspace)
    if found is None:
        raise ConfigError("there are no words of your own to go back to")
    return found.short


def shorts(workspace: Workspace) -> dict[str, str]:
    """Every long prompt that a person took -> the short one that it was written from."""
    path, found = folder_of(workspace) / ACCEPTED, dict[str, str]()
    if path.exists():
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            with contextlib.suppress(ValueError, KeyError, TypeError):  # the last one may be torn
                record = json.loads(line)
                found[str(record["prompt"])] = str(record["short"])
    return found


# ---- the job --------------------------------------------------------------------------------------------------------


def main(folder: Path) -> int:
    """Write the prompt that the folder asks for. Returns the exit code."""
    with jobs.Job(folder) as job:
        workspace = Workspace(folder.parent.parent)
        settings, asked = PromptSettings.load(folder / jobs.CONFIG), read_json(folder / REQUEST)
        job.beat("writing the prompt", patient=True)
        instruction = settings.instruction.replace("{prompt}", asked["prompt"])
        answer = _by_server if settings.writer == "endpoint" else _by_local_model
        said = tidy(answer(settings, workspace, instruction, asked["image"]))
        if not said:
            raise ModelUnavailable("the language model said nothing: raise longest_answer, or choose another")
        prompt, tokens, limit = fitted(said, asked["model"])
        job.outcome = {"prompt": prompt, "short": asked["prompt"], "tokens": tokens, "limit": limit}
    return int(job.exit_code)


def tidy(said: str) -> str:
    """An answer as a prompt: without thoughts, labels and quotes around it, in one paragraph."""
    text = " ".join(THOUGHT.sub(" ", said).split()).strip(QUOTES + " ")
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


def _captioning(settings: PromptSettings) -> CaptionerSettings:
    """The same for the captioner that speaks with servers."""
    names = ("base_url", "endpoint_model", "key_variable", "timeout_seconds", "longest_answer")
    return CaptionerSettings(captioner="endpoint").changed(**{name: getattr(settings, name) for name in names})


def _by_server(settings: PromptSettings, workspace: Workspace, instruction: str, image: str) -> str:
    picture: Any = _picture(image) if image and settings.show_picture else []
    server = Endpoint(_captioning(settings), workspace)
    server.open()
    try:
        said = instruction.replace("{picture}\n", PICTURE if len(picture) else "")
        return server.caption(picture, 1.0, said)
    except CaptionFailed as error:
        raise ModelUnavailable(f"no prompt was written: {error}") from error
    finally:
        server.close()


def _picture(image: str) -> Pixels:
    from workbench.sampler.pictures import read_picture

    return read_picture(policy.resolve(image, "image"), PICTURE_SIDE, PICTURE_SIDE)


def _by_local_model(settings: PromptSettings, workspace: Workspace, instruction: str, image: str) -> str:
    """Raises ConfigError, ModelUnavailable, DeviceBusy, OutOfMemory."""
    device, folder = pick_device(settings.device), _fetched(settings.local_model.strip())
    instruction = instruction.replace("{picture}\n", "")
    with contextlib.ExitStack() as held:
        if device.kind == "cuda":
            held.enter_context(gpu_lock.hold(workspace.locks, device.uuid, "the writer of prompts", GPU_PATIENCE))
        with processes.loading():
            import torch
            from transformers import AutoModelForCausalLM, AutoTokenizer
        local: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
        dtype = torch.bfloat16 if device.kind == "cuda" else torch.float32
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
            asked = tokenizer.apply_chat_template(
                [{"role": "user", "content": instruction}], add_generation_prompt=True, return_dict=True,
                return_tensors="pt",
            )  # fmt: skip
        else:
            asked = tokenizer(f"{instruction}\n\n", return_tensors="pt")
        with torch.inference_mode():
            asked = {name: value.to(model.device) for name, value in asked.items() if name != "token_type_ids"}
            tokens = model.generate(**asked, max_new_tokens=settings.longest_answer, do_sample=False)
        tokens = tokens[0, asked["input_ids"].shape[1] :]
        said = str(tokenizer.decode(tokens, skip_special_tokens=True))
        return whole_sentences(said) if len(tokens) >= settings.longest_answer else said


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
