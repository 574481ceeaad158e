"""Prompt enhancement: a language model writes a long prompt from a short one, in the background. No torch.

    samples/.prompting/             a job folder (workbench.jobs); config.json holds PromptSettings
      request.json                  {prompt, model, image}: the short prompt, and the video model it is for
      result.json                   {prompt, tokens, limit}: the long prompt
      accepted.jsonl                {prompt, short, time} a line: prompts that were used, maybe edited

Video models were trained on long captions and follow long prompts better. Nothing is written before a person starts it,
and nothing is used before a person has read it. Not covered: calling the language model (prompt_enhancer_job), captions
of clips (dataset_builder).
"""

from __future__ import annotations

import contextlib
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from workbench import jobs, policy
from workbench.captioners.endpoint import Endpoint
from workbench.captioners.keys import handed_over
from workbench.captioners.settings import CaptionerSettings
from workbench.errors import ConfigError
from workbench.jobs.devices import DeviceChoice
from workbench.sampler.settings import SampleSettings
from workbench.settings import Settings, field
from workbench.workspace import Workspace, append_line, write_json
from workbench.workspace.records import read_json_lines

MODULE = "workbench.sampler.prompt_enhancer_job"
FOLDER, REQUEST, ACCEPTED = ".prompting", "request.json", "accepted.jsonl"
WHICH, SERVER, LOCAL, REQUEST_SECTION = "Prompt enhancer", "Server", "On this machine", "Request"
INSTRUCTION = """\
Rewrite the idea below as one prompt for a model that generates a video of a few seconds in a single take.
Write one paragraph of 80 to 130 English words, in whole sentences and in the present tense, like a caption by \
somebody who has watched that video. Say who or what is seen and how it looks (shape, colour, material, clothes), what \
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
    """endpoint: a server that speaks OpenAI's protocol, on this machine or elsewhere. local: a language model that this
    workbench loads itself."""

    base_url: str = field("", title="Address", section=SERVER)
    """For endpoint: where the server is, such as http://localhost:11434/v1. The prompt is sent there."""

    endpoint_model: str = field("", title="Remote model name", section=SERVER)
    """For endpoint: the name of the model on the server."""

    local_model: str = field("", title="Language model", section=LOCAL, path=True)
    """For local: OWNER/NAME of an instruction-tuned model on the Hub, downloaded once, or a folder with one in
    transformers' layout."""

    key_variable: str = field("OPENAI_API_KEY", title="API key variable", section=SERVER, advanced=True)
    """For endpoint: the environment variable that holds the key. The key itself is never a setting. It is sent to the
    host that WORKBENCH_KEY_HOSTS names for it alone (OPENAI_API_KEY: api.openai.com). Without it the system's keyring
    is asked. Most servers on this machine need none."""

    show_picture: bool = field(False, title="Send the first frame", section=SERVER, advanced=True)
    """For endpoint, where its model can see: the first frame is sent with the prompt."""

    timeout_seconds: float = field(
        120.0, title="Timeout", section=SERVER, unit="seconds", low=0.1, high=3600, advanced=True
    )
    """For endpoint: how long the answer may take."""

    device: DeviceChoice = field("auto", title="Device", section=LOCAL, source="devices", advanced=True)
    """For local: where it computes. On a GPU it waits until the sampler has released it."""

    instruction: str = field(INSTRUCTION, title="Instruction", section=REQUEST_SECTION, lines=6, advanced=True)
    """The instruction to the language model. {prompt} stands for the short prompt."""

    longest_answer: int = field(
        600, title="Longest answer", section=REQUEST_SECTION, unit="tokens", low=16, high=4096, advanced=True
    )
    """At most so many tokens are written, thoughts included. An answer that is longer than the video model reads
    is cut back to its last whole sentence."""


@dataclass(frozen=True)
class EnhancedPrompt:
    """A written prompt. tokens, limit: how many the video model reads of it, and at most; None while that is
    unknown."""

    prompt: str
    short: str
    tokens: int | None = None
    limit: int | None = None


