"""Video files: look at them, read their frames, write them. Not covered: fixing foreign files (dataset_builder)."""

from workbench.clips.media.kinds import ENDINGS, SUFFIXES, check_file, is_picture
from workbench.clips.media.opening import (
    HDR_TRANSFERS,
    FrameTimes,
    VideoFacts,
    orientation,
    presentation_times,
    probe,
    read_comment,
    read_times,
)
from workbench.clips.media.reading import Pixels, decode, raw_frames, read_frames, thumbnail, write_thumbnail
from workbench.clips.media.windows import read_own_clip
from workbench.clips.media.writing import VideoWriter, bt709_frame, encode, without_comment

__all__ = [
    "ENDINGS",
    "HDR_TRANSFERS",
    "SUFFIXES",
    "Pixels",
    "VideoFacts",
    "FrameTimes",
    "VideoWriter",
    "bt709_frame",
    "check_file",
    "decode",
    "encode",
    "is_picture",
    "orientation",
    "presentation_times",
    "probe",
    "raw_frames",
    "read_comment",
    "read_frames",
    "read_own_clip",
    "read_times",
    "thumbnail",
    "without_comment",
    "write_thumbnail",
]
