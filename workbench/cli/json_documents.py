"""What commands print with --json: one document each, and what its keys mean. docs/json.md is written from this.

Not covered: making them (json_values, and the snapshots of runs, datasets, grids and the workspace).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from workbench.operations.registry import keys_of, operations
from workbench.operations.samples import Requested


@dataclass(frozen=True)
class Document:
    """keys: each key of the object, and what it is;  many: a list of such objects"""

    about: str
    keys: Mapping[str, str]
    many: bool = False


CHECKS = {"title": "what was looked at", "found": "what was found", "remedy": 'what to do; "" when all is well'}
DATASET = {
    "name": "what commands take",
    "folder": "where it is",
    "title": "for people",
    "trigger_word": 'added to every caption without it; "" for none',
    "group": 'the label that lists show it under; "" for none',
    "created_at": "Unix time, null of a folder that was not made here",
    "changed_at": "Unix time of the last change of clips, captions, title or notes",
    "own_notes": 'what a person wrote about it; "" for nothing',
    "summary": "clips, seconds, sizes, fps, missing_captions, refused",
    "damage": "what of its records cannot be read and what to do about it, a sentence each",
}
CLIP = {
    "file_name": "below the dataset's folder",
    "name": "as every face shows it: the source file's name, of a part with its times",
    "source": "the original file's name",
    "caption": "without the trigger word",
    "tags": "of the clip",
    "width": "pixels",
    "height": "pixels",
    "frames": "how many",
    "fps": "frames per second",
    "seconds": "length",
}
FINDINGS = {
    "dataset": "its name",
    "sentence": "the outcome in words",
    "checked_at": "Unix time",
    "model": "that the clips were judged for",
    "clips": "how many were checked",
    "new_clips": "clips that came or changed since, of which nothing is known",
    "findings": "a list: kind, title, sentence, severity, clips (file names), fixes (what `dataset fix` takes)",
}
TARGET = {
    "name": "what `--target` takes",
    "kind": "ssh, slurm or hf-jobs; null when its file cannot be read",
    "settings": "those that differ from their defaults",
    "problem": 'why it cannot be used; "" when it can',
}
NOTE = {"name": "what commands take", "own_notes": 'what a person wrote about it; "" for nothing'}
GROUP = {"name": "what commands take", "group": 'that it is in now; "" for none'}
DOCUMENTS = {
    "status": Document(
        "What goes on in the workspace.",
        {
            "active": "runs that train, wait or are paused: name, state, tone, activity, share of the steps, message",
            "failed": "runs that failed in the last days, the same; message says why and what is next",
            "ended": "the newest of the other runs, the same",
            "samples": "the newest: id, video, prompt, problem",
            "datasets": "the newest: name, title, contents, activity, next_step",
            "next_steps": "what comes next: kind, label, reason, target",
            "machine": 'a disk that is nearly full; "" otherwise',
        },
    ),
    "dataset preview": Document(
        "What an import would take of what was named, before any file is opened.",
        {
            "hub_dataset": "repo_id, commit, config, files (name -> bytes) of the one that was named; null without",
            "sources": "a list: name, path, layout, other_layouts (that fit as well), bytes, files (name, caption), "
            "warnings, refused (entry of an archive -> why)",
            "refused": "what cannot be read -> why",
            "sentences": "the same in words",
        },
    ),
    "dataset list": Document(
        "Every dataset; with --removed a list of the names by which removed ones are restored.",
        DATASET,
        many=True,
    ),
    "dataset show": Document(
        "One dataset.",
        {
            **DATASET,
            "facts": "the numbers in words: label -> value",
            "next_steps": "what is still to do, a sentence each",
            "tasks": "those that were ever started: name, state, share, activity, sentence, details, log, actions",
            "clips": "file_name, name, caption, tags, width, height, frames, fps, seconds, source of each",
            "refused": "files that could not be used, a sentence each",
        },
    ),
    "dataset history": Document(
        "What was done to a dataset, the oldest change first.",
        {
            "number": "what `undo` takes",
            "time": "Unix time",
            "kind": "change, undo, redo, or note (of an import or a new title, which `undo` does not take)",
            "what": "the change in words",
            "sentence": "the same, with what kind it is",
            "clips": "how many it touched",
            "undoes": "the number of the change that it took back, else null",
        },
        many=True,
    ),
    "dataset note": Document("The notes on a dataset, as they are now.", NOTE),
    "dataset group": Document("The group of a dataset, as it is now.", GROUP),
    "dataset trigger": Document(
        "The trigger word of a dataset, as it is now.",
        {
            "name": "of the dataset",
            "trigger_word": 'added to every caption without it; "" for none',
            "changed": "captions that --write or --remove changed",
        },
    ),
    "dataset restore": Document("The clips that were removed.", CLIP, many=True),
    "dataset stats": Document(
        "A dataset in numbers.",
        {
            "notes": "in words",
            "histograms": "duration, motion, words, tokens: title, unit, edges, counts; those that are known",
            "counts": "title -> value -> clips with it",
        },
    ),
    "dataset check": Document("What the check found, when it is over.", FINDINGS),
    "dataset findings": Document("What the last check found, as far as it still holds.", FINDINGS),
    "dataset tasks": Document(
        "The background tasks that were ever started.",
        {
            "name": "of the task",
            "state": "running, finished, failed, stopped, died ...",
            "share": "of the work that is done, null while unknown",
            "activity": 'what it does now; "" unless it works',
            "sentence": 'how it ended; "" before',
            "details": "more of that, a line each",
            "log": "the end of it, of one that failed",
            "actions": "what may be done now: stop, resume",
            "files": "what became of each file of an import, the refused first",
        },
        many=True,
    ),
    "dataset plan": Document(
        "What a model gets of each clip.",
        {
            "sentence": "in words",
            "frames": "of each clip",
            "height": "pixels",
            "width": "pixels",
            "fps": "frames per second",
            "clips": "file_name, name, sentence, indices, resize, crop, fps, use, warnings, dropped (why it is left "
            "out, or null) of each; with --buckets file_name, name, bucket, dropped",
            "buckets": "with --buckets: the chosen ones -> how many clips each has; else {}",
            "written": "with --write: the videos; else []",
        },
    ),
    "dataset tags": Document(
        "The comma-separated tags of the captions, the most frequent first.",
        {"tag": "as it is written first", "clips": "in how many captions it stands"},
        many=True,
    ),
    "recipes": Document(
        "Settings for what is to be trained; one object for a named subject, all subjects without one.",
        {
            "subject": "style, character, object, motion, camera or effect",
            "model": "its title",
            "clips": "for how many; 0 where it is not known",
            "evidence": "how well it is documented, one sentence",
            "warning": 'what stands against the dataset; "" when nothing does',
            "settings": "setting and value, as a run's config.json has them",
            "reasons": "a list: setting (empty for advice on the dataset), title, value, reason, sources (title, url)",
            "gpu": "that memory settings, frames and size are chosen for",
        },
        many=True,
    ),
    "fit": Document(
        "Whether a run fits the GPU. The exit code is 0 when it does and 91 when it does not.",
        {
            "fits": "true or false",
            "sentence": "memory and time in words",
            "advice": 'what to think of it; "" where all is well',
            "warnings": "what the run will probably not show, and the setting that helps, a sentence each",
            "gpu": "name, kind, memory_gb, rate",
            "phases": "of the run: name, gb, fits, measured (true or false), parts in GB",
            "host_gb": "GB of CPU memory",
            "disk": "GB by part",
            "step_seconds": "of one step",
            "seconds": "of the whole run",
            "settings": "that differ from their defaults, with the changes of --fit-to-gpu",
        },
    ),
    "sample": Document(
        "What was generated, when all is over. The exit code is that of the first that failed.",
        keys_of(Requested),
        many=True,
    ),
    "grid list": Document(
        "Every grid, newest first.",
        {
            "name": "what commands take",
            "folder": "where it is",
            "done": "videos generated; null where the grid cannot be read",
            "videos": "of how many; null where the grid cannot be read",
            "problem": 'why the grid cannot be read, "" where it can',
        },
        many=True,
    ),
    "grid show": Document(
        "One grid, as its player reads it.",
        {
            "grid": "its name",
            "title": "for people",
            "run": "that it compares checkpoints of",
            "fixed": "what is the same in all videos",
            "rows": "prompt and label of each",
            "columns": "name, votes ... of each",
            "heads": "of the columns",
            "best": "the column chosen as best",
            "votes": "pairs [left, right] of videos that were compared",
            "cells": "by row and column: key, state, url, measurements, starred, rejected ...",
            "help": "what each measurement means",
            "progress": "text ...",
            "fps": "of the videos",
            "frames": "of the videos",
            "width": "of the videos",
            "height": "of the videos",
        },
    ),
    "targets": Document(
        "Machines and clusters that runs can be sent to; `targets list` is the same.", TARGET, many=True
    ),
    "targets check": Document("Whether a target is ready.", CHECKS, many=True),
    "doctor": Document("This machine. The exit code is 0 when nothing needs fixing.", CHECKS, many=True),
}


def documents() -> dict[str, Document]:
    """Return every document: those above, and the answers of the operations."""
    made = {
        f"{one.noun} {one.verb}": Document(one.help.split("\n\n")[0], keys_of(one.snapshot), one.many)
        for one in operations()
        if one.shell
    }
    return {**DOCUMENTS, **made}
