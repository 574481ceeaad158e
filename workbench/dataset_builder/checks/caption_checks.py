"""What is wrong with captions: empty, short, the same, longer than the model reads, some with the trigger word.

Tokens are counted by the model's own tokenizer, where it is on disk; nothing is downloaded and nothing is guessed.

    .check/tokens.json    {model, limit, trigger_word, counts: {text_hash: tokens}}: for statistics
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from workbench.clips.records import Clip, DatasetInfo
from workbench.dataset_builder.checks.findings import Finding, Severity, caption_finding
from workbench.dataset_builder.checks.measures import FOLDER
from workbench.errors import ModelUnavailable
from workbench.families.base import CaptionTokens, Family, Model
from workbench.workspace import read_json, write_json

TOKENS = "tokens.json"


def check_captions(clips: Sequence[Clip], info: DatasetInfo, fewest_words: int) -> Iterator[Finding]:
    """Findings that need no tokenizer."""
    same: dict[str, list[Clip]] = {}
    for clip in clips:
        words = len(clip.text.split())
        if not words:
            taught = f"only the trigger word {info.trigger_word!r}" if info.trigger_word else "nothing"
            yield caption_finding(
                "no_caption",
                "No caption",
                f"{_name(clip)} has no caption: {taught} describes it to the model.",
                Severity.HURTS,
                [clip],
                info,
                ["tag", "remove"],
            )
            continue
        same.setdefault(" ".join(clip.text.lower().split()), []).append(clip)
        if words < fewest_words:
            yield caption_finding(
                "short_caption",
                "Very short caption",
                f"{_name(clip)} is described in {words} word{'s' if words > 1 else ''}: {clip.text.strip()!r}.",
                Severity.LOOK,
                [clip],
                info,
                ["tag"],
            )
    for group in same.values():
        if len(group) > 1:
            yield caption_finding(
                "same_caption",
                "The same caption",
                f"{len(group)} clips share the caption {_short(group[0].text)!r}: "
                "the model cannot distinguish them by words.",
                Severity.LOOK,
                group,
                info,
                ["tag"],
            )
    yield from _trigger(clips, info)


def _trigger(clips: Sequence[Clip], info: DatasetInfo) -> Iterator[Finding]:
    """Training puts the word in front where it is missing; that matters where other captions hold it elsewhere."""
    word = info.trigger_word.strip()
    captioned = [clip for clip in clips if clip.text.strip()]
    without = [clip for clip in captioned if info.caption(clip) != clip.text.strip()] if word else []
    if without and len(without) < len(captioned):
        yield caption_finding(
            "trigger",
            "Trigger word in some captions only",
            f"{len(without)} of {len(captioned)} captions do not name "
            f"{word!r}: training puts it in front of them, other tools that read this dataset will not.",
            Severity.LOOK,
            without,
            info,
            ["add_trigger", "tag"],
        )


def count_tokens(family: Family, model: Model, captions: Sequence[str]) -> list[CaptionTokens]:
    """What the model reads of each caption. Raises ModelUnavailable where its tokenizer is not on disk."""
    folder = family.on_disk(model)
    if folder is None:
        raise ModelUnavailable(f"The tokenizer of {model.title} is not on this machine yet")
    return family.caption_tokens(folder, captions)


def check_tokens(
    clips: Sequence[Clip], info: DatasetInfo, family: Family, model: Model
) -> tuple[list[Finding], dict[str, Any]]:
    """(findings, what tokens.json should hold). The second is empty where the tokenizer is not on disk."""
    try:
        counted = count_tokens(family, model, [info.caption(clip) for clip in clips])
    except ModelUnavailable as error:
        unknown = Finding(
            kind="tokens_unknown",
            title="Caption lengths not checked",
            severity=Severity.LOOK,
            sentence=f"{error}: download the model (a training run does), then check again.",
        )
        return [unknown], {}
    found = [
        caption_finding(
            "long_caption",
            "Caption longer than the model reads",
            f"The caption of {_name(clip)} has {tokens.count} "
            f"tokens, {model.title} reads {tokens.limit}: it never sees {_short(tokens.cut, 200)!r}.",
            Severity.HURTS,
            [clip],
            info,
            ["shorten_caption", "tag"],
            cut=tokens.cut,
        )
        for clip, tokens in zip(clips, counted, strict=True)
        if tokens.cut
    ]
    counts = {text_hash(clip): tokens.count for clip, tokens in zip(clips, counted, strict=True)}
    limit = counted[0].limit if counted else 0
    return found, {"model": model.id, "limit": limit, "trigger_word": info.trigger_word, "counts": counts}


def write_tokens(dataset: Path, known: Mapping[str, Any]) -> None:
    """Keep the counts for statistics. Raises CannotWrite."""
    write_json(dataset / FOLDER / TOKENS, known)


def read_tokens(dataset: Path, info: DatasetInfo) -> tuple[int, dict[str, int]]:
    """(limit, `text_hash` -> tokens) of the last check; (0, {}) where it does not tell. Raises ConfigError."""
    path = dataset / FOLDER / TOKENS
    known = read_json(path) if path.exists() else {}
    if known.get("trigger_word") != info.trigger_word:  # the captions as they are taught have changed
        return 0, {}
    return known["limit"], known["counts"]


def text_hash(clip: Clip) -> str:
    """Stands for a caption as written."""
    return hashlib.sha256(clip.text.encode()).hexdigest()[:16]


def _name(clip: Clip) -> str:
    return clip.source or clip.id


def _short(text: str, longest: int = 60) -> str:
    text = " ".join(text.split())
    return text if len(text) <= longest else f"{text[: longest - 4]} ..."
