"""Edit many captions at once, and count their tags. Each edit is one entry in the history.

Every edit returns how many captions it changed; `names` (file names or ids) limits it to those clips. A changed
caption becomes one clean line (sources.columns.clean_caption). Its author (`caption_by`) stays; a caption for a clip
without one counts as written by hand.
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
from workbench.snapshots import Snapshot

Edit = Callable[[str], str]
PUNCTUATION = ",.;:!?"
PATTERN_SECONDS = 2.0  # timeout per caption, for patterns that backtrack endlessly


@dataclass(frozen=True)
class Search:
    """What to find in captions. `text` is plain, or a regular expression whose groups the replacement can use (\\1)."""

    text: str
    expression: bool = False
    match_case: bool = False
    whole_word: bool = False

    def replacer(self, replacement: str) -> Edit:
        """Return a function that replaces the text everywhere in a caption. Raises ConfigError."""
        if not self.text:
            raise ConfigError("the text to find is empty: enter one")
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
            except (regex.error, IndexError) as error:  # the replacement uses a group that does not exist
                raise self._unusable(str(error)) from error

        return replace

    def _unusable(self, reason: str) -> ConfigError:
        return ConfigError(f"{self.text!r} cannot be used as a regular expression ({reason}): fix or simplify it")


class Rewritten(Snapshot):
    """A caption that an edit would change."""

    name: str
    """Name of the clip."""

    before: str
    """The caption now."""

    after: str
    """The caption after the edit."""


# ---- edits -----------------------------------------------------------------------------------------------------------


def preview_replace(
    dataset: Path, search: Search, replacement: str, names: Collection[str] | None = None
) -> list[Rewritten]:
    """List what `replace` would change, in the dataset's order, without writing anything. Raises ConfigError."""
    edit = search.replacer(replacement)
    pairs = ((clip, _edited(clip, edit)) for clip in clips_named(read_clips(dataset), names))
    return [Rewritten(name=old.name, before=old.text, after=new.text) for old, new in pairs if old != new]


def replace(dataset: Path, search: Search, replacement: str, names: Collection[str] | None = None) -> int:
    """Replace a text in captions. Raises ConfigError, CannotWrite."""
    what = f"{search.text!r} became {replacement!r} in captions"
    return _rewrite(dataset, what, search.replacer(replacement), names)


def add_prefix(dataset: Path, prefix: str, names: Collection[str] | None = None) -> int:
    """Prepend a text and a space to captions that do not start with it. Raises ConfigError, CannotWrite."""
    given = _given(prefix, "prefix")
    what = f"{given!r} added in front of captions"
    return _rewrite(dataset, what, lambda text: text if text.startswith(given) else f"{given} {text}", names)


def add_suffix(dataset: Path, suffix: str, names: Collection[str] | None = None) -> int:
    """Append a text, after a space unless it starts with punctuation, to captions that do not end with it. Raises as
    above."""
    given = _given(suffix, "suffix")
    gap = "" if given[0] in PUNCTUATION else " "

    def put(text: str) -> str:
        if not text:
            return given.lstrip(PUNCTUATION)
        return text if text.endswith(given) else f"{text}{gap}{given}"

    return _rewrite(dataset, f"{given!r} appended to captions", put, names)


def add_trigger_word(dataset: Path) -> int:
    """Add the trigger word to captions without it, as training does anyway. Raises ConfigError."""
    info, what = read_info(dataset), f"trigger word {_trigger_word(dataset)} added to captions"
    return _rewrite(dataset, what, lambda text: info.caption(Clip(file_name="clip", text=text)), None)


def remove_trigger_word(dataset: Path) -> int:
    """Remove the dataset's trigger word from captions (training still adds it). Raises ConfigError."""
    word = _trigger_word(dataset)
    inside = regex.compile(rf"\s*(?<!\w){regex.escape(word)}(?!\w)", regex.IGNORECASE)
    what = f"trigger word {word} removed from captions"
    return _rewrite(dataset, what, lambda text: inside.sub("", _without_tag(text, word)), None)


def remove_tag(dataset: Path, tag: str, names: Collection[str] | None = None) -> int:
    """Remove a tag from comma-separated captions, ignoring case. Raises ConfigError, CannotWrite."""
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
    """Remove a tag from a caption. A caption without it is returned unchanged, including its spaces."""
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


# ---- tags ------------------------------------------------------------------------------------------------------------


def tag_counts(clips: Iterable[Clip]) -> Counter[str]:
    """Count the captions with each comma-separated tag, ignoring case."""
    counts: Counter[str] = Counter()
    spelling: dict[str, str] = {}  # the first one seen
    for clip in clips:
        tags = {tag.casefold(): tag for tag in map(str.strip, clip.text.split(",")) if tag}
        counts.update(spelling.setdefault(folded, tag) for folded, tag in tags.items())
    return counts
