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

from workbench.workspace.files import append_line as append_line
from workbench.workspace.files import finite as finite
from workbench.workspace.files import from_json as from_json
from workbench.workspace.files import link_or_copy as link_or_copy
from workbench.workspace.files import make_folder as make_folder
from workbench.workspace.files import read_bytes as read_bytes
from workbench.workspace.files import read_json as read_json
from workbench.workspace.files import read_object as read_object
from workbench.workspace.files import read_to_change as read_to_change
from workbench.workspace.files import replacing as replacing
from workbench.workspace.files import size_of as size_of
from workbench.workspace.files import sync_folder as sync_folder
from workbench.workspace.files import write_bytes as write_bytes
from workbench.workspace.files import write_json as write_json
from workbench.workspace.files import write_text as write_text
from workbench.workspace.files import writing as writing
from workbench.workspace.layout import ENVIRONMENT_VARIABLE as ENVIRONMENT_VARIABLE
from workbench.workspace.layout import FORMER_NAMES as FORMER_NAMES
from workbench.workspace.layout import LORA_NAME as LORA_NAME
from workbench.workspace.layout import SLUG as SLUG
from workbench.workspace.layout import Workspace as Workspace
from workbench.workspace.layout import checked_slug as checked_slug
from workbench.workspace.layout import confined as confined
from workbench.workspace.layout import fresh_folder as fresh_folder
from workbench.workspace.layout import is_slug as is_slug
from workbench.workspace.layout import numbered as numbered
from workbench.workspace.layout import slugify as slugify
from workbench.workspace.layout import step_folders as step_folders
from workbench.workspace.layout import step_of as step_of
