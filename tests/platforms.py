"""Marks of tests for what a platform refuses, as docs/platforms.md lists: there they are skipped."""

from __future__ import annotations

import pytest

from workbench.jobs import platform

several_gpus = pytest.mark.skipif(not platform.INHERITS, reason="a run on several GPUs is refused on this platform")
NO_DEMO = "the public demo is refused on this platform"
limited_visitors = pytest.mark.skipif(not platform.LIMITS_VISITORS, reason=NO_DEMO)
