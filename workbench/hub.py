"""The Hugging Face Hub: its client, pushing files, and its errors in our words. Nothing here handles a token.

huggingface_hub reads the token from HF_TOKEN or from `hf auth login`. Background jobs get no HF_TOKEN, so they need
the login.
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
"""Called with (files sent, files in total) after each batch. May raise to stop before anything becomes visible."""
AT_ONCE = 32  # files in a batch
BAD_METADATA = "Invalid metadata in README.md"  # huggingface_hub's wording
LOGIN = "log in with `hf auth login`"
MAY_WRITE = f"{LOGIN}, with a token that may write"


class HubRefuses(ModelUnavailable):
    """The Hub refused the request, and retrying would not help."""


class HubLost(ModelUnavailable):
    """The Hub did not answer; the same request may succeed later."""


@dataclass(frozen=True)
class Pushed:
    """The result of a push: the repository's address, its newest commit, and whether this push made that commit."""

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
    """Add or replace files of a repository in one commit, creating the repository if needed.

    Nothing is deleted, and unchanged files make no commit. Files that an interrupted push already sent are not sent
    again, and nothing is visible until all files are there.

    Raises:
        ConfigError: the name is invalid, the card is refused, or `private` is on and the repository is public.
        HubRefuses, HubLost: the Hub's answer, or none. What `on_files` raises passes through.
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
                f"the Hub refuses the card of {repo_id} ({reasons}): check that it knows the license"
            ) from error
    path = repo_id if kind == "model" else f"{kind}s/{repo_id}"
    return Pushed(f"{api.endpoint}/{path}", made.oid, made.oid != before.sha)


def client() -> HfApi:
    """Return a client that identifies itself as this program."""
    from huggingface_hub import HfApi

    return HfApi(library_name="video-lora-workbench")


def logged_in() -> bool:
    """Whether a login is stored on this machine, which is what background jobs use. Makes no request."""
    from huggingface_hub import constants

    return Path(constants.HF_TOKEN_PATH).is_file()


def check_repo_id(repo_id: str) -> None:
    """Raise ConfigError for a name that no repository on the Hub can have."""
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
    """Turn the Hub's errors into one sentence each. what: the repository, or whatever else is requested.

    Raises ConfigError if the name is invalid, FileNotFoundError if the file does not exist, HubRefuses, HubLost.
    """
    from huggingface_hub import errors

    try:
        yield
    except errors.HFValidationError as error:
        raise _no_name(what) from error
    except errors.GatedRepoError as error:
        page = f" at {client().endpoint}/{what}" if what.count("/") == 1 else " on its page"
        raise HubRefuses(f"{what} asks for consent: accept its terms{page} and {LOGIN}") from error
    except errors.RepositoryNotFoundError as error:
        raise HubRefuses(f"{what} is not on the Hub, or private: check the name, or {LOGIN}") from error
    except errors.RevisionNotFoundError as error:
        raise HubRefuses(f"{what} has no such revision: leave the revision empty for the newest") from error
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
        # huggingface_hub wraps every failure of an upload in a RuntimeError.
        raise HubLost(f"an upload to {what} broke off: push again, files already sent are skipped") from error
    except (errors.HTTPError, ConnectionError) as error:
        raise _no_answer(what) from error


def _answered(what: str, status: int, message: str) -> ModelUnavailable:
    """Word an HTTP error that has no class of its own."""
    if status not in (401, 402, 403, 404):
        return HubLost(f"{what} cannot be reached: the Hub answers {status}")
    reason = f"{status}: {message.splitlines()[0][:200]}" if message.strip() else str(status)
    return HubRefuses(f"{what} cannot be reached: the Hub refuses it ({reason}): {MAY_WRITE}")


def _no_name(what: str) -> ConfigError:
    sentence = f"the repository is {what[:120]!r}, must be OWNER/NAME: letters, digits, '-', '_', '.'"
    return ConfigError(sentence, {"repo_id": sentence})


def _no_answer(what: str) -> HubLost:
    return HubLost(f"{what} cannot be reached: the Hub does not answer, try again later")
