"""The public demo: every visitor gets a session of their own, behind one proxy.

    limits      what a visitor may do: quotas and a check of settings
    sessions    a visitor's session: a folder and a process that serves the ordinary page; removed when unused
    proxy       the public address: recognizes visitors by a cookie and forwards requests to their session
    replays     recorded runs that visitors can look through

Sessions share no process, temporary folder or file server, so no path leads to another visitor's files.
"""
