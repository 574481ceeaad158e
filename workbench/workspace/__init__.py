"""The disk, which every part and every face meets on: a workspace is a folder of plain files.

    layout          where things live: datasets, runs, samples ... and which paths lead outside
    names           names that are safe as folder names
    files           writes that are all or nothing; JSON that anybody may have edited
    records         files of a known shape, read whole or not at all
    disk            what differs between operating systems: locks, renames, links
    folders         what a person does with a whole run or dataset: notes, the bin
    named_paths     paths that a person writes, kept to the folders that are open
    safetensors_header   what is in a file of weights, without its weights
    lora_names      what LoRAs are called, and which file a name stands for
    strange_names   files that the workbench did not create
    zip_stream      files as a zip, on the disk or piece by piece

What is inside the files belongs to the parts: clips, jobs, runs, sampler own their formats. This module names what
others use most.
"""

from __future__ import annotations

from workbench.workspace.files import (
    append_line,
    finite,
    from_json,
    link_or_copy,
    make_folder,
    read_bytes,
    read_json,
    read_object,
    read_to_change,
    replacing,
    size_of,
    sync_folder,
    write_bytes,
    write_json,
    write_text,
    writing,
)
from workbench.workspace.layout import (
    ENVIRONMENT_VARIABLE,
    FORMER_NAMES,
    Workspace,
    confined,
    fresh_folder,
    numbered,
    step_folders,
)
from workbench.workspace.names import LORA_NAME, SLUG, checked_slug, is_slug, slugify, step_of

__all__ = [
    "ENVIRONMENT_VARIABLE",
    "FORMER_NAMES",
    "LORA_NAME",
    "SLUG",
    "Workspace",
    "append_line",
    "checked_slug",
    "confined",
    "finite",
    "fresh_folder",
    "numbered",
    "from_json",
    "is_slug",
    "link_or_copy",
    "make_folder",
    "read_bytes",
    "read_json",
    "read_object",
    "read_to_change",
    "replacing",
    "size_of",
    "slugify",
    "step_folders",
    "step_of",
    "sync_folder",
    "write_bytes",
    "write_json",
    "write_text",
    "writing",
]
