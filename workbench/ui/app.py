"""The page: header and six tabs, of which the open one reads the disk. `build` is all that a server needs."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import gradio as gr
from starlette.middleware import Middleware
from starlette.routing import Mount

from workbench.dataset_builder.cuts.scenes import STRIPS
from workbench.dataset_builder.dataset import PLANS
from workbench.dataset_builder.export import FOLDER as DOWNLOADS
from workbench.demo import DEMO_CLIPS
from workbench.demo_space import replays
from workbench.demo_space.limits import Limits
from workbench.display import charts
from workbench.errors import ConfigError
from workbench.loras.converting import CONVERTED
from workbench.paths import ASSETS
from workbench.runs.run import Run
from workbench.sampler import vae_reconstruction, worker
from workbench.ui import before_gradio, elements
from workbench.ui.before_gradio import OPEN_TAB
from workbench.ui.compare.tab import CompareTab
from workbench.ui.core import open_tab, render
from workbench.ui.core.boundary import QUIET, UPWARDS, count_last_choices, on
from workbench.ui.core.live import Live
from workbench.ui.core.needless import remove_needless_boxes
from workbench.ui.core.view import remembered, unseen_first
from workbench.ui.datasets.tab import DatasetTab
from workbench.ui.demo import banner, replay_tab
from workbench.ui.home.tab import HomeTab
from workbench.ui.loras.tab import LorasTab
from workbench.ui.sample.tab import SampleTab
from workbench.ui.server import calls
from workbench.ui.server.bodies import Bodies, Mounted
from workbench.ui.server.guard import Guard, Rules
from workbench.ui.server.login import Access, Login
from workbench.ui.server.page_cache import PageCache
from workbench.ui.theme import theme
from workbench.ui.train import tracker_view
from workbench.ui.train.notifications import Notifications
from workbench.ui.train.tab import TrainTab
from workbench.workspace import Workspace, confined, lora_names

TITLE = "Video LoRA Workbench"
TICK_SECONDS = 1.0
# Open pages whose state is kept; one more resets what the oldest had not saved.
SESSIONS = 100
TABS = ("home", "dataset", "train", "sample", "compare", "loras")


def launch_options(
    workspace: Workspace,
    rules: Rules | None = None,
    trackers: bool = True,
    access: Access | None = None,
    live: Live | None = None,
) -> dict[str, Any]:
    """The arguments of `launch`: style sheets, middleware, and nothing that reveals more than it must.

    rules: from where it may be used (guard); this machine alone where none are given. access: what opens it (login),
    if it is not open to whoever reaches it. trackers: whether trackio is served, too. live: of `build`, from which
    curves come before Gradio asks for them
    """
    rules = replace(rules or Rules(), files=partial(_may_serve, workspace))
    login = [Middleware(Login, access=access)] if access else []
    return {
        "css_paths": [ASSETS / f"{name}.css" for name in ("tokens", "style", "charts", "sample")],
        "app_kwargs": {
            "routes": [
                *(tracker_view.routes(workspace) if trackers else []),
                *(api_routes(workspace) if access else []),
                *elements.routes(),
                *(before_gradio.routes(live) if live else []),
            ],
            "middleware": [
                Middleware(Guard, rules=rules),
                *login,
                Middleware(Bodies, uploads=rules.uploads, bodies=rules.bodies, check=calls.check),
                Middleware(PageCache, head=f"<script>{before_gradio.script(bool(live))}</script>"),
            ],
            "openapi_url": None,
        },
        "theme": theme(),
        # As it is: Gradio confines the rules of css_paths for narrow windows to what lies inside of the tabs.
        "head": f"<style>{render.style('rail')}</style>",
        "js": f"() => {{\n{charts.script()}\n{render.script('page')}\n}}",
        "favicon_path": str(ASSETS / "logo.svg"),
        "share": False,
        "show_error": False,
        "quiet": True,
        "allowed_paths": [],
        "enable_monitoring": False,
        "run_history": False,
        "footer_links": [],
        "mcp_server": False,
        "pwa": False,
        "ssr_mode": False,
        "strict_cors": True,
        "state_session_capacity": SESSIONS,
        "max_file_size": "4gb",
        # Gradio asks itself over HTTP whether it can be reached and gives up after three seconds; a machine that is
        # busy training may take longer, and the page is there all the same.
        "_frontend": False,
    }


def api_routes(workspace: Workspace) -> list[Mount]:
    """The HTTP API, beside the page. Its modules are loaded here and not before."""
    from workbench.api.app import ROOT, api

    return [Mount(ROOT, Mounted(api(workspace)))]


def build(
    workspace: Workspace, roots: Sequence[Path] = (), demo: Limits | None = None, live: Live | None = None
) -> gr.Blocks:
    """The whole page over a workspace. Everything it shows is read from the workspace's folders.

    roots: folders of this machine that clips may be imported from by name; none: the workspace alone
    demo: of a visitor of the demo, what they may do; the page then says so, and shows a replay
    live: what reads its runs, for who reads them as well
    """
    _serve_folders(workspace)
    live = live or Live(workspace)
    with gr.Blocks(title=TITLE, analytics_enabled=False, delete_cache=(3600, 86400), fill_width=True) as page:
        gr.HTML(_header(), elem_id="header")
        if demo:
            gr.HTML(banner(demo), elem_id="demo-banner")
        with gr.Tabs(selected="home", elem_id="main-tabs") as tabs:
            with gr.Tab("Home", id="home", elem_id="tab-home") as home:
                home_tab = HomeTab(workspace, live)
            with gr.Tab("Dataset", id="dataset", elem_id="tab-dataset") as dataset:
                dataset_tab = DatasetTab(workspace, roots or [workspace.root])
            with gr.Tab("Train", id="train", elem_id="tab-train") as train:
                train_tab = TrainTab(workspace, live)
            with gr.Tab("Sample", id="sample", elem_id="tab-sample") as sample:
                sample_tab = SampleTab(workspace)
            with gr.Tab("Compare", id="compare", elem_id="tab-compare") as compare:
                compare_tab = CompareTab(workspace, live)
            with gr.Tab("LoRAs", id="loras", elem_id="tab-loras") as loras:
                loras_tab = LorasTab(workspace)
            if demo:
                replay_tab()
        notifications = Notifications(live)
        # Only the timer of the open tab runs: each listener of a tick costs the browser time. What a tab shows is read
        # when it is opened, so that opening the page does not ask for all of them.
        timers = {name: gr.Timer(TICK_SECONDS, active=False) for name in TABS}
        chosen = remembered("run")
        train_tab.wire(timers["train"], chosen, train.select, page.load)
        dataset_tab.wire(timers["dataset"], dataset.select)
        sample_tab.wire(timers["sample"], sample.select, page.load)
        compare_tab.wire(timers["compare"], compare.select, page.load)
        compare_tab.wire_use(tabs, sample_tab.form)
        sample_tab.wire_grid(tabs, compare_tab.parts, compare_tab.videos.chosen)
        loras_tab.wire(timers["loras"], loras.select)
        loras_tab.wire_use(tabs, sample_tab.form, chosen)
        home_tab.wire(timers["home"], home.select)
        _open_from_home(tabs, home_tab, chosen, (dataset_tab, train_tab, sample_tab))
        on(notifications.component.open, _opened_run, [], [tabs, chosen])
        _connect(tabs, chosen, (dataset_tab, train_tab, sample_tab))
        _remember_tab(page, tabs, timers)  # the last of what is done on loading: forms are filled in before
        _answer_zero_gpu(workspace)
    remove_needless_boxes(page)
    unseen_first(page)
    count_last_choices(page)
    page.queue(max_size=200, default_concurrency_limit=4, api_open=False)
    return page


def _serve_folders(workspace: Workspace) -> None:
    """Files of these are sent as they are."""
    gr.set_static_paths(
        [
            workspace.datasets,
            workspace.runs,
            workspace.samples,
            workspace.grids,
            lora_names.folder(workspace),
            *(workspace.cache / name for name in (PLANS, STRIPS, vae_reconstruction.FOLDER, CONVERTED, DOWNLOADS)),
            replays.SHIPPED,
            DEMO_CLIPS,
        ]
    )


def _may_serve(workspace: Workspace, path: str) -> bool:
    """Whether a file may be sent: Gradio follows links, and one in a dataset or a run may lead anywhere."""
    whole, folders = os.path.abspath(path), [replays.SHIPPED, DEMO_CLIPS]
    folders += [Path(folder)] if (folder := os.environ.get("GRADIO_TEMP_DIR")) else []
    looks: list[Callable[[str], object]] = [workspace.inside, *(partial(confined, folder) for folder in folders)]
    for look in looks:
        with contextlib.suppress(ConfigError):
            look(whole)
            return True
    return False


def _open_from_home(
    tabs: gr.Tabs, home: HomeTab, chosen: gr.BrowserState, parts: tuple[DatasetTab, TrainTab, SampleTab]
) -> None:
    """Let what is listed on Home, and its next steps, be opened in the tab that it belongs to."""
    dataset_tab, train_tab, sample_tab = parts
    choices = {"run": chosen, "dataset": dataset_tab.host.chosen, "sample": sample_tab.chosen}
    tab_of = {"run": "train"}

    def open_one(event: gr.EventData) -> list[Any]:
        kind, name = str(event.kind), str(event.name)
        found = [name if one == kind and name else gr.skip() for one in choices]
        return [gr.Tabs(selected=tab_of.get(kind, kind)), *found]

    def train_on(event: gr.EventData) -> list[Any]:
        return [gr.Tabs(selected="train"), {"dataset": str(event.name)}]

    def sample_with(event: gr.EventData) -> list[Any]:
        return [gr.Tabs(selected="sample"), train_tab.sample_settings(str(event.name))]

    def train_demo() -> list[Any]:
        from workbench import demo

        settings = demo.prepare(home.workspace)
        run = Run.create(home.workspace, settings, "demo")
        run.start()
        home.live.statuses(now=True)
        return [run.name, gr.Tabs(selected="train"), settings]

    on(home.component.open, open_one, [], [tabs, *choices.values()])
    train_tab.form.fill(home.component.train, train_on, [], [tabs])
    sample_tab.form.fill(home.component.sample, sample_with, [], [tabs])
    begun = train_tab.form.fill(home.component.demo, train_demo, [], [chosen, tabs], unfold=False)
    on(begun.then, lambda: gr.update(open=False), [], [train_tab.new])  # the run is what there is to see


def _opened_run(event: gr.EventData) -> list[Any]:
    """The run of a notification, in the Train tab."""
    return [gr.Tabs(selected="train"), str(event.name)]


def _connect(tabs: gr.Tabs, chosen: gr.BrowserState, parts: tuple[DatasetTab, TrainTab, SampleTab]) -> None:
    """Connect listeners that read one tab and change another."""
    dataset_tab, train_tab, sample_tab = parts

    def sample_run(name: str | None) -> list[Any]:
        return [gr.Tabs(selected="sample"), train_tab.sample_settings(name)]

    sample_button = train_tab.head.buttons["sample-run"]
    opened = sample_tab.form.fill(sample_button.click, sample_run, [chosen], [tabs])
    opened.then(None, js=UPWARDS)
    dataset_tab.wire_use(tabs, train_tab.form)


def _remember_tab(page: gr.Blocks, tabs: gr.Tabs, timers: dict[str, gr.Timer]) -> None:
    """A reload comes back to the tab that was open, whose timer alone runs."""
    parts = list(timers)
    names = json.dumps(parts)
    running = f"{names}.map((name) => ({{__type__: 'update', active: name === open}}))"
    # In the browser only: an answer of the server could come after a person's first click and undo it.
    stored = f"""() => {{
        const address = new URL(location.href);
        const wanted = address.searchParams.get('tab');
        if ({names}.includes(wanted)) {{ // once: a reload comes back to where a person went since
            localStorage.setItem('{OPEN_TAB}', wanted);
            address.searchParams.delete('tab');
            history.replaceState(history.state, '', address);
        }}
        const open = localStorage.getItem('{OPEN_TAB}') ?? 'home';
        return [{{__type__: 'update', selected: open}}, ...{running}];
    }}"""
    loaded = page.load(None, None, [tabs, *timers.values()], js=stored)
    # What a person does from when the browser shows the tab of before is kept.
    settled = f"""async () => {{
        const open = localStorage.getItem('{OPEN_TAB}') ?? 'home';
        for (let waits = 0; waits < 100 && {open_tab.marked(parts)} !== open; waits++) {open_tab.MOMENT}
        window.workbenchTabs = true;
        {open_tab.keep(parts, OPEN_TAB)}
    }}"""
    loaded.then(None, js=settled, **QUIET)
    running_now = f"""async () => {{
        {open_tab.MOMENT}
        const open = {open_tab.marked(parts)};
        {open_tab.keep(parts, OPEN_TAB)}
        return {running};
    }}"""
    tabs.change(None, None, list(timers.values()), js=running_now, **QUIET)


def _answer_zero_gpu(workspace: Workspace) -> None:
    """Where GPUs are lent to calls of the page alone, samples are generated inside of one."""
    if worker.on_zero_gpu():
        worker.announce(workspace)
        on(gr.Timer(TICK_SECONDS).tick, worker.answering(workspace))


def _header() -> str:
    logo = (ASSETS / "logo.svg").read_text(encoding="utf-8")
    skip = '<a class="skip-link" href="#tab-home">Skip to the open tab</a>'
    return f'{skip}<div class="header">{logo}<h1>{TITLE}</h1></div>'
