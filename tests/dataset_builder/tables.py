"""Parquet tables like those of Hub datasets and other tools."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any

import pytest


def parquet(columns: Mapping[str, Any], features: Mapping[str, str] | None = None, notes: str = "") -> bytes:
    """Write several row groups. features: column -> the Hub's type ("Video"); notes: the Hub's metadata."""
    pytest.importorskip("pyarrow", reason="pip install 'video-lora-workbench[parquet]'")
    import pyarrow
    import pyarrow.parquet

    kind = pyarrow.struct({"bytes": pyarrow.binary(), "path": pyarrow.string()})
    table = pyarrow.table(
        {name: pyarrow.array(cells, kind if name in (features or {}) else None) for name, cells in columns.items()}
    )
    if features:
        notes = json.dumps({"info": {"features": {name: {"_type": kind} for name, kind in features.items()}}})
    if notes:
        table = table.replace_schema_metadata({"huggingface": notes})
    file = io.BytesIO()
    pyarrow.parquet.write_table(table, file, row_group_size=2)
    return file.getvalue()
