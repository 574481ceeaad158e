"""How the page is served: login, request limits, allowed files, sessions of the public demo.

Not here: what is on the page.
"""
