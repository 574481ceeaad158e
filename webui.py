"""Serve the workbench to a browser: `python webui.py`. Runs unchanged on a Hugging Face Space."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

LOCAL = ("127.0.0.1", "localhost", "::1")
PASSWORD, MODE, ALLOW_HOST = "WORKBENCH_PASSWORD", "WORKBENCH_MODE", "WORKBENCH_ALLOW_HOST"
PASSWORD_FILE = "WORKBENCH_PASSWORD_FILE"  # how a container passes a secret
# Gradio's variables that would open the server to others or change its routes without a word.
REFUSED = ("GRADIO_SHARE", "GRADIO_ALLOWED_PATHS", "GRADIO_MCP_SERVER", "GRADIO_SERVER_NAME")


def options(arguments: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line. Exits with a message if a value is wrong or a required password is missing."""
    parser = argparse.ArgumentParser(prog="webui.py", description="Video LoRA Workbench in the browser.")
    parser.add_argument("--workspace", metavar="DIR", help="folder for all data (default: ./workspace)")
    parser.add_argument("--host", help="address to listen on (default: 127.0.0.1, this machine only)")
    parser.add_argument("--port", type=int, help="port to listen on (default: the first free one from 7860)")
    parser.add_argument("--listen", action="store_true", help=f"accept other machines; set a password in ${PASSWORD}")
    parser.add_argument("--allow-host", action="append", metavar="NAME", help="host name under which a proxy serves "
                        f"this page, such as Jupyter's or Colab's; * allows any (or ${ALLOW_HOST})")  # fmt: skip
    parser.add_argument("--allow-frame", action="append", metavar="ORIGIN", help="origin of a page that may show this "
                        "one in a frame, such as a notebook's: http://localhost:*")  # fmt: skip
    parser.add_argument("--forwarded-allow-ips", default="", metavar="IPS", help="addresses of your own proxy, whose "
                        "X-Forwarded-For is trusted; * trusts everyone (default: no one)")  # fmt: skip
    parser.add_argument("--root", action="append", metavar="DIR", help="folder that clips may be imported from "
                        "(default: any)")  # fmt: skip
    parser.add_argument("--open", action="store_true", help="open the browser")
    parser.add_argument("--demo", action="store_true", help="public demo, as on a Space: each visitor gets a limited, "
                        f"temporary workspace (or ${MODE}=demo)")  # fmt: skip
    chosen = parser.parse_args(arguments)
    chosen.space = "SPACE_ID" in os.environ
    mode = os.environ.get(MODE, "demo" if chosen.space else "full")
    if mode not in ("demo", "full"):
        parser.error(f"{MODE} is {mode!r}: set it to demo or full")
    chosen.demo = chosen.demo or mode == "demo"
    chosen.host = chosen.host or ("0.0.0.0" if chosen.listen or chosen.space else LOCAL[0])
    chosen.allow_host = [*(chosen.allow_host or []), *filter(None, os.environ.get(ALLOW_HOST, "").split(","))]
    try:
        chosen.password = password()
    except ValueError as error:
        parser.error(str(error))
    if chosen.host not in LOCAL and not chosen.demo and not chosen.password:
        parser.error(f"listening for other machines needs a password: {PASSWORD}=... python webui.py --listen")
    return chosen


def password() -> str:
    """Return the password from the environment or from the file that the environment names; "" when neither is set.

    The variable is removed so that no child process inherits it. Raises ValueError if the file is unusable.
    """
    given, file = os.environ.pop(PASSWORD, ""), os.environ.get(PASSWORD_FILE, "")
    if given or not file:
        return given
    try:
        given = Path(file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{PASSWORD_FILE} is {file}, which cannot be read: {error}") from None
    if not given:
        raise ValueError(f"{PASSWORD_FILE} is {file}, which is empty: write the password into it")
    return given


def main() -> None:
    """Serve the page until Ctrl-C. Runs that were started keep going."""
    chosen = options()
    for name in REFUSED:
        os.environ.pop(name, None)
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    from workbench.ui.server import serving

    (serving.serve_visitors if chosen.demo else serving.serve)(chosen)


if __name__ == "__main__":
    main()
