"""What is wrong with captions: empty, short, the same, longer than the model reads, some with the trigger word.

Tokens are counted by the model's own tokenizer, where it is on disk; nothing is downloaded and nothing is guessed.

    .check/tokens.json    {model, limit, trigger_word, counts: {text_hash: tokens}}: for statistics
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from workbench.clips.records import Clip, DatasetInfo
from workbench.dataset_builder.checks.findings import Finding, finding_of
from workbench.dataset_builder.checks.measures import FOLDER
from workbench.display.quantities import counted
from workbench.errors import ModelUnavailable
from workbench.families.base import Family
from workbench.families.model import Model
from workbench.families.model_inputs import CaptionTokens
from workbench.workspace.records import read_record

TOKENS = "tokens.json"


def check_captions(clips: Sequence[Clip], info: DatasetInfo, fewest_words: int) -> Iterator[Finding]:
    """Findings that need no tokenizer."""
    same: dict[str, list[Clip]] = {}
    for clip in clips:
        words = len(clip.text.split())
        if not words:
            taught = f"only the trigger word {info.trigger_word!r}" if info.trigger_word else "nothing"
            yield finding_of(
                "no_caption", f"{clip.name} has no caption: {taught} describes it to the model.", [clip], info
            )
            continue
        same.setdefault(" ".join(clip.text.lower().split()), []).append(clip)
        if words < fewest_words:
            sentence = f"{clip.name} is described in {counted(words, 'word')}: {clip.text.strip()!r}."
            yield finding_of("short_caption", sentence, [clip], info)
    for group in same.values():
        if len(group) > 1:
            shared = f"{len(group)} clips share the caption {_short(group[0].text)!r}"
            yield finding_of("same_caption", f"{shared}: the model cannot distinguish them by words.", group, info)
    yield from _check_trigger(clips, info)


def _check_trigger(clips: Sequence[Clip], info: DatasetInfo) -> Iterator[Finding]:
    """Training puts the word in front where it is missing; that matters where other captions hold it elsewhere."""
    word = info.trigger_word.strip()
    captioned = [clip for clip in clips if clip.text.strip()]
    without = [clip for clip in captioned if info.caption(clip) != clip.text.strip()] if word else []
    if without and len(without) < len(captioned):
        yield finding_of(
            "trigger",
            f"{len(without)} of {len(captioned)} captions do not name {word!r}: training puts it in front of them, "
            "other tools that read this dataset will not.",
            without,
            info,
        )


def check_tokens(
    clips: Sequence[Clip], info: DatasetInfo, family: Family, model: Model
) -> tuple[list[Finding], dict[str, Any]]:
    """(findings, what tokens.json should hold). The second is empty where the tokenizer is not on disk."""
    folder = family.on_disk(model)
    try:
        if folder is None:
            raise ModelUnavailable(f"The tokenizer of {model.title} is not on this machine yet")
        tokenized = family.caption_tokens(folder, [info.caption(clip) for clip in clips])
    except ModelUnavailable as error:
        sentence = f"{error}: download the model (a training run does), then check again."
        return [finding_of("tokens_unknown", sentence)], {}
    found = [_too_long(clip, info, tokens, model) for clip, tokens in zip(clips, tokenized, strict=True) if tokens.cut]
    counts = {text_hash(clip): tokens.count for clip, tokens in zip(clips, tokenized, strict=True)}
    limit = tokenized[0].limit if tokenized else 0
    return found, {"model": model.id, "limit": limit, "trigger_word": info.trigger_word, "counts": counts}


def _too_long(clip: Clip, info: DatasetInfo, tokens: CaptionTokens, model: Model) -> Finding:
    """The trigger word is what matters most: what is called by it is not learned where it is not read."""
    found = f"The caption of {clip.name} has {tokens.count} tokens, {model.title} reads {tokens.limit}: "
    read = info.caption(clip).removesuffix(tokens.cut)
    if info.trigger_word.strip() and info.caption(clip.changed(text=read)) != read.strip():
        found += f"it never sees the trigger word {info.trigger_word.strip()!r}, which stands after them."
        return finding_of("trigger_unread", found, [clip], info, cut=tokens.cut)
    return finding_of(
        "long_caption", f"{found}it never sees {_short(tokens.cut, 200)!r}.", [clip], info, cut=tokens.cut
    )


class _Tokens(BaseModel):
    """tokens.json."""

    limit: int
    trigger_word: str
    counts: dict[str, int]


def read_tokens(dataset: Path, info: DatasetInfo) -> tuple[int, dict[str, int]]:
    """(limit, `text_hash` -> tokens) of the last check; (0, {}) where it does not tell."""
    known = read_record(dataset / FOLDER / TOKENS, _Tokens)
    if known is None or known["trigger_word"] != info.trigger_word:  # the captions as they are taught have changed
        return 0, {}
    return known["limit"], known["counts"]


def text_hash(clip: Clip) -> str:
    """Stands for a caption as written."""
    return hashlib.sha256(clip.text.encode()).hexdigest()[:16]


def _short(text: str, longest: int = 60) -> str:
    text = " ".join(text.split())
    return text if len(text) <= longest else f"{text[: longest - 4]} ..."
