"""The import rules of docs/architecture.md, read from the source. A rule worth stating is a rule worth failing on."""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "workbench"

GROUND = {"errors", "paths", "display", "workspace", "settings", "hub", "snapshots"}
BASE = GROUND | {"jobs", "families", "vision", "clips"}
FACES_READ = BASE | {"captioners", "dataset_builder", "runs", "fit", "trainer", "sampler", "compare", "loras"}
FACES_READ |= {
    "choices", "form_rules", "overview", "api", "publishing", "remote", "demo", "operations",
}  # fmt: skip
FACES_READ |= {"demo_space"}
# Who may import whom, by packages and by the modules beside them. No two reach each other.
MAY_IMPORT = {
    "": set(),  # workbench/__init__.py loads its names on first use
    "errors": set(),
    "paths": set(),
    "display": {"paths"},
    "workspace": {"errors", "display"},
    "settings": {"errors", "workspace", "snapshots"},
    "hub": {"errors"},
    "snapshots": set(),
    "jobs": {"errors", "paths", "workspace", "display", "snapshots"},
    "families": GROUND | {"jobs", "memory"},
    "vision": GROUND | {"jobs"},
    "clips": GROUND | {"families", "vision"},
    "memory": {"errors"},
    "captioners": BASE,
    "dataset_builder": BASE | {"captioners", "runs"},
    "runs": BASE,
    "fit": BASE | {"captioners", "dataset_builder", "runs"},
    "sampler": BASE | {"memory", "captioners"},
    "trainer": BASE | {"memory", "runs", "fit", "sampler"},
    "compare": BASE | {"runs", "sampler"},
    "loras": BASE | {"runs", "sampler", "trainer", "memory"},
    "publishing": BASE | {"runs", "loras"},
    "remote": BASE | {"runs", "trainer"},
    "demo": BASE | {"dataset_builder", "runs"},
    "demo_space": BASE | {"runs"},
    "choices": BASE | {"captioners", "runs", "fit", "loras", "compare"},
    "overview": BASE | {"dataset_builder", "runs", "sampler"},
    "form_rules": BASE | {"runs", "sampler"},
    "operations": FACES_READ - {"api", "operations"},
    "api": FACES_READ - {"api"},
    "ui": FACES_READ,
    "notebook": FACES_READ,
    "cli": FACES_READ,
    "__main__": {"cli"},
}

HEAVY = {"torch", "torchvision", "diffusers", "transformers", "peft", "accelerate"}
ONLY_IN = {
    **dict.fromkeys(HEAVY, {"families", "trainer", "sampler", "memory", "loras"}),
    "gradio": {"ui", "webui"},
    "anywidget": {"notebook"},
    "ipywidgets": {"notebook"},
    "traitlets": {"notebook"},
    "IPython": {"notebook"},
    "click": {"cli"},
    "rich": {"cli"},
    "av": {"clips", "dataset_builder"},
    "decord": {"clips"},
    "scenedetect": {"dataset_builder"},
    "cv2": {"clips", "dataset_builder", "vision"},
    "pyarrow": {"dataset_builder"},
    "rapidocr": {"dataset_builder"},
    "pytorch_optimizer": {"trainer"},
    "bitsandbytes": {"trainer"},
    "trackio": {"ui", "trainer"},
    "wandb": {"trainer"},
    "comet_ml": {"trainer"},
    "asyncssh": {"remote"},
    "sshfs": {"remote"},
    "fsspec": {"remote"},
    "submitit": {"remote"},
    **dict.fromkeys(("fcntl", "resource", "pwd", "grp", "termios", "pty", "tty"), {"workspace", "jobs"}),
    **dict.fromkeys(("msvcrt", "_winapi", "winreg", "filelock"), {"workspace", "jobs"}),
}
# What Windows lacks: names of os and signal, arguments of subprocess.
SYSTEM_FILES = {PACKAGE / "workspace" / "disk.py", PACKAGE / "jobs" / "platform.py", PACKAGE / "jobs" / "limited.py"}
_OS = "fork killpg getpgid getsid setsid getuid geteuid nice mkfifo statvfs symlink chown O_NOFOLLOW O_NONBLOCK sync"
_OS += " replace rename"  # which fail on Windows while somebody reads the file
_SIGNAL = "SIGKILL SIGSTOP SIGCONT SIGHUP SIGUSR1 SIGUSR2 SIGPROF SIGALRM SIGCHLD setitimer pthread_kill"
POSIX_NAMES = {f"os.{name}" for name in _OS.split()} | {f"signal.{name}" for name in _SIGNAL.split()}
POSIX_ARGUMENTS = {"start_new_session", "preexec_fn", "pass_fds", "process_group"}
# Files outside of those may load them too, inside their functions.
HEAVY_FILES = {PACKAGE / "captioners" / "vision_language.py", PACKAGE / "jobs" / "torch_devices.py"}
HEAVY_FILES |= {PACKAGE / "vision" / f"{name}.py" for name in ("local_models", "depth_and_pose", "segmenting")}
# Of families: modules of torch's own classes, which are imported inside methods only.
WITH_TORCH = {
    PACKAGE / "families" / f"{name}.py" for name in ("cogvideox/attention", "phenaki/tokenizer", "phenaki/transformer")
}
# Where an error of any kind may be caught for good: what elements ask, a clip or a sample among many, a tracker.
CATCH_ALL = {
    "workbench/api/watching.py",
    "workbench/operations/watched.py",
    "workbench/dataset_builder/ingest/worker.py",
    "workbench/sampler/worker.py",
    "workbench/trainer/trackers.py",  # third-party programs; a failure of theirs does not end the run
}


