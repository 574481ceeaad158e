"""A failed import of dropped files is shown until it is dismissed, and names the files as they were dropped."""

from __future__ import annotations

import json

from tests.patience import PATIENCE
from workbench import jobs
from workbench.dataset_builder import Dataset
from workbench.dataset_builder.snapshot import task_snapshot
from workbench.ui.datasets.add import _keep_uploads
from workbench.workspace import Workspace


def test_a_failed_upload_is_shown_by_its_own_name_until_it_is_dismissed(workspace: Workspace) -> None:
    dataset = Dataset.create(workspace, "Cats")
    dropped = workspace.root / "upload" / "my cat.mp4"
    dropped.parent.mkdir()
    dropped.write_bytes(b"no video")
    kept = _keep_uploads(dataset.folder / ".import" / "uploads", [str(dropped)])
    dataset.start_import(kept)
    assert dataset.task("import").wait(PATIENCE).state is jobs.State.FAILED
    for _ in range(2):  # read from the disk each time, as a server does that was started again
        seen = task_snapshot(Dataset.open(workspace, "cats").task("import"))
        assert "my cat.mp4" in seen.sentence
        assert str(workspace.root) not in json.dumps(
            [seen.sentence, seen.details, [one.sentence for one in seen.files]]
        )
        assert "dismiss" in seen.actions
    dataset.task("import").dismiss()
    seen = task_snapshot(Dataset.open(workspace, "cats").task("import"))
    assert (seen.state, seen.sentence, seen.actions) == (jobs.State.NEW, "", ())
