"""Video files: look at them, read their frames, write them. Not covered: mending foreign files (dataset_builder)."""

from workbench.media.opening import (
    HDR_TRANSFERS,
    SUFFIXES,
    Probe,
    check_file,
    is_picture,
    presentation_times,
    probe,
    read_comment,
)
from workbench.media.reading import Pixels, decode, raw_frames, read_frames, thumbnail, write_thumbnail
from workbench.media.writing import Writer, bt709_frame, encode, without_comment

__all__ = [
    "HDR_TRANSFERS",
    "SUFFIXES",
    "Pixels",
    "Probe",
    "Writer",
    "bt709_frame",
    "check_file",
    "decode",
    "encode",
    "is_picture",
    "presentation_times",
    "probe",
    "raw_frames",
    "read_comment",
    "read_frames",
    "thumbnail",
    "without_comment",
    "write_thumbnail",
]
