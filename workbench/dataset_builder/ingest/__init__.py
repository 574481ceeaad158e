"""Import source files: check each in a child process, convert it to a canonical clip, and record the result.

Finding the files and their captions is the job of dataset_builder.sources.
"""
