"""A failed import of dropped files names them as they were dropped, until it is dismissed or the server restarts."""

from __future__ import annotations

import json

from tests.patience import PATIENCE
from tests.ui.test_run_parts import built
from workbench import jobs
from workbench.dataset_builder import Dataset
from workbench.dataset_builder.snapshot import task_snapshot
from workbench.ui.datasets.add import ImportPart, _keep_uploads
from workbench.workspace import Workspace


def test_a_failed_upload_is_shown_by_its_own_name_until_it_is_dismissed(workspace: Workspace) -> None:
    dataset = Dataset.create(workspace, "Cats")
    server = built(ImportPart)
    dropped = workspace.root / "upload" / "my cat.mp4"
    dropped.parent.mkdir()
    dropped.write_bytes(b"no video")
    kept = _keep_uploads(dataset.folder / ".import" / "uploads", [str(dropped)])
    dataset.start_import(kept)
    assert dataset.task("import").wait(PATIENCE).state is jobs.State.FAILED
    for _ in range(2):  # read from the disk each time, as the shell does
        seen = task_snapshot(Dataset.open(workspace, "cats").task("import"))
        assert "my cat.mp4" in seen.sentence
        assert str(workspace.root) not in json.dumps(
            [seen.sentence, seen.details, [one.sentence for one in seen.files]]
        )
        assert "dismiss" in seen.actions
    assert "my cat.mp4" in server.seen(dataset).sentence
    assert "dismiss" in server.seen(dataset).actions
    restarted = built(ImportPart).seen(dataset)
    assert (restarted.sentence, restarted.files, restarted.actions) == ("", (), ())
    dataset.task("import").dismiss()
    seen = task_snapshot(Dataset.open(workspace, "cats").task("import"))
    assert (seen.state, seen.sentence, seen.actions) == (jobs.State.NEW, "", ())


def test_what_was_named_by_its_path_is_still_shown_after_a_restart(workspace: Workspace) -> None:
    """The path may lead to a good file by then, so Resume is offered."""
    dataset = Dataset.create(workspace, "Cats")
    named = workspace.root / "my cat.mp4"
    named.write_bytes(b"no video")
    dataset.start_import([named])
    assert dataset.task("import").wait(PATIENCE).state is jobs.State.FAILED
    restarted = built(ImportPart).seen(dataset)
    assert "my cat.mp4" in restarted.sentence
    assert "resume" in restarted.actions
