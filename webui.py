"""Start here: `python webui.py` serves the workbench to a browser. Works on a Hugging Face Space as it is."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

LOCAL = ("127.0.0.1", "localhost", "::1")
PASSWORD, MODE, ALLOW_HOST = "WORKBENCH_PASSWORD", "WORKBENCH_MODE", "WORKBENCH_ALLOW_HOST"
PASSWORD_FILE = "WORKBENCH_PASSWORD_FILE"  # a container's secret
# These would quietly open the server to others or rename its parts.
REFUSED = ("GRADIO_SHARE", "GRADIO_ALLOWED_PATHS", "GRADIO_MCP_SERVER", "GRADIO_SERVER_NAME")


def options(arguments: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line. Exits with a message for a wrong value, or when a password is needed and missing."""
    parser = argparse.ArgumentParser(prog="webui.py", description="Video LoRA Workbench in the browser.")
    parser.add_argument("--workspace", metavar="DIR", help="where everything is kept (default: ./workspace)")
    parser.add_argument("--host", help="address to listen on (default: 127.0.0.1, this machine only)")
    parser.add_argument("--port", type=int, help="default: the first free one from 7860")
    parser.add_argument("--listen", action="store_true", help=f"let other machines in; ${PASSWORD} holds the password")
    parser.add_argument("--allow-host", action="append", metavar="NAME", help="a name by which a proxy "
                        f"reaches this page: Jupyter's, Colab's, yours; * is anything (or ${ALLOW_HOST})")  # fmt: skip
    parser.add_argument("--allow-frame", action="append", metavar="ORIGIN", help="another page that may show this one "
                        "in a frame, such as a notebook's: http://localhost:*")  # fmt: skip
    parser.add_argument("--forwarded-allow-ips", default="", metavar="IPS", help="addresses of your own proxy, whose "
                        "X-Forwarded-For is believed; * believes anybody (default: nobody's)")  # fmt: skip
    parser.add_argument("--root", action="append", metavar="DIR", help="clips may be named from here (default: any)")
    parser.add_argument("--open", action="store_true", help="open the browser")
    parser.add_argument("--demo", action="store_true", help="for strangers, as on a Space: each in a workspace of "
                        f"their own that is swept, little can be done in it (or ${MODE}=demo)")  # fmt: skip
    chosen = parser.parse_args(arguments)
    chosen.space = "SPACE_ID" in os.environ
    mode = os.environ.get(MODE, "demo" if chosen.space else "full")
    if mode not in ("demo", "full"):
        parser.error(f"{MODE} is {mode!r}: demo or full")
    chosen.demo = chosen.demo or mode == "demo"
    chosen.host = chosen.host or ("0.0.0.0" if chosen.listen or chosen.space else LOCAL[0])
    chosen.allow_host = [*(chosen.allow_host or []), *filter(None, os.environ.get(ALLOW_HOST, "").split(","))]
    try:
        chosen.password = password()
    except ValueError as error:
        parser.error(str(error))
    if chosen.host not in LOCAL and not chosen.demo and not chosen.password:
        parser.error(f"other machines need a password to come in: {PASSWORD}=... python webui.py --listen")
    return chosen


def password() -> str:
    """The password from the environment, or from the file that the environment names; "" when neither is set.

    Its variable is removed, so that no child process inherits it. Raises ValueError for a file that cannot be used.
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
    """Serve the page until Ctrl-C. Runs that were started go on without it."""
    chosen = options()
    for name in REFUSED:
        os.environ.pop(name, None)
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    from workbench.ui.server import serving

    (serving.serve_visitors if chosen.demo else serving.serve)(chosen)


if __name__ == "__main__":
    main()
