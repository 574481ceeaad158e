"""The workbench over HTTP, for programs: datasets, runs, samples and LoRAs under /api/v1 of the page's own server.

    app       the routes, over a workspace;  open_requests: those that stay open: events, and waiting
    client    a small Python client;  key: the token that it brings

What belongs here: the same library calls as page and shell make, as JSON. Not here: who may come in (ui.server.login),
what is known of a run (runs.snapshot), a dataset (dataset_builder.snapshot), the workspace (overview).
"""
