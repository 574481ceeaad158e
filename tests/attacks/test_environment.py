"""Attack: a key lies in the environment under a name that no list of words knows; a job or a visitor reads it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests import small_job
from tests.patience import PATIENCE
from workbench import jobs
from workbench.demo_space.limits import Limits
from workbench.demo_space.sessions import DemoSession, DemoSessions
from workbench.families import facts
from workbench.jobs import processes

SECRET = "swordfish"
SECRETS = (
    "AWS_ACCESS_KEY_ID", "AWS_SESSION_TOKEN", "DATABASE_URL", "SLACK_WEBHOOK_URL", "PGPASSFILE", "SENTRY_DSN",
    "HF_TOKEN", "GH_PAT", "GOOGLE_APPLICATION_CREDENTIALS", "WANDB_API_KEY", "SLURM_JWT", "WORKBENCH_PASSWORD",
    "OPENAI_ORG", "OAUTH_CLIENT_SECRET", "KAGGLE_KEY", "MYSQL_PWD", "WORKBENCH_WEBHOOK", "SSH_AUTH_SOCK", "NETRC",
    "HF_COOKIE",
)  # fmt: skip
NEEDED = {
    "LC_NUMERIC": "C", "TZ": "UTC", "CUDA_CACHE_PATH": "/x", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1",
    "NCCL_DEBUG": "WARN", "PYTORCH_ALLOC_CONF": "a:b", "SLURM_JOB_ID": "7", "https_proxy": "http://localhost:1",
    "WORKBENCH_TEST_WORD": "herring", "SSL_CERT_FILE": "/y", "LD_LIBRARY_PATH": "/z",
}  # fmt: skip
OF_THE_ACCOUNT = {"HF_HUB_OFFLINE", "SLURM_JOB_ID", "https_proxy", "WORKBENCH_TEST_WORD", "SSL_CERT_FILE"}


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SECRETS:
        monkeypatch.setenv(name, SECRET)
    for name, value in NEEDED.items():
        monkeypatch.setenv(name, value)


def test_a_job_gets_what_it_needs_and_no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(small_job.BEHAVIOR, "finish")
    folder = tmp_path / "job"
    folder.mkdir()
    jobs.start(folder, "tests.small_job")
    assert jobs.wait(folder, PATIENCE).state is jobs.State.FINISHED, (folder / jobs.LOG).read_text()
    got = json.loads((folder / "environment.json").read_text())
    assert not {name for name, value in got.items() if SECRET in value}
    assert {name: got.get(name) for name in NEEDED} == NEEDED
    assert {"PATH", "HOME"} <= set(got)


def test_a_visitors_page_gets_less(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, str]] = []

    def look(session: DemoSession, environment: dict[str, str]) -> None:
        seen.append(environment)
        session.process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)

    monkeypatch.setattr("workbench.demo_space.sessions._start", look)
    DemoSessions(tmp_path / "sessions", Limits(spare=1)).close()
    got = seen[0]
    assert not {name for name, value in got.items() if SECRET in value}
    assert {name for name in NEEDED if got.get(name) == NEEDED[name]} >= set(NEEDED) - OF_THE_ACCOUNT
    assert not {"https_proxy", "SLURM_JOB_ID", "SSL_CERT_FILE", "WORKBENCH_TEST_WORD", "SSH_AUTH_SOCK"} & set(got)
    assert got["HOME"].startswith(str(tmp_path))


def test_every_other_name_stays_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MY_LICENSE", "STRIPE", "X", "PATHS_OF_MINE", "HOMEPAGE"):
        monkeypatch.setenv(name, SECRET)
    assert SECRET not in processes.environment().values()


def test_only_the_modules_that_need_them_get_the_webhook_and_the_ssh_agent() -> None:
    def has(module: str) -> set[str]:
        found = processes.environment(module=module)
        return {name for name in ("WORKBENCH_WEBHOOK", "SSH_AUTH_SOCK", "NETRC", "HF_TOKEN") if name in found}

    assert has("workbench.trainer") == {"WORKBENCH_WEBHOOK", "NETRC"}
    assert has("workbench.remote") == {"WORKBENCH_WEBHOOK", "NETRC", "SSH_AUTH_SOCK"}
    for module in ("workbench.sampler", "workbench.dataset_builder", "workbench.compare", "workbench.loras", ""):
        assert not has(module)


@pytest.mark.from_nothing
def test_the_child_that_reads_a_models_configs_gets_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, str]] = []

    def look(_: object, env: dict[str, str], **__: object) -> subprocess.CompletedProcess[str]:
        seen.append(env)
        return subprocess.CompletedProcess("", 0, "{}", "")

    monkeypatch.setattr(subprocess, "run", look)
    assert facts._built_by_a_child(tmp_path, ()) == {}
    assert SECRET not in seen[0].values()


def test_threads_of_jobs_wait_briefly_those_of_a_run_longer_and_as_a_person_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
    assert processes.environment()["GOMP_SPINCOUNT"] == "1000"
    assert processes.environment(module="workbench.trainer")["GOMP_SPINCOUNT"] == "20000"
    assert "GOMP_SPINCOUNT" not in processes.environment(
        module="workbench.jobs.queue"
    )  # its runs choose for themselves
    monkeypatch.setenv("GOMP_SPINCOUNT", "7")
    for module in ("", "workbench.trainer", "workbench.jobs.queue"):
        assert processes.environment(module=module)["GOMP_SPINCOUNT"] == "7"
