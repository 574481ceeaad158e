"""Edits of many captions at once, and what is in them: each edit is one entry of the history, undone as one.

Every edit returns how many captions it changed; `names` (file names or ids) limits it to those clips. A changed
caption is one clean line (sources.columns.clean_caption). Who wrote it (`caption_by`) stays; where there was no
caption, the edit counts as written by hand.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

import regex

from workbench.clips.records import Clip, clips_named, read_clips, read_info
from workbench.dataset_builder import history
from workbench.dataset_builder.sources.columns import clean_caption
from workbench.errors import ConfigError

Edit = Callable[[str], str]
PUNCTUATION = ",.;:!?"
PATTERN_SECONDS = 2.0  # a pattern that takes longer over one caption would take for ever


@dataclass(frozen=True)
class Search:
    """What to find in captions. `text` is plain, or a regular expression whose groups a replacement may name (\\1)."""

    text: str
    expression: bool = False
    match_case: bool = False
    whole_word: bool = False

    def replacer(self, replacement: str) -> Edit:
        """The edit that puts the replacement wherever the text is found. Raises ConfigError."""
        if not self.text:
            raise ConfigError("there is nothing to find: give a text")
        wanted = unicodedata.normalize("NFC", self.text)
        pattern = wanted if self.expression else regex.escape(wanted)
        if self.whole_word:
            pattern = rf"(?<!\w)(?:{pattern})(?!\w)"
        try:
            compiled = regex.compile(pattern, 0 if self.match_case else regex.IGNORECASE)
        except regex.error as error:
            raise self._unusable(str(error)) from error
        put = replacement if self.expression else replacement.replace("\\", "\\\\")

        def replace(text: str) -> str:
            try:
                return str(compiled.sub(put, text, timeout=PATTERN_SECONDS))
            except TimeoutError:
                raise self._unusable("it takes too long") from None
            except (regex.error, IndexError) as error:  # the replacement names a group that is not there
                raise self._unusable(str(error)) from error

        return replace

    def _unusable(self, reason: str) -> ConfigError:
        return ConfigError(f"{self.text!r} cannot be used as a regular expression ({reason}): fix or simplify it")


@dataclass(frozen=True)
class Rewritten:
    """What an edit would make of one clip's caption."""

    name: str
    before: str
    after: str


# ---- edits -----------------------------------------------------------------------------------------------------------


def preview_replace(
    dataset: Path, search: Search, replacement: str, names: Collection[str] | None = None
) -> list[Rewritten]:
    """What `replace` would change, in the dataset's order; nothing is written. Raises ConfigError."""
    edit = search.replacer(replacement)
    pairs = ((clip, _edited(clip, edit)) for clip in clips_named(read_clips(dataset), names))
    return [Rewritten(old.name, old.text, new.text) for old, new in pairs if old != new]


def replace(dataset: Path, search: Search, replacement: str, names: Collection[str] | None = None) -> int:
    """Replace the text wherever it is found. Raises ConfigError, CannotWrite."""
    what = f"{search.text!r} became {replacement!r} in captions"
    return _rewrite(dataset, what, search.replacer(replacement), names)


def add_prefix(dataset: Path, prefix: str, names: Collection[str] | None = None) -> int:
    """Add a text and a space to the beginning of captions; those that begin with it stay.

    Raises ConfigError, CannotWrite.
    """
    given = _given(prefix, "prefix")

    def put(text: str) -> str:
        return text if text.startswith(given) else f"{given} {text}"

    return _rewrite(dataset, f"{given!r} added in front of captions", put, names)


def add_suffix(dataset: Path, suffix: str, names: Collection[str] | None = None) -> int:
    """Append a text to captions, after a space unless it begins with a punctuation mark; those that end with it stay.

    Raises ConfigError, CannotWrite.
    """
    given = _given(suffix, "suffix")
    gap = "" if given[0] in PUNCTUATION else " "

    def put(text: str) -> str:
        if not text:
            return given.lstrip(PUNCTUATION)
        return text if text.endswith(given) else f"{text}{gap}{given}"

    return _rewrite(dataset, f"{given!r} appended to captions", put, names)


def add_trigger_word(dataset: Path, names: Collection[str] | None = None) -> int:
    """Add the trigger word to captions without it, as training does by itself. Raises ConfigError."""
    info, word = read_info(dataset), _trigger_word(dataset)

    def put(text: str) -> str:
        return info.caption(Clip(file_name="clip", text=text))

    return _rewrite(dataset, f"trigger word {word} added to captions", put, names)


def remove_trigger_word(dataset: Path, names: Collection[str] | None = None) -> int:
    """Remove the dataset's trigger word from captions (training still adds it). Raises ConfigError."""
    word = _trigger_word(dataset)
    inside = regex.compile(rf"\s*(?<!\w){regex.escape(word)}(?!\w)", regex.IGNORECASE)
    return _rewrite(
        dataset, f"trigger word {word} removed from captions", lambda t: inside.sub("", _without_tag(t, word)), names
    )


def remove_tag(dataset: Path, tag: str, names: Collection[str] | None = None) -> int:
    """Remove a tag from comma-separated captions, whatever its case. Raises ConfigError, CannotWrite."""
    given = _given(tag, "tag")
    return _rewrite(dataset, f"tag {given!r} removed", lambda text: _without_tag(text, given), names)


def _given(text: str, name: str) -> str:
    if not (clean := clean_caption(text)):
        raise ConfigError(f"the {name} is empty: give a text")
    return clean


def _trigger_word(dataset: Path) -> str:
    if not (word := read_info(dataset).trigger_word.strip()):
        raise ConfigError("the dataset has no trigger word: set one first")
    return word


def _without_tag(text: str, tag: str) -> str:
    """A caption without that tag; one that does not have it stays as it is, spaces and all."""
    tags = text.split(",")
    kept = [one for one in tags if one.strip().casefold() != tag.casefold()]
    return text if len(kept) == len(tags) else ",".join(kept)


def _edited(clip: Clip, edit: Edit) -> Clip:
    text = edit(clip.text)
    text = clip.text if text == clip.text else clean_caption(text)
    by = clip.caption_by if clip.text.strip() else "hand"
    return clip if text == clip.text else clip.changed(text=text, caption_by=by)


def _rewrite(dataset: Path, what: str, edit: Edit, names: Collection[str] | None) -> int:
    return history.edit(dataset, what, lambda clips: [_edited(clip, edit) for clip in clips_named(clips, names)])


# ---- looking ---------------------------------------------------------------------------------------------------------


def tag_counts(clips: Iterable[Clip]) -> Counter[str]:
    """In how many captions each comma-separated tag stands; tags that differ only in case count as one."""
    counts: Counter[str] = Counter()
    spelling: dict[str, str] = {}  # as it was met first
    for clip in clips:
        tags = {tag.casefold(): tag for tag in map(str.strip, clip.text.split(",")) if tag}
        counts.update(spelling.setdefault(folded, tag) for folded, tag in tags.items())
    return counts
