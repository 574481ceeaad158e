"""As for tests/browser."""

from __future__ import annotations

from tests.browser.conftest import browser, page, site, viewport

__all__ = ["browser", "page", "site", "viewport"]
