"""The page: header, first visit, five tabs, of which the open one reads the disk. `build` is all that a server needs.

Not covered: options and launching (webui.py), what is inside the tabs.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gradio as gr
from starlette.middleware import Middleware

from workbench import lora_names
from workbench.dataset_builder.views import PLANS
from workbench.demo_space.limits import Limits
from workbench.loras.converting import CONVERTED
from workbench.paths import ASSETS
from workbench.runs.run import Run
from workbench.sampler import vae_reconstruction, zero_gpu
from workbench.ui.compare.tab import CompareTab
from workbench.ui.core import render
from workbench.ui.core.boundary import QUIET, UPWARDS, handler
from workbench.ui.core.live import Live
from workbench.ui.datasets.cut import STRIPS
from workbench.ui.datasets.tab import DatasetTab
from workbench.ui.demo import banner, replay_tab
from workbench.ui.loras.tab import LorasTab
from workbench.ui.sample.tab import SampleTab
from workbench.ui.server import calls
from workbench.ui.server.bodies import Bodies
from workbench.ui.server.guard import Guard, Rules
from workbench.ui.server.login import Access, Login
from workbench.ui.train import tracker_view
from workbench.ui.train.tab import TrainTab
from workbench.workspace import Workspace

TITLE = "Video LoRA Workbench"
TICK_SECONDS = 1.0
# Open pages whose state is kept, about 1.5 MB each; one more resets what the oldest had not saved.
SESSIONS = 100
OPEN_TAB = "workbench-tab"  # where the browser keeps its name
DEMO = "Train the demo (about a minute)"


def launch_options(
    workspace: Workspace, rules: Rules | None = None, trackers: bool = True, access: Access | None = None
) -> dict[str, Any]:
    """The arguments of `launch`: style sheets, middleware, and nothing that reveals more than it must.

    rules: from where it may be used (guard); this machine alone where none are given. access: what opens it (login),
    if it is not open to whoever reaches it. trackers: whether trackio is served, too
    """
    rules = rules or Rules()
    login = [Middleware(Login, access=access)] if access else []
    return {
        "css_paths": [ASSETS / "style.css", ASSETS / "charts.css", ASSETS / "sample.css"],
        "app_kwargs": {
            "routes": tracker_view.routes(workspace) if trackers else [],
            "middleware": [
                Middleware(Guard, rules=rules),
                *login,
                Middleware(Bodies, uploads=rules.uploads, bodies=rules.bodies, check=calls.check),
            ],
            "openapi_url": None,
        },
        "theme": gr.themes.Default(primary_hue="blue", neutral_hue="slate", font=["system-ui", "sans-serif"]),
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


def build(workspace: Workspace, roots: Sequence[Path] = (), demo: Limits | None = None) -> gr.Blocks:
    """The whole page over a workspace. Everything it shows is read from the workspace's folders.

    roots: folders of this machine that clips may be imported from by name; none: the workspace alone
    demo: of a visitor of the demo, what they may do; the page then says so, and shows a replay
    """
    gr.set_static_paths(
        [
            workspace.datasets,
            workspace.runs,
            workspace.samples,
            workspace.grids,
            lora_names.folder(workspace),
            *(workspace.cache / name for name in (PLANS, STRIPS, vae_reconstruction.FOLDER, CONVERTED)),
        ]
    )
    live = Live(workspace)
    with gr.Blocks(title=TITLE, analytics_enabled=False, delete_cache=(3600, 86400), fill_width=True) as page:
        gr.HTML(_header(), elem_id="header")
        if demo:
            gr.HTML(banner(demo), elem_id="demo-banner")
        with gr.Group(visible=False, elem_id="welcome") as welcome:
            gr.HTML(_welcome())
            begin = gr.Button(DEMO, variant="primary", size="lg", elem_id="train-demo")
        with gr.Tabs(selected="train") as tabs:
            with gr.Tab("Dataset", id="dataset", elem_id="tab-dataset") as dataset:
                dataset_tab = DatasetTab(workspace, roots or [workspace.root])
            with gr.Tab("Train", id="train", elem_id="tab-train") as train:
                train_tab = TrainTab(workspace, live)
            with gr.Tab("Sample", id="sample", elem_id="tab-sample") as sample:
                sample_tab = SampleTab(workspace, live)
            with gr.Tab("Compare", id="compare", elem_id="tab-compare") as compare:
                compare_tab = CompareTab(workspace, live)
            with gr.Tab("LoRAs", id="loras", elem_id="tab-loras") as loras:
                loras_tab = LorasTab(workspace, live)
            if demo:
                replay_tab()
        parts = {"dataset": dataset, "train": train, "sample": sample, "compare": compare, "loras": loras}
        # Only the timer of the open tab runs: each listener of a tick costs the browser time.
        timers = {name: gr.Timer(TICK_SECONDS, active=False) for name in parts}
        _remember_tab(page, tabs, parts, timers)
        # Fixed keys: the page finds its choices again after a restart of the server.
        chosen = gr.BrowserState(None, storage_key="workbench-run", secret="workbench")
        train_tab.wire(timers["train"], chosen, page.load)
        dataset_tab.wire(timers["dataset"], page.load)
        sample_tab.wire(timers["sample"], page.load)
        compare_tab.wire(compare, timers["compare"], page.load)
        compare_tab.wire_use(tabs, sample_tab.form)
        sample_tab.wire_grid(tabs, compare_tab.parts, compare_tab.videos.chosen)
        loras_tab.wire(timers["loras"], page.load)
        loras_tab.wire_use(tabs, sample_tab.form, chosen)
        _connect(page, tabs, welcome, begin, chosen, live, (dataset_tab, train_tab, sample_tab))
        _answer_zero_gpu(workspace)
    page.queue(max_size=200, default_concurrency_limit=4, api_open=False)
    return page


def _connect(
    page: gr.Blocks,
    tabs: gr.Tabs,
    welcome: gr.Group,
    begin: gr.Button,
    chosen: gr.BrowserState,
    live: Live,
    parts: tuple[DatasetTab, TrainTab, SampleTab],
) -> None:
    """Connect listeners that read one tab and change another."""
    dataset_tab, train_tab, sample_tab = parts
    forms = (train_tab.form, sample_tab.form)

    def first_visit() -> Any:
        return gr.update(visible=not live.statuses(now=True))

    def train_demo() -> list[Any]:
        from workbench import demo

        settings = demo.prepare(live.workspace)
        run = Run.create(live.workspace, settings, "demo")
        run.start()
        live.statuses(now=True)
        return [
            run.name,
            gr.update(visible=False),
            gr.Tabs(selected="train"),
            *train_tab.form.write(settings.model_dump(mode="json")),
        ]

    def sample_run(name: str | None) -> list[Any]:
        return [gr.Tabs(selected="sample"), *sample_tab.form.write(train_tab.sample_settings(name))]

    page.load(first_visit, None, welcome, **QUIET)
    preparing = begin.click(
        lambda: gr.update(value="Preparing the demo clips ...", interactive=False), None, begin, **QUIET
    )
    started = preparing.then(handler(train_demo), None, [chosen, welcome, tabs, *train_tab.form.inputs], **QUIET)
    train_tab.form.follow(started)
    started.then(lambda: gr.update(value=DEMO, interactive=True), None, begin, **QUIET)
    train_tab.runs.change(first_visit, None, welcome, **QUIET)  # also one started elsewhere
    sample_button = train_tab.commands.buttons["sample"]
    opened = sample_button.click(handler(sample_run), chosen, [tabs, *sample_tab.form.inputs], **QUIET)
    opened.then(None, js=UPWARDS)
    refresh = [component for form in forms for component in form.sourced]
    tabs.change(lambda: [update for form in forms for update in form.refreshed()], None, refresh, **QUIET)
    dataset_tab.wire_use(tabs, train_tab.form)


def _remember_tab(page: gr.Blocks, tabs: gr.Tabs, parts: dict[str, gr.Tab], timers: dict[str, gr.Timer]) -> None:
    """A reload comes back to the tab that was open, whose timer alone runs."""
    names = json.dumps(list(parts))
    running = f"{names}.map((name) => ({{__type__: 'update', active: name === open}}))"
    # In the browser only: an answer of the server could come after a person's first click and undo it.
    stored = f"""() => {{
        const wanted = new URLSearchParams(location.search).get('tab');
        const open = {names}.includes(wanted) ? wanted : localStorage.getItem('{OPEN_TAB}') ?? 'train';
        return [{{__type__: 'update', selected: open}}, ...{running}];
    }}"""
    loaded = page.load(None, None, [tabs, *timers.values()], js=stored)
    # A page that opens selects its first tab by itself, which must not be taken for a person's choice.
    loaded.then(None, js="() => { window.workbenchTabs = true }")
    for tab, part in parts.items():
        part.select(
            None, js=f"() => {{ if (window.workbenchTabs) localStorage.setItem('{OPEN_TAB}', '{tab}') }}", **QUIET
        )
    # After a change by a person or a button; a moment later, when the browser has marked the open tab.
    running_now = f"""async () => {{
        await new Promise((go) => setTimeout(go, 60));
        const open = {names}.find((name) =>
            document.getElementById(`tab-${{name}}-button`)?.getAttribute('aria-selected') === 'true');
        return {running};
    }}"""
    tabs.change(None, None, list(timers.values()), js=running_now, **QUIET)


def _answer_zero_gpu(workspace: Workspace) -> None:
    """Where GPUs are lent to calls of the page alone, samples are drawn inside of one."""
    if zero_gpu.here():
        zero_gpu.announce(workspace)
        gr.Timer(TICK_SECONDS).tick(handler(zero_gpu.answering(workspace)), None, None, **QUIET)


def _header() -> str:
    logo = (ASSETS / "logo.svg").read_text(encoding="utf-8")
    return f'<div class="header">{logo}<div><h1>{TITLE}</h1><p>From clips to a LoRA to new videos.</p></div></div>'


def _welcome() -> str:
    return render.note(
        "Welcome. A small video model and demo clips are built in, so you can see the whole loop now: the clips show "
        "stripes, which the model has never seen, the training teaches them, and the previews show them arrive.",
        "empty",
    )
