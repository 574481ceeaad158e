"""The workspace: a folder of plain files, shared by page, notebooks, shell and background jobs.

    layout               where datasets, runs, samples ... live, which paths lead outside, and safe names
    files                atomic writes, and reading JSON that anybody may have edited
    records              files with records of a known shape
    disk                 differences between operating systems: locks, renames, links
    folders              notes and groups of a run or dataset, and the bin
    named_paths          paths that a person writes, limited to allowed folders
    safetensors_header   names, shapes and metadata of a safetensors file
    lora_names           names of LoRAs and the files they stand for
    strange_names        files that the workbench did not create
    zip_stream           zip archives, written to disk or streamed

The formats of the files belong to other packages: clips, jobs, runs, sampler.
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
    LORA_NAME,
    SLUG,
    Workspace,
    checked_slug,
    confined,
    fresh_folder,
    is_slug,
    numbered,
    slugify,
    step_folders,
    step_of,
)

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
