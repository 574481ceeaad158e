"""Clips as everyone reads them, without torch: records of a dataset, the frames a model is shown, video files.

    records         a dataset's metadata.jsonl: one record a clip
    frame_plan      which frames of a clip, at which rate and crop, a model is shown
    buckets         shapes in which clips of different sizes are trained together
    frame_metrics   what small pictures of frames tell: motion, blur, similarity
    media           video and picture files: open, read, write

Not here: changing a dataset (dataset_builder), tensors (trainer.encoder).
"""
