"""A private dataset repository of the Hub as a folder that two machines write and read: each `put` is a commit.

The token is the Hub's own affair (a login, or HF_TOKEN in a job), nothing here sees it. Not covered: what is in the
files (hub_jobs, hub_side).
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from workbench import hub
from workbench.errors import ConfigError
from workbench.remote.base import Lost
from workbench.workspace import writing

if TYPE_CHECKING:
    from huggingface_hub import CommitOperationAdd

KIND = "dataset"
AT_ONCE = 500  # paths a question, files a commit
Content = Path | bytes


class HubFolder:
    """One repository."""

    def __init__(self, repo_id: str) -> None:
        self.repo_id = repo_id

    def make(self) -> None:
        """Make it, private, if it is not there. Raises ConfigError when it is public, Lost."""
        api = hub.client()
        with explained(self.repo_id):
            api.create_repo(self.repo_id, repo_type=KIND, private=True, exist_ok=True)
            if not api.dataset_info(self.repo_id).private:
                raise ConfigError(f"{self.repo_id} is public, and clips and weights would be, too: name another one")

    def lacking(self, paths: Iterable[str]) -> list[str]:
        """Those of the paths that it does not have. Raises ConfigError, Lost."""
        wanted, there, api = list(paths), set[str](), hub.client()
        with explained(self.repo_id):
            for start in range(0, len(wanted), AT_ONCE):
                found = api.get_paths_info(self.repo_id, wanted[start : start + AT_ONCE], repo_type=KIND)
                there |= {one.path for one in found}
        return [path for path in wanted if path not in there]

    def put(self, files: Mapping[str, Content], message: str, gone: Iterable[str] = ()) -> None:
        """Add or replace files, and take some out, as one commit. Raises FileNotFoundError, ConfigError, Lost."""
        from huggingface_hub import CommitOperationDelete

        adds = [_added(path, content) for path, content in files.items()]
        takes = [CommitOperationDelete(path) for path in gone]
        if adds or takes:
            with explained(self.repo_id):
                hub.client().create_commit(self.repo_id, [*adds, *takes], commit_message=message, repo_type=KIND)

    def get(self, path: str) -> bytes:
        """A small file's content. Raises FileNotFoundError, ConfigError, Lost."""
        with tempfile.TemporaryDirectory() as folder:
            target = Path(folder) / "file"
            self.fetch(path, target)
            return target.read_bytes()

    def fetch(self, path: str, target: Path) -> None:
        """Copy a file to here. Raises FileNotFoundError, ConfigError, Lost, CannotWrite."""
        with writing(target):
            target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".hub-") as folder:
            with explained(self.repo_id):
                found = hub.client().hf_hub_download(self.repo_id, path, repo_type=KIND, local_dir=folder)
            with writing(target):
                os.replace(found, target)


@contextlib.contextmanager
def explained(what: str) -> Iterator[None]:
    """As workbench.hub says it, for who asks again: ConfigError for what trying again does not fix, else Lost.

    Raises FileNotFoundError as well.
    """
    try:
        with hub.explained(what):
            yield
    except hub.HubRefuses as error:
        raise ConfigError(str(error)) from error
    except hub.HubLost as error:
        raise Lost(str(error)) from error


def _added(path: str, content: Content) -> CommitOperationAdd:
    """Raises FileNotFoundError for a file that a run has removed since it was listed."""
    from huggingface_hub import CommitOperationAdd

    try:
        return CommitOperationAdd(path, content if isinstance(content, bytes) else str(content))
    except ValueError as error:
        if isinstance(content, Path) and not content.exists():
            raise FileNotFoundError(content) from error
        raise