# ---- the job, from outside -----------------------------------------------------------------------------------------


def folder_of(workspace: Workspace) -> Path:
    return workspace.samples / FOLDER


def write(workspace: Workspace, settings: PromptSettings, sample: SampleSettings) -> jobs.Status:
    """Start enhancing the prompt of a sample, in the background. Raises ConfigError, CannotWrite.

    A prompt that was enhanced before is written again from the short one that it came from.
    """
    folder, short = folder_of(workspace), sample.prompt.strip()
    short = shorts(workspace).get(short, short)
    if jobs.status(folder).state.alive:
        raise ConfigError("a prompt is being written: wait for it, or stop it")
    if not short:
        raise ConfigError("the prompt is empty: say in a few words what the video shows")
    if "{prompt}" not in settings.instruction:
        sentence = "instruction has no {prompt}, which stands for your prompt: put it where the prompt belongs"
        raise ConfigError(sentence, {"instruction": sentence})
    _ = sample.resolved  # refuses a model that is not known
    image = str(policy.resolve(sample.image, "image")) if sample.image else ""
    if settings.enhancer == "endpoint":
        Endpoint(captioning(settings), workspace).check()
    elif not settings.local_model.strip():
        sentence = "local_model is empty: give OWNER/NAME of a language model on the Hub, or a folder with one"
        raise ConfigError(sentence, {"local_model": sentence})
    settings.save(folder / jobs.CONFIG)
    write_json(folder / REQUEST, {"prompt": short, "model": sample.model, "image": image})
    variable = settings.key_variable if settings.enhancer == "endpoint" else ""
    with handed_over(variable, settings.base_url) as secrets:
        return jobs.start(folder, MODULE, **secrets)


def status(workspace: Workspace) -> jobs.Status:
    return jobs.status(folder_of(workspace))


def stop(workspace: Workspace) -> None:
    """Stop writing at once. Raises CannotWrite."""
    jobs.kill(folder_of(workspace))


def settings_of(workspace: Workspace) -> PromptSettings:
    """The settings used last."""
    with contextlib.suppress(ConfigError):
        return PromptSettings.load(folder_of(workspace) / jobs.CONFIG)
    return PromptSettings()


def written(workspace: Workspace) -> EnhancedPrompt | None:
    """The prompt that was written last; None when there is none."""
    with contextlib.suppress(ConfigError):
        result = jobs.result(folder_of(workspace))
        if result.get("prompt"):
            return EnhancedPrompt(
                result["prompt"], str(result.get("short", "")), result.get("tokens"), result.get("limit")
            )
    return None


def take(workspace: Workspace, text: str, prompt: str) -> str:
    """Use the written prompt, maybe changed by hand, in place of `prompt`; what it was written from is recorded.

    Raises ConfigError, CannotWrite.
    """
    text, found = text.strip(), written(workspace)
    if not text:
        raise ConfigError("the written prompt is empty: write one first")
    line = {"prompt": text, "short": found.short if found else prompt, "time": time.time()}
    append_line(folder_of(workspace) / ACCEPTED, json.dumps(line, ensure_ascii=False))
    return text


def own_words(workspace: Workspace) -> str:
    """The short prompt that the last one was written from. Raises ConfigError where there is none."""
    found = written(workspace)
    if found is None:
        raise ConfigError("no prompt was written yet, so there is none to go back to")
    return found.short


def shorts(workspace: Workspace) -> dict[str, str]:
    """Every long prompt that was used -> the short one that it was written from."""
    records = read_json_lines(folder_of(workspace) / ACCEPTED)
    return {str(one["prompt"]): str(one["short"]) for one in records if "prompt" in one and "short" in one}


def captioning(settings: PromptSettings) -> CaptionerSettings:
    """The settings of the captioner that calls servers."""
    names = ("base_url", "endpoint_model", "key_variable", "timeout_seconds", "longest_answer")
    return CaptionerSettings(captioner="endpoint").changed(**{name: getattr(settings, name) for name in names})
