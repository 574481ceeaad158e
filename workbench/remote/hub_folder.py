"""A private dataset repository of the Hub as a folder that two machines write and read: each `put` is a commit.

huggingface_hub finds the token itself (a login, or HF_TOKEN in a job); nothing here reads it.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from workbench import hub
from workbench.errors import ConfigError
from workbench.remote.base import Unreachable
from workbench.workspace import disk, make_folder, writing

KIND = "dataset"
BATCH = 500  # paths a request, files a commit
Content = Path | bytes


class HubFolder:
    """One repository."""

    def __init__(self, repo_id: str) -> None:
        self.repo_id = repo_id

    def create(self) -> None:
        """Create it, private, if it does not exist. Raises ConfigError when it is public, Unreachable."""
        api = hub.client()
        with explained(self.repo_id):
            api.create_repo(self.repo_id, repo_type=KIND, private=True, exist_ok=True)
            if not api.dataset_info(self.repo_id).private:
                raise ConfigError(f"{self.repo_id} is public, and clips and weights would be, too: name another one")

    def missing(self, paths: Iterable[str]) -> list[str]:
        """Those of the paths that are not in it. Raises ConfigError, Unreachable."""
        wanted, present, api = list(paths), set[str](), hub.client()
        with explained(self.repo_id):
            for start in range(0, len(wanted), BATCH):
                found = api.get_paths_info(self.repo_id, wanted[start : start + BATCH], repo_type=KIND)
                present |= {one.path for one in found}
        return [path for path in wanted if path not in present]

    def put(self, files: Mapping[str, Content], message: str, gone: Iterable[str] = ()) -> str:
        """Add or replace files, and remove some, as one commit; its id. Raises ConfigError, Unreachable."""
        from huggingface_hub import CommitOperationAdd, CommitOperationDelete

        changes: list[CommitOperationAdd | CommitOperationDelete] = [CommitOperationDelete(path) for path in gone]
        changes += [CommitOperationAdd(path, content) for path, content in files.items()]
        with explained(self.repo_id):
            return str(hub.client().create_commit(self.repo_id, changes, commit_message=message, repo_type=KIND).oid)

    def get(self, path: str, commit: str = "") -> bytes:
        """A small file's content. Raises FileNotFoundError, ConfigError, Unreachable."""
        with tempfile.TemporaryDirectory() as folder:
            target = Path(folder) / "file"
            self.fetch(path, target, commit)
            return target.read_bytes()

    def fetch(self, path: str, target: Path, commit: str = "") -> None:
        """Copy a file to here, as it was with a commit, or is now.

        Raises FileNotFoundError, ConfigError, Unreachable, CannotWrite.
        """
        make_folder(target.parent)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".hub-") as folder:
            with explained(self.repo_id):
                found = hub.client().hf_hub_download(
                    self.repo_id, path, repo_type=KIND, local_dir=folder, revision=commit or None
                )
            with writing(target):
                disk.replace(found, target)


@contextlib.contextmanager
def explained(what: str) -> Iterator[None]:
    """The errors of workbench.hub for callers that try again: ConfigError for what that does not fix, else Unreachable.

    Raises FileNotFoundError as well.
    """
    try:
        with hub.explained(what):
            yield
    except hub.HubRefuses as error:
        raise ConfigError(str(error)) from error
    except hub.HubLost as error:
        raise Unreachable(str(error)) from error
