"""The HTTP API, for programs: datasets, runs, samples and LoRAs under /api/v1 of the page's own server.

Also here: what the page's elements call and watch (watching), tools for agents (mcp), a small Python client, and the
server's key. The API makes the same library calls as the page and the shell and returns JSON. Logging in is in
ui.server.login.
"""