@dataclass(frozen=True)
class Import:
    """One import: who, what, on which line, and whether it happens when the module is loaded."""

    file: Path
    name: str
    line: int
    eager: bool

    @property
    def part(self) -> str:
        """The importing part: "errors", "ui", "families" ..."""
        if self.file.parent == ROOT:
            return self.file.stem
        first = self.file.relative_to(PACKAGE).parts[0].removesuffix(".py")
        return "" if first == "__init__" else first

    def __str__(self) -> str:
        return f"{self.file.relative_to(ROOT)}:{self.line} imports {self.name}"


def sources() -> list[Path]:
    return [*sorted(PACKAGE.rglob("*.py")), *(path for path in [ROOT / "webui.py"] if path.exists())]


def imports(file: Path) -> Iterator[Import]:
    """Every import of a file that happens when it runs (not those for type checkers alone)."""
    yield from _walk(file, ast.parse(file.read_text(encoding="utf-8")), eager=True)


def _walk(file: Path, node: ast.AST, eager: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
            continue
        if isinstance(child, ast.Import):
            for alias in child.names:
                yield Import(file, alias.name, child.lineno, eager)
        elif isinstance(child, ast.ImportFrom):
            assert not child.level, f"{file}:{child.lineno}: relative import, name the whole path"
            # `from workbench import jobs` is an import of workbench.jobs.
            if child.module == "workbench":
                names = [f"workbench.{alias.name}" for alias in child.names]
            elif child.module and child.module.startswith("workbench.") and (PACKAGE / _path(child.module)).is_dir():
                names = [f"{child.module}.{alias.name}" for alias in child.names]
            else:
                names = [child.module or ""]
            for name in names:
                yield Import(file, name, child.lineno, eager)
        else:
            inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            yield from _walk(file, child, eager and not inside)


def _path(module: str) -> str:
    return module.removeprefix("workbench.").replace(".", "/")


@functools.cache
def every_import() -> list[Import]:
    return [found for file in sources() for found in imports(file)]


def test_the_rules_name_every_part() -> None:
    parts = {"" if p.stem == "__init__" else p.stem for p in PACKAGE.iterdir() if p.suffix == ".py" or p.is_dir()}
    assert parts - {"__pycache__"} == set(MAY_IMPORT)


def test_no_part_imports_what_it_may_not() -> None:
    wrong = []
    for found in every_import():
        name = found.name.removeprefix("workbench.")
        if found.part == "webui" or not found.name.startswith("workbench.") or name.startswith("_"):
            continue
        allowed = MAY_IMPORT[found.part] | {found.part}
        if not any(name == one or name.startswith(f"{one}.") for one in allowed if one):
            wrong.append(str(found))
    assert not wrong, "\n".join(wrong)


def test_no_two_parts_reach_each_other() -> None:
    """The table has no circle, so a part can be read, tested and replaced with what lies below it alone."""
    below = {part: set(allowed) for part, allowed in MAY_IMPORT.items()}
    while free := [part for part, allowed in below.items() if not allowed & below.keys()]:
        for part in free:
            del below[part]
    assert not below, f"in a circle: {sorted(below)}"


def test_no_modules_import_each_other_in_a_circle() -> None:
    """When they are loaded: a method may import the module that shows its object."""
    names = {file: _module(file) for file in sources()}
    below: dict[str, set[str]] = {name: set() for name in names.values()}
    for found in (one for one in every_import() if one.eager):
        name = found.name
        while name and name not in below:
            name = name.rpartition(".")[0]
        if name and name != names[found.file]:
            below[names[found.file]].add(name)
    try:
        TopologicalSorter(below).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


def _module(file: Path) -> str:
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_each_package_stays_where_it_belongs() -> None:
    wrong = []
    for found in every_import():
        package = found.name.split(".")[0]
        if package in HEAVY and found.file in HEAVY_FILES and not found.eager:
            continue
        homes = ONLY_IN.get(package)
        if homes is not None and found.part not in homes:
            wrong.append(str(found))
    assert not wrong, "\n".join(wrong)


def test_what_one_operating_system_has_is_known_in_one_place() -> None:
    wrong = []
    for file in sources():
        if file in SYSTEM_FILES:
            continue
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and ast.unparse(node) in POSIX_NAMES or _links(node):
                found = ast.unparse(node)
            elif isinstance(node, ast.keyword) and node.arg in POSIX_ARGUMENTS:
                found = str(node.arg)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("/proc"):
                found = node.value
            else:
                continue
            home = "workspace/disk.py, jobs/platform.py or jobs/limited.py"
            wrong.append(f"{file.relative_to(ROOT)}:{node.lineno} names {found}: it belongs in {home}")
    assert not wrong, "\n".join(wrong)


def test_text_files_are_opened_with_their_encoding() -> None:
    """Without one it is that of the system: another one on Windows."""
    wrong = []
    for file in [*sources(), *sorted((ROOT / "scripts").glob("*.py"))]:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and _opens_text(node) and not any(k.arg == "encoding" for k in node.keywords):
                wrong.append(f"{file.relative_to(ROOT)}:{node.lineno} {ast.unparse(node)[:60]}: give encoding")
    assert not wrong, "\n".join(wrong)


def _opens_text(call: ast.Call) -> bool:
    """read_text and write_text of a path, open of a file in a text mode that is written there."""
    of_path = isinstance(call.func, ast.Attribute)
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    given = [getattr(one, "value", None) for one in call.args]
    if name in ("read_text", "write_text"):
        return of_path and "utf-8" not in given
    mode = next(iter(given if of_path else given[1:]), None)
    return name == "open" and isinstance(mode, str) and set(mode) <= set("rwxat+")


def _links(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in ("symlink_to", "prctl")


def test_families_load_torch_inside_their_methods_only() -> None:
    wrong = [
        str(f)
        for f in every_import()
        if f.part == "families" and f.eager and f.name.split(".")[0] in HEAVY and f.file not in WITH_TORCH
    ]
    heavy = tuple(f"{file.parent.name}.{file.stem}" for file in WITH_TORCH)
    wrong += [str(f) for f in every_import() if f.eager and f.name.endswith(heavy) and f.file not in WITH_TORCH]
    assert not wrong, "\n".join(wrong)


LIGHT = (
    "workbench", "workbench.choices", "workbench.jobs", "workbench.cli", "workbench.cli.follow",
    "workbench.cli.training", "workbench.cli.files", "workbench.operations.clips", "workbench.cli.samples",
    "workbench.compare.export", "workbench.cli.status", "workbench.runs.run",
    "workbench.runs.analysis.curves", "workbench.runs.analysis.diagnosis", "workbench.runs.failures",
    "workbench.runs.sweeps", "workbench.fit.estimate", "workbench.fit.levels", "workbench.fit.measurement",
    "workbench.runs.analysis.comparison", "workbench.trainer.optimizers", "workbench.remote.sync",
    "workbench.trainer.encoding_job", "workbench.remote.server", "workbench.sampler.queue",
    "workbench.sampler.samples", "workbench.loras.library", "workbench.loras.removal", "workbench.loras.tasks",
    "workbench.cli.operations", "workbench.dataset_builder.dataset", "workbench.dataset_builder.dataset",
    "workbench.runs.report", "workbench.dataset_builder.captions.captioning", "workbench.captioners",
    "workbench.dataset_builder.checks.findings", "workbench.dataset_builder.checks.fixes",
    "workbench.dataset_builder.checks.statistics", "workbench.publishing.push", "workbench.clips.buckets",
    "workbench.clips.made", "workbench.vision.segmenting", "workbench.sampler.vae_reconstruction", "workbench.demo",
    "workbench.notebook", "webui",
)  # fmt: skip


def test_faces_and_readers_load_no_torch() -> None:
    """In one process, which says after each module what it has loaded: the first that names a package is to blame."""
    code = f"import sys\nfor name in {LIGHT!r}:\n    __import__(name)\n    print(name, *({HEAVY!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == list(LIGHT)


def test_every_error_is_caught_at_the_named_boundaries_only() -> None:
    wrong = []
    for file in sources():
        name = str(file.relative_to(ROOT))
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ExceptHandler) and name not in CATCH_ALL and _catches_all(node):
                wrong.append(f"{name}:{node.lineno}")
    assert not wrong, "\n".join(wrong)


def _catches_all(handler: ast.ExceptHandler) -> bool:
    if isinstance(handler.body[-1], ast.Raise) and handler.body[-1].exc is None:
        return False  # cleans up and passes the error on
    if handler.type is None:
        return True
    named = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(isinstance(one, ast.Name) and one.id in ("Exception", "BaseException") for one in named)


def test_every_module_says_what_it_does() -> None:
    texts = {file.relative_to(ROOT): file.read_text(encoding="utf-8") for file in sources()}
    silent = [str(file) for file, text in texts.items() if text.strip() and not ast.get_docstring(ast.parse(text))]
    assert not silent, f"no docstring: {silent}"
