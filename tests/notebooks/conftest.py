"""Jobs that a notebook starts are begun as those of the tests are (tests.warm_host); its kernel begins from nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.warm_client import HOSTS
from tests.warm_processes import WarmHost, WarmHosts
from workbench.jobs import processes
from workbench.paths import CODE


@pytest.fixture(scope="module", autouse=True)
def jobs_of_kernels(warm: WarmHosts | None) -> Iterator[None]:
    if warm is None:
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")  # neither a download nor a push can go unnoticed
        host = WarmHost("job", processes.environment())
        patch.setenv(HOSTS, json.dumps({one.kind: one.name for one in (host, warm.children)}))
        patch.setenv("PYTHONSTARTUP", str(CODE / "tests" / "warm_kernel.py"))
        yield
        host.close()
