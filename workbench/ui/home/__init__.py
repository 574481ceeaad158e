"""The Home tab: what goes on in the workspace, and what comes next.

Not here: what is shown of a workspace (workbench.overview); it opens things in the other tabs (ui.app).
"""
