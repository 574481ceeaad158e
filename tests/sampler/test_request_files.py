"""The files of the sampling queue that a page reads while they change."""

from __future__ import annotations

from pathlib import Path

from workbench.sampler import request_files
from workbench.sampler.request_files import ACTIVE, PROGRESS
from workbench.sampler.samples import new_id


def test_a_picture_that_a_page_is_about_to_load_outlives_its_request(tmp_path: Path) -> None:
    """One that was gone already was answered with 403, and a broken image stood on the page."""
    first, second, waiting = new_id(), new_id(), new_id()
    for part in (ACTIVE, PROGRESS):
        (tmp_path / part).mkdir()
    for name in (first, second):
        (tmp_path / PROGRESS / f"{name}.webp").touch()
    (tmp_path / ACTIVE / f"{second}.json").touch()

    def pictures() -> set[str]:
        return {path.stem for path in (tmp_path / PROGRESS).glob("*.webp")}

    request_files.clear(tmp_path, first)
    assert pictures() == {first, second}
    request_files.clear(tmp_path, waiting)  # cancelled before it began
    assert pictures() == {second}
    (tmp_path / ACTIVE / f"{second}.json").unlink()
    request_files.clear(tmp_path, second)
    assert pictures() == {second}
