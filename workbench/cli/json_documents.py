"""What commands print with --json: one document each, and what its keys mean. docs/json.md is written from this."""

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
    "runs": Document(
        "Every run, newest first.",
        {
            "name": "what commands take",
            "state": "new, running, paused, finished, failed, stopped, died ...",
            "position": "among the waiting runs, 1 is next; null when it does not wait",
            "activity": "what it does now, in words",
            "step": "the last one done",
            "steps": "that it has, null when its settings cannot be read",
            "loss": "smoothed, null before the first step",
            "held_out": "the first and the last loss of held-out clips; [] without",
            "diagnosis": 'its kind; "" before the first step',
            "dataset": "its name",
            "model": "its name",
            "started_at": "Unix time, null before",
            "ended_at": "Unix time, null before",
            "created_at": "Unix time",
            "group": 'that a person gave it; "" for none',
            "own_notes": 'what a person wrote about it; "" for nothing',
        },
        many=True,
    ),
    "runs show": Document(
        "One run at this moment. The HTTP API gives the same.",
        {
            "name": "what commands take",
            "folder": "where it is",
            "state": "new, running, paused, finished, failed, stopped, died ...",
            "headline": "the state in one word, `waiting` for one in the queue",
            "activity": "what it does now, in words",
            "step": "the last one done",
            "steps": "that it has",
            "seconds_left": "null while unknown",
            "position": "among the waiting runs, 1 is next; null when it does not wait",
            "facts": "key, label, text ... of each",
            "notes": "what there is to know: text, tone",
            "actions": "what makes sense now: kind, label, command",
            "checkpoints": "step, bytes, reasons why it is kept, held_out",
            "diagnosis": "kind, sentence, advice ...; null before the first measurement",
            "failure": "of a run that failed: cause, advice, actions ...; else null",
            "outcome": "of a run that ended well or was stopped: text, tone; else null",
            "best_step": "of the lowest held-out loss whose previews are good, null when unknown",
            "visible_effect": "of the newest previews: change, control_change (levels of 255), effect (the first by "
            "the second), effects (of each), visible, spoiled; null before the first",
            "previews": "step, prompt, scale, video of each",
            "control_previews": "the same of preservation prompts, which the LoRA should leave alone",
            "curves": "name -> points [step, value]",
            "parent": "what it was forked from; {} otherwise",
            "group": 'that a person gave it; "" for none',
            "own_notes": 'what a person wrote about it; "" for nothing',
            "settings": "all of them, null where this version cannot read them",
            "lora": "its safetensors file, null before it has finished",
        },
    ),
    "runs compare": Document(
        "Runs side by side.",
        {
            "names": "of the runs",
            "results": "result -> a text for each run",
            "settings": "setting that differs -> a text for each run",
        },
    ),
    "runs note": Document("The notes on a run, as they are now.", NOTE),
    "runs group": Document("The group of a run, as it is now.", GROUP),
    "runs stacks": Document(
        "What every thread of a run does, or did when it hung.",
        {"name": "of the run", "alive": "whether it runs now", "stacks": "a text, as Python's faulthandler writes it"},
    ),
    "runs restore": Document("The removed runs, removed last first.", {"name": "what `runs restore` takes"}, many=True),
    "runs queue": Document(
        "Which runs train, and which wait.", {"now": "names of those at work", "waiting": "names, the next one first"}
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
        one.command: Document(one.help.split("\n\n")[0], keys_of(one.snapshot), one.many)
        for one in operations()
        if one.shell
    }
    return {**DOCUMENTS, **made}
