"""As for tests/browser."""

from __future__ import annotations

from tests.browser.conftest import Site, browser, page, site, viewport

__all__ = ["Site", "browser", "page", "site", "viewport"]
