"""The Hugging Face Hub: its client, one way to push files, its errors as ours. Nothing here knows a token.

huggingface_hub takes the token from HF_TOKEN or from `hf auth login` and gets nothing else; background jobs see no
HF_TOKEN (workbench.jobs), so they need the login.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from workbench.errors import ConfigError, ModelUnavailable

if TYPE_CHECKING:
    from huggingface_hub import HfApi

Kind = Literal["model", "dataset", "space"]
Content = Path | bytes
OnFiles = Callable[[int, int], None]
"""Called with (files sent, all files) after each few; may raise to stop, upon which nothing of them is seen yet."""
AT_ONCE = 32  # files between two checks whether to stop
BAD_METADATA = "Invalid metadata in README.md"  # how huggingface_hub says it
LOGIN = "log in with `hf auth login`"
MAY_WRITE = f"{LOGIN}, with a token that may write"


class HubRefuses(ModelUnavailable):
    """The Hub refuses, and would refuse again."""


class HubLost(ModelUnavailable):
    """The Hub does not answer just now; the same request may succeed later."""


@dataclass(frozen=True)
class Pushed:
    """What a push left: the repository's address, its newest commit, whether this push made it."""

    url: str
    commit: str
    changed: bool


def push(
    kind: Kind,
    repo_id: str,
    files: Mapping[str, Content],
    message: str,
    private: bool = True,
    on_files: OnFiles = lambda *_: None,
) -> Pushed:
    """Add or replace files of a repository as one commit; nothing is deleted, and equal files make no commit.

    A repository that does not exist is created, private or public. What an earlier push that broke off has sent is not
    sent again, and nothing is visible before all is there. Raises ConfigError (also before private files go into a
    public repository), HubRefuses, HubLost, and what on_files raises.
    """
    from huggingface_hub import CommitOperationAdd

    check_repo_id(repo_id)
    api, sdk = client(), "gradio" if kind == "space" else None
    with explained(repo_id):
        api.create_repo(repo_id, repo_type=kind, private=private, exist_ok=True, space_sdk=sdk)
        before = api.repo_info(repo_id, repo_type=kind)
        if private and not before.private:
            raise ConfigError(f"{repo_id} is public and `private` is on: name another one, or turn it off")
        adds = [CommitOperationAdd(name, c if isinstance(c, bytes) else str(c)) for name, c in files.items()]
        for start in range(0, len(adds), AT_ONCE):
            chunk = adds[start : start + AT_ONCE]
            api.preupload_lfs_files(repo_id, chunk, repo_type=kind)
            on_files(start + len(chunk), len(adds))
        try:
            made = api.create_commit(repo_id, adds, commit_message=message, repo_type=kind)
        except ValueError as error:
            if BAD_METADATA not in str(error):
                raise
            reasons = "; ".join(str(error).splitlines()[1:]).replace("- ", "")[:400]
            raise ConfigError(
                f"the Hub refuses the card of {repo_id} ({reasons}): is the license one it knows?"
            ) from error
    path = repo_id if kind == "model" else f"{kind}s/{repo_id}"
    return Pushed(f"{api.endpoint}/{path}", made.oid, made.oid != before.sha)


def client() -> HfApi:
    """The stock client, which names this program."""
    from huggingface_hub import HfApi

    return HfApi(library_name="video-lora-workbench")


def logged_in() -> bool:
    """Whether a login is stored on this machine, as background jobs see it. No request is made."""
    from huggingface_hub import constants

    return Path(constants.HF_TOKEN_PATH).is_file()


def check_repo_id(repo_id: str) -> None:
    """Raises ConfigError for what cannot be a repository's name on the Hub."""
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    try:
        validate_repo_id(repo_id)
        named = repo_id.count("/") == 1
    except HFValidationError:
        named = False
    if not named:
        raise _no_name(repo_id)


@contextlib.contextmanager
def explained(what: str) -> Iterator[None]:
    """Turn the Hub's errors into one sentence each; `what`: the repository, or what else is requested.

    Raises ConfigError for a name that cannot be, FileNotFoundError, HubRefuses, HubLost.
    """
    from huggingface_hub import errors

    try:
        yield
    except errors.HFValidationError as error:
        raise _no_name(what) from error
    except errors.GatedRepoError as error:
        raise HubRefuses(f"{what} asks for consent: accept its terms on its page and {LOGIN}") from error
    except errors.RepositoryNotFoundError as error:
        raise HubRefuses(f"{what} is not on the Hub, or private: check the name, or {LOGIN}") from error
    except errors.RevisionNotFoundError as error:
        raise HubRefuses(f"{what} has no such revision: leave it empty for the newest") from error
    except errors.LocalEntryNotFoundError as error:
        raise _no_answer(what) from error
    except errors.EntryNotFoundError as error:
        raise FileNotFoundError(str(error)) from error
    except errors.LocalTokenNotFoundError as error:
        raise HubRefuses(f"nobody is logged in to the Hub: {MAY_WRITE}") from error
    except errors.HfHubHTTPError as error:
        raise _answered(what, error.response.status_code, error.server_message or "") from error
    except RuntimeError as error:
        if error.__cause__ is None:
            raise
        # What huggingface_hub makes of anything that goes wrong while it sends a file.
        raise HubLost(f"an upload to {what} broke off: push again, what is there already is not sent twice") from error
    except (errors.HTTPError, ConnectionError) as error:
        raise _no_answer(what) from error


def _answered(what: str, status: int, message: str) -> ModelUnavailable:
    """What an answer says that is none of the above."""
    if status not in (401, 402, 403, 404):
        return HubLost(f"{what} cannot be reached: the Hub answers {status}")
    reason = f"{status}: {message.splitlines()[0][:200]}" if message.strip() else str(status)
    return HubRefuses(f"{what} cannot be reached: the Hub refuses it ({reason}): {MAY_WRITE}")


def _no_name(what: str) -> ConfigError:
    sentence = f"the repository is {what[:120]!r}, must be OWNER/NAME: letters, digits, '-', '_', '.'"
    return ConfigError(sentence, {"repo_id": sentence})


def _no_answer(what: str) -> HubLost:
    return HubLost(f"{what} cannot be reached: the Hub does not answer, try again later")
