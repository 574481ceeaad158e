"""`python -m tests.attacks.rooted_page FOLDER`: the page over FOLDER/workspace, which may read FOLDER/root, too."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from workbench.workspace import Workspace, named_paths


def main(folder: Path) -> None:
    workspace = Workspace.open(folder / "workspace")
    os.environ["GRADIO_TEMP_DIR"] = str(workspace.cache / "page")
    from workbench.ui.app import build, launch_options

    named_paths.confine([folder / "root", workspace.root])
    page = build(workspace)
    _, url, _ = page.launch(prevent_thread_lock=True, **launch_options(workspace))
    print(url, flush=True)
    page.block_thread()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
