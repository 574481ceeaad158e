"""Add files beside the package to a wheel; `workbench/paths.py` finds them in a wheel or a checkout. Run by hatchling.

An editable installation needs none of them, because it is the checkout.
"""

from __future__ import annotations

from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

BESIDE = ("assets", "docs/agent_skill.md", "notebooks", "webui.py")


class WheelFiles(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version != "editable":
            build_data["force_include"].update({name: f"workbench/shipped/{name}" for name in BESIDE})
