"""The Hugging Face Hub's client, and its errors as ours. Nothing here knows a token.

huggingface_hub takes the token from HF_TOKEN or from `hf auth login` and is told nothing else; background jobs see no
HF_TOKEN (workbench.jobs), so they need the login. Not covered: what is sent or fetched (dataset_builder.hub, remote,
publishing).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from workbench.errors import ConfigError, ModelUnavailable

if TYPE_CHECKING:
    from huggingface_hub import HfApi

LOGIN = "log in with `hf auth login`"
MAY_WRITE = f"{LOGIN}, with a token that may write"


class HubRefuses(ModelUnavailable):
    """The Hub says no, and will say so again."""


class HubLost(ModelUnavailable):
    """The Hub does not answer just now; the same may be asked again."""


def client() -> HfApi:
    """The stock client, which names this program."""
    from huggingface_hub import HfApi

    return HfApi(library_name="video-lora-workbench")


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
    """Turn the Hub's errors into one sentence each; `what`: the repository, or whatever is asked for.

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


def _answered(what: str, status: int, said: str) -> ModelUnavailable:
    """What an answer says that is none of the above."""
    if status not in (401, 402, 403, 404):
        return HubLost(f"{what} cannot be reached: the Hub answers {status}")
    reason = f"{status}: {said.splitlines()[0][:200]}" if said.strip() else str(status)
    return HubRefuses(f"{what} cannot be reached: the Hub refuses it ({reason}): {MAY_WRITE}")


def _no_name(what: str) -> ConfigError:
    sentence = f"the repository is {what[:120]!r}, must be OWNER/NAME: letters, digits, '-', '_', '.'"
    return ConfigError(sentence, {"repo_id": sentence})


def _no_answer(what: str) -> HubLost:
    return HubLost(f"{what} cannot be reached: the Hub does not answer, try again later")
