"""A chosen environment variable cannot be sent to a chosen address, by the prompt enhancer or the captioner."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from tests.dataset_builder.chat_server import ChatServer, chat_server
from workbench import jobs
from workbench.captioners import keys
from workbench.dataset_builder import Dataset
from workbench.dataset_builder.settings import CaptionSettings
from workbench.errors import ConfigError
from workbench.sampler import prompt_enhancer
from workbench.sampler.prompt_enhancer import PromptSettings
from workbench.sampler.settings import SampleSettings
from workbench.workspace import Workspace

SECRETS = {
    "HF_TOKEN": "hf_abcdefghij",
    "HUGGING_FACE_HUB_TOKEN": "an-old-token",
    "AWS_SECRET_ACCESS_KEY": "aws",
    "DATABASE_URL": "postgres://me:secret@host/db",
    "INFERENCE_KEY": "hf_under_another_name",
}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ChatServer]:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-for-openai")
    with chat_server() as running:
        yield running


@pytest.mark.parametrize("variable", SECRETS)
def test_no_variable_leaves_for_a_host_it_was_not_approved_for(
    workspace: Workspace, dataset: Dataset, server: ChatServer, variable: str
) -> None:
    settings = PromptSettings(base_url=server.url, endpoint_model="eye", key_variable=variable)
    with pytest.raises(ConfigError, match=variable) as caught:
        prompt_enhancer.write(workspace, settings, SampleSettings(prompt="a ring"))
    assert SECRETS[variable] not in str(caught.value)
    values = {"captioner": "endpoint", "base_url": server.url, "endpoint_model": "eye", "which": "all"}
    asked = CaptionSettings().changed(**values, key_variable=variable)
    with pytest.raises(ConfigError, match=variable):
        dataset.task("caption").start(asked)
    # Nor where somebody has written the settings of a task by hand, which then goes on with them.
    with keys.handed_over(variable, server.url) as more:
        assert more == {"stdin": subprocess.DEVNULL, "env": {}}
    assert keys.find_key(variable, server.url) == ""
    assert not server.requests
    assert jobs.status(prompt_enhancer.folder_of(workspace)).state is jobs.State.NEW


def test_hub_tokens_go_nowhere_even_where_they_were_approved(
    monkeypatch: pytest.MonkeyPatch, server: ChatServer
) -> None:
    monkeypatch.setenv(keys.HOSTS, ", ".join(f"{name}=127.0.0.1" for name in SECRETS))
    for name, value in SECRETS.items():
        sent = keys.find_key(name, server.url)
        assert sent == ("" if "HUB" in name or value.startswith("hf_") else value), name


def test_an_approved_key_goes_to_its_host_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-for-openai")
    monkeypatch.setenv("MY_KEY", "sk-mine")
    monkeypatch.setenv(keys.HOSTS, "MY_KEY=llm.example.com:8443, MY_KEY=localhost")
    right = {
        "OPENAI_API_KEY": ["https://api.openai.com/v1"],
        "MY_KEY": ["https://llm.example.com:8443/v1", "http://localhost:8000/v1"],
    }
    wrong = {
        "OPENAI_API_KEY": [
            "http://api.openai.com/v1", "https://api.openai.com.evil.example/v1", "https://evil.example",
            "http://localhost:11434/v1", "https://api.openai.com@evil.example", "", "https://[::1",
        ],
        "MY_KEY": ["https://llm.example.com/v1", "http://llm.example.com:8443/v1", "https://example.com:8443"],
        "": ["https://api.openai.com/v1"],
    }  # fmt: skip
    for variable, addresses in right.items():
        for address in addresses:
            assert keys.find_key(variable, address) == {"OPENAI_API_KEY": "sk-for-openai"}.get(variable, "sk-mine")
            assert keys.refusal(variable, address) == ""
    for variable, addresses in wrong.items():
        for address in addresses:
            assert keys.find_key(variable, address) == "", address
