"""What every tab is made of: forms from settings, live updates, errors at the boundary, HTML.

Not here: any tab, the server.
"""
