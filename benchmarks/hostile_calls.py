"""Send hostile calls to the page: `python benchmarks/hostile_calls.py [--json FILE] [--smallest]`.

A real page over a small workspace gets calls that no browser would make: every operation with values of wrong types,
unknown inputs and operations, broken bodies; then a flood of requests of all kinds, half of them without a login. It
counts answers with status 500 and above, and measures the server's memory before, between and after. The goals are zero
errors and stable memory. --seed draws every case.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import re
import secrets
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import psutil

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.common import arguments, report  # noqa: E402
from tests.drawing import COLORS, draw  # noqa: E402
from tests.serving import Page  # noqa: E402
from workbench import jobs  # noqa: E402
from workbench.clips import media  # noqa: E402
from workbench.dataset_builder import Dataset  # noqa: E402
from workbench.operations.registry import Operation, operations  # noqa: E402
from workbench.runs.run import Run  # noqa: E402
from workbench.runs.settings import TrainSettings  # noqa: E402
from workbench.workspace import Workspace  # noqa: E402

CALLS, FLOOD = 2000, 10_000
THREADS = 4
MARKUP = '<img src="//evil.example/x">'
EXAMPLES: list[str] = []  # cause of an answer with status 500 or above
VALUES: list[Any] = [
    None,
    True,
    -1,
    0,
    10**18,
    10**400,
    1e308,
    -0.5,
    "",
    " ",
    "\0",
    "../../etc/passwd",
    "/etc/passwd",
    "~/.ssh",
    MARKUP,
    "é" * 3000,
    "a/b@²",
    "x" * 300,
    "[[[[",
    '{"a": 1}',
    "null",
    "NaN",
    [],
    {},
    [[]],
    [None],
    [1, "a", {}],
    {"path": None},
    {"path": "/etc/passwd"},
    {"path": "http://127.0.0.1:1/"},
    {"path": "a", "meta": {"_type": "gradio.FileData"}},
    {"path": "/etc/passwd", "meta": {"_type": "gradio.FileData"}},
    {"video": {"path": 3}},
    {"__type__": "update"},
    {"name": MARKUP, "dataset": MARKUP},
    {"headers": [], "data": [[]]},
    ["/etc/passwd"],
    [{"path": 1}],
    "2026-13-45",
]


MOST_GROWN = 150.0  # MB
HUB = "502"  # refused by the Hub, or the Hub is unreachable
COUNTED = ("answers of 500", "the page answers")


def main() -> None:
    parser = arguments((__doc__ or "").splitlines()[0], calls=40, flood=150)
    parser.add_argument("--calls", type=int, default=CALLS)
    parser.add_argument("--flood", type=int, default=FLOOD)
    parser.add_argument("--each", type=int, default=0, help="requests of each kind, to measure memory by kind")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        page = Page(fill(Path(folder)).root)
        try:
            rows, statuses = measure(page, options)
        finally:
            page.close()
            end_jobs(page)
    report(rows, options.json, seed=options.seed, statuses=statuses, examples=EXAMPLES[:50])
    if wrong := [row["case"] for row in rows if _is_wrong(row)]:
        sys.exit(f"not as promised: {'; '.join(wrong)}")


def _is_wrong(row: dict[str, Any]) -> bool:
    """Return whether a row breaks a promise of docs/security.md. Memory may grow by what a page loads in use."""
    if "memory after" in row["case"]:
        return bool(row["ours"] > row["reference"] + MOST_GROWN)
    return row["case"].startswith(COUNTED) and row["ours"] != row["reference"]


def fill(folder: Path) -> Workspace:
    """Make a workspace with a dataset and a run, so that handlers have something to work on."""
    workspace, given = Workspace.open(folder / "workspace"), folder / "given"
    given.mkdir()
    for color in COLORS:
        media.encode(draw(9, (64, 64), color), given / f"{color}.mp4", 8)
    Dataset.create(workspace, "Squares").import_files([given])
    Run.create(workspace, TrainSettings(dataset="squares", steps=10, held_out=1), "a run")
    return workspace


def measure(page: Page, options: argparse.Namespace) -> tuple[list[dict[str, Any]], dict[str, int]]:
    chance, server = random.Random(options.seed), psutil.Process(page.process.pid)
    with page.client() as client:
        for _ in range(3):  # the first requests load modules that stay
            client.get("/")
        called = Counter[str]()
        for one in operations():
            called[str(call(client, f"{one.noun}/{one.verb}", {}))] += 1
        before = megabytes(server)
        calls(page, client, chance, options.calls, called)
        flood(client, page.url, chance, options.flood // 10)  # only what the first ones leave may stay
        between = megabytes(server)
        flooded = flood(client, page.url, chance, options.flood)
        after = megabytes(server)
        kinds = by_kind(client, server, chance, options.each) if options.each else {}
        alive = client.get("/").status_code == 200
    wrong = {
        name: sum(count for key, count in of.items() if key[0] == "5" and key != HUB)
        for name, of in {"calls": called, "flood": flooded}.items()
    }
    rows = [
        {"case": f"answers of 500 and above, {options.calls} calls", "ours": wrong["calls"], "reference": 0},
        {"case": f"answers of 500 and above, {options.flood} requests", "ours": wrong["flood"], "reference": 0},
        {"case": "memory before, MB", "ours": before, "reference": ""},
        {"case": "memory after the calls and a tenth of the flood, MB", "ours": between, "reference": before},
        {"case": "memory after the flood, MB", "ours": after, "reference": between},
        *(
            {"case": f"memory by {options.each} of {kind}, MB", "ours": grown, "reference": 0}
            for kind, grown in kinds.items()
        ),
        {"case": "the page answers afterwards", "ours": alive, "reference": True},
    ]
    return rows, {**{f"calls {k}": v for k, v in called.items()}, **{f"flood {k}": v for k, v in flooded.items()}}


def end_jobs(page: Page) -> None:
    """End the jobs that calls have started, which would distort the measurement."""
    for process in page.workspace.rglob(jobs.PROCESS):
        jobs.kill(process.parent)


def megabytes(server: psutil.Process) -> float:
    return float(server.memory_info().rss) / 1e6


# ---- calls of operations


def calls(page: Page, client: httpx.Client, chance: random.Random, count: int, called: Counter[str]) -> None:
    """Call operations in turn, each with something wrong."""
    known = operations()
    for number in range(count):
        one = known[number % len(known)]
        name = (
            f"{one.noun}/{one.verb}" if chance.random() < 0.97 else chance.choice(["a/b", "runs/", "/", "runs/show/x"])
        )
        called[str(call(client, name, hostile(one, chance)))] += 1
        if number % 20 == 19:
            end_jobs(page)
            print(f"{number} calls", end="\r", file=sys.stderr, flush=True)
    end_jobs(page)


def call(client: httpx.Client, name: str, body: Any) -> int:
    return send(client, "POST", f"/api/v1/call/{name}", content=json.dumps(body))


def hostile(one: Operation, chance: random.Random) -> Any:
    """Return the body of a call with something wrong in it."""
    body = {name: chance.choice(VALUES) for name in one.inputs.model_fields if chance.random() < 0.7}
    if chance.random() < 0.2:
        body[chance.choice(["x", "workspace", "__class__", MARKUP])] = chance.choice([*VALUES, deep(60), deep(900)])
    return chance.choice([None, [], "a", 3, deep(500), [body]]) if chance.random() < 0.03 else body


def deep(levels: int) -> Any:
    value: Any = []
    for _ in range(min(levels, 900)):  # json.dumps can write it
        value = [value]
    return value


def send(client: httpx.Client, method: str, path: str, **more: Any) -> int:
    """Return the status of an answer, or 0 if the server closed the connection, which is allowed."""
    try:
        answer = client.request(method, path, **more)
        if answer.status_code >= 500 and str(answer.status_code) != HUB:
            EXAMPLES.append(f"{method} {path[:60]} {str(more)[:300]}: {answer.text[:100]}")
        return answer.status_code
    except httpx.TransportError:
        return 0
    except (ValueError, httpx.InvalidURL):  # httpx does not send it
        return 1


# ---- the flood


def flood(client: httpx.Client, url: str, chance: random.Random, count: int) -> Counter[str]:
    """Send requests of all kinds, each in a new session, half of them without a login. Returns counts by status."""
    asked = list(itertools.islice(one_request(chance), count))
    found = Counter[str]()
    with httpx.Client(base_url=url, timeout=60) as stranger, ThreadPoolExecutor(THREADS) as pool:
        who = [client, stranger]
        answers = [pool.submit(send, who[number % 2], *one[:2], **one[2]) for number, one in enumerate(asked)]
        for number, answer in enumerate(answers):
            found[str(answer.result())] += 1
            print(f"{number} requests", end="\r", file=sys.stderr, flush=True)
    return found


def by_kind(client: httpx.Client, server: psutil.Process, chance: random.Random, count: int) -> dict[str, float]:
    """Return by how many MB the server's memory changed during requests of each kind."""
    found: dict[str, list[Any]] = {}
    for method, path, more in itertools.islice(one_request(chance), 30 * count):
        parts = re.split(r"[?=]", path)[0].split("/")
        kind = f"{method} {'/'.join(part for part in parts if not re.fullmatch('[0-9a-f]{12}', part))}"
        found.setdefault(kind, []).append((method, path, more))
    grown = {}
    for kind, asked in sorted(found.items()):
        before = megabytes(server)
        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(lambda one: send(client, *one[:2], **one[2]), asked[:count]))
        grown[kind] = megabytes(server) - before
    return grown


