"""Read a workspace with damaged files: `python benchmarks/damaged_files.py [--json FILE] [--smallest]`.

It writes a workspace with every kind of file, then damages one file at a time in some forty ways (flipped bits, bytes
that are not UTF-8, truncated and empty files, JSON of another shape, a folder or a dangling link in its place) and
reads everything that page, shell, notebook and API show. It counts damages after which a reader failed: raised
something other than a sentence, refused a whole list, or omitted intact items. The goal is zero. --seed draws every
damage.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.common import arguments, report  # noqa: E402
from tests.every_file import Readers, damaged, damages, files, fill  # noqa: E402
from workbench.workspace import Workspace  # noqa: E402


def main() -> None:
    parser = arguments((__doc__ or "").splitlines()[0], most=1, only="presets/bad.json")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--most", type=int, default=1000, help="most damages per file")
    parser.add_argument("--only", default="", help="prefix of kinds of files")
    parser.add_argument("--damage", default="", help="name of damages, such as value")
    parser.add_argument("--folder", type=Path, help="folder of the workspace; an existing one is reused")
    options = parser.parse_args()
    tried, failed, examples = Counter[str](), Counter[str](), list[str]()
    with tempfile.TemporaryDirectory() as folder:
        workspace = Workspace.open((options.folder or Path(folder)) / "workspace")
        if not (workspace.root / ".page-key").exists():
            fill(workspace)
        readers, began = Readers(workspace), time.monotonic()
        if wrong := list(readers.failures()):
            sys.exit(f"fails without damage: {wrong}")
        for kind, path in files(workspace).items():
            if not kind.startswith(options.only):
                continue
            chance = random.Random(f"{options.seed} {kind}")
            found = list(damages(path.read_bytes(), chance))
            chance.shuffle(found)
            found = [one for one in found if one[0].startswith(options.damage)]
            for name, damage in found[: options.most]:
                with damaged(path, damage):
                    wrong = list(readers.failures(kind, name))
                tried[kind] += 1
                failed[kind] += bool(wrong)
                examples += [f"{kind}: {name}: {one.reader}: {one.what}" for one in wrong]
            print(f"{kind}: {failed[kind]} of {tried[kind]}, {time.monotonic() - began:.0f} s", file=sys.stderr)
    rows = [{"case": kind, "ours": failed[kind], "reference": 0, "damages": tried[kind]} for kind in tried]
    rows.append({"case": "all", "ours": failed.total(), "reference": 0, "damages": tried.total()})
    report(rows, options.json, seed=options.seed, examples=examples)
    if failed.total():
        sys.exit(f"{failed.total()} of {tried.total()} damages make a reader fail")


if __name__ == "__main__":
    main()
