"""The HTTP API, for programs: datasets, runs, samples and LoRAs under /api/v1 of the page's own server.

    app            the routes over one workspace
    operations     routes generated from the operations
    open_requests  requests that stay open: events, waiting for a sample, zips
    watching       calls and live results for the page
    mcp            tools for agents
    client         a small Python client
    key            the server's key and the API token

The API makes the same library calls as the page and the shell and returns JSON. Authentication is in ui.server.login.
"""