def one_request(chance: random.Random) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield requests: method, path, other arguments of httpx."""
    api = "/gradio_api"
    while True:
        name = secrets.token_hex(6)
        value = chance.choice(VALUES)
        body = {"data": [value], "fn_index": 0, "session_hash": name}
        yield chance.choice(
            [
                ("POST", f"{api}/run/{name}", {"json": body}),
                ("POST", f"{api}/run/predict", {"json": body}),
                ("POST", f"{api}/call/predict", {"json": body}),
                ("POST", f"{api}/queue/join", {"json": body}),
                ("POST", f"{api}/queue/join", {"json": {**body, "fn_index": 10**6}}),
                ("POST", f"{api}/cancel", {"json": {"session_hash": name, "fn_index": value, "event_id": value}}),
                ("POST", f"{api}/reset", {"json": {"event_id": value}}),
                (
                    "POST",
                    f"{api}/component_server",
                    {"json": {"session_hash": name, "component_id": value, "fn_name": "a", "data": value}},
                ),
                ("GET", f"/api/v1/watch?what={quote(json.dumps([[1, name, {}]]))}", {}),
                ("GET", f"/api/v1/watch?what={quote(str(value)[:200])}", {}),
                ("GET", f"/elements/{name}.js", {}),
                ("GET", f"{api}/queue/status", {}),
                ("GET", f"{api}/stream/{name}/a/1/playlist.m3u8", {}),
                ("POST", f"{api}/stream/{name}", {"json": body}),
                ("GET", f"{api}/file={quote(str(value)[:200])}", {}),
                ("GET", f"{api}/upload_progress?upload_id={name}", {}),
                ("GET", f"{api}/custom_component/{name}/client/a/b.js", {}),
                ("POST", f"{api}/upload", {"files": {"files": (f"{name}.bin", b"x" * 100)}}),
                ("POST", f"{api}/upload", {"content": b"--a\r\n", "headers": {"content-type": "multipart/form-data"}}),
                ("GET", f"/?deep_link={name}", {}),
                ("GET", "/config", {"headers": {"cookie": f"a={name}; \xe9=\xfc"}}),
                ("GET", f"/{name}", {}),
                ("PUT", f"{api}/queue/join", {"json": body}),
            ]
        )


if __name__ == "__main__":
    main()
