"""A language model writes prompts: a server that speaks the protocol, and a random miniature on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.dataset_builder.chat_server import ChatServer, chat_server, refuses, says
from tests.patience import PATIENCE
from workbench import jobs
from workbench.captioners import keys
from workbench.errors import ConfigError
from workbench.jobs import State
from workbench.sampler import prompt_enhancer
from workbench.sampler.prompt_enhancer import PromptSettings, fitted, tidy, write, written
from workbench.sampler.settings import SampleSettings
from workbench.workspace import Workspace

SAMPLE = SampleSettings(prompt="a zwx ring rolls")
KEY = "sk-of-nobody-1234567890"


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace.open(tmp_path / "workspace")


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with chat_server() as running:
        yield running


def ended(workspace: Workspace) -> jobs.Status:
    return jobs.wait(prompt_enhancer.folder_of(workspace), PATIENCE)


def test_a_server_writes_a_prompt_that_is_kept_beside_what_it_came_from(
    workspace: Workspace, server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    monkeypatch.setenv(keys.HOSTS, "MY_KEY=127.0.0.1")
    server.answer = lambda number, body: says('<think>A ring.\nHm.</think>\n**Prompt:** "A ring\n rolls slowly."')
    settings = PromptSettings(base_url=server.url, endpoint_model="enhancer", key_variable="MY_KEY")
    write(workspace, settings, SAMPLE)
    assert ended(workspace).state is State.FINISHED, jobs.log_tail(prompt_enhancer.folder_of(workspace))
    found = written(workspace)
    assert (found.prompt, found.short) == ("A ring rolls slowly.", "a zwx ring rolls")
    assert (found.tokens, found.limit) == (12, 16)  # counted by the video model's own tokenizer
    ((_, headers, body),) = server.requests
    assert "The idea: a zwx ring rolls" in server.questions[0]
    assert "{picture}" not in server.questions[0]
    assert body["messages"][0]["content"] == [{"type": "text", "text": server.questions[0]}]
    assert headers["authorization"] == f"Bearer {KEY}"
    assert not [
        path for path in workspace.root.rglob("*") if path.is_file() and KEY in path.read_text(errors="replace")
    ]
    assert prompt_enhancer.settings_of(workspace) == settings  # what a page opens with

    prompt_enhancer.take(workspace, "A ring rolls slowly, says a person.", found.short)
    assert prompt_enhancer.shorts(workspace) == {"A ring rolls slowly, says a person.": "a zwx ring rolls"}

    server.answer = lambda number, body: refuses(401, "no such key")
    write(workspace, settings, SAMPLE)
    failed = ended(workspace)
    assert failed.state is State.FAILED
    assert "set a valid key" in failed.message
    assert written(workspace) is None


def test_a_model_on_this_machine_writes_one(workspace: Workspace, tmp_path: Path) -> None:
    folder = tiny_language_model(tmp_path / "enhancer")
    settings = PromptSettings(enhancer="local", local_model=str(folder), device="cpu", longest_answer=24)
    write(workspace, settings, SAMPLE)
    with pytest.raises(ConfigError, match="being written"):
        write(workspace, settings, SAMPLE)
    assert ended(workspace).state is State.FINISHED, jobs.log_tail(prompt_enhancer.folder_of(workspace))
    found = written(workspace)
    assert found.prompt
    assert found.short == SAMPLE.prompt


def test_what_cannot_work_is_said_before_anything_is_started(workspace: Workspace) -> None:
    with pytest.raises(ConfigError, match="the prompt is empty"):
        write(workspace, PromptSettings(), SAMPLE.changed(prompt=" "))
    with pytest.raises(ConfigError, match="base_url is not set"):
        write(workspace, PromptSettings(), SAMPLE)
    with pytest.raises(ConfigError, match="local_model is empty"):
        write(workspace, PromptSettings(enhancer="local"), SAMPLE)
    with pytest.raises(ConfigError, match="has no {prompt}"):
        write(workspace, PromptSettings(instruction="Write a poem."), SAMPLE)
    assert prompt_enhancer.status(workspace).state is State.NEW


def test_answers_become_one_paragraph_that_the_video_model_reads_to_its_end() -> None:
    assert tidy("Video prompt: A dog.\n\nIt runs.") == "A dog. It runs."
    assert tidy("<think>never closed, never said") == ""
    assert tidy("“A dog runs.”") == "A dog runs."
    long = "a red ring moves left. " * 4
    prompt, tokens, limit = fitted(long.strip(), "tiny-cogvideox")
    assert limit == 16
    assert tokens is not None
    assert 0 < tokens <= limit
    assert prompt.endswith(".")
    assert long.startswith(prompt)


def tiny_language_model(folder: Path) -> Path:
    """A causal language model with random weights, which answers nonsense by bytes."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    alphabet = {letter: number for number, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    letters = Tokenizer(models.BPE(vocab=alphabet, merges=[]))
    letters.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    letters.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=letters, eos_token="<end>")
    tokenizer.chat_template = "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}"
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
        pad_token_id=None,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder
