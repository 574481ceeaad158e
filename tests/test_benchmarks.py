"""Every benchmark can be called: it takes the options that all have. `make benchmarks` runs them."""

from __future__ import annotations

import json
import subprocess
import sys

from benchmarks.smallest import scripts
from workbench.paths import CODE

# In one process: each script begins as it does when it is called, and ends once it has read its options.
ASK = """
import argparse, contextlib, json, os, runpy, sys
sys.path.insert(0, "")
found, read = [], argparse.ArgumentParser.parse_args
def only_read(parser, arguments=None, namespace=None):
    if read(parser, ["--smallest", "--json", "x.json"]).smallest:
        found.append(path)
    sys.exit()
argparse.ArgumentParser.parse_args = only_read
for path in sys.argv[1:]:
    sys.path[0] = os.path.dirname(path)
    with contextlib.suppress(SystemExit):
        runpy.run_path(path, run_name="__main__")
print(json.dumps(found))
"""


def test_every_script_reads_its_options() -> None:
    paths = [str(path) for path in scripts().values()]
    assert len(paths) > 30
    done = subprocess.run([sys.executable, "-c", ASK, *paths], capture_output=True, text=True, cwd=CODE)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == paths
