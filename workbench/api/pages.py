"""The reference of the API as a page for people, made from its OpenAPI document.

Swagger's own page is not used: it loads its scripts from another site.
"""

from __future__ import annotations

from typing import Any

from workbench.display.inline_html import escaped

STYLE = "body{font:15px/1.5 system-ui,sans-serif;max-width:52rem;margin:3rem auto;padding:0 1.2rem;color:#1d2738}\
code,pre{font:13px/1.5 ui-monospace,monospace;background:#f4f6fa;border-radius:5px;padding:1px 5px}\
pre{padding:12px;overflow:auto}h2{font-size:1rem;margin:1.6rem 0 .2rem}p{margin:.2rem 0}"
EXAMPLE = """curl -H "Authorization: Bearer $(workbench api-token)" http://localhost:7860/api/v1/status"""


def reference(document: dict[str, Any], root: str) -> str:
    """The page. root: the path under which the API is mounted."""
    calls = "".join(
        _call(method.upper(), f"{root}{path}", call)
        for path, methods in document["paths"].items()
        for method, call in methods.items()
    )
    title = escaped(document["info"]["title"])
    return f"""<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}: HTTP API</title>
<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head><body><h1>HTTP API</h1>
<p>JSON in and out. Every request brings the workspace's token, which <code>workbench api-token</code> prints; a browser
that is logged in needs none.</p><pre>{escaped(EXAMPLE)}</pre>
<p>The same for programs: <a href="openapi.json">openapi.json</a>.</p>{calls}</body></html>"""


def _call(method: str, path: str, call: dict[str, Any]) -> str:
    names = [one["name"] for one in call.get("parameters", []) if one["in"] == "query"]
    query = f"<p>Query: <code>{escaped(', '.join(names))}</code></p>" if names else ""
    return f"<h2><code>{method} {escaped(path)}</code></h2><p>{escaped(call.get('summary', ''))}</p>{query}"
