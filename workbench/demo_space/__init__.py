"""The public demo: each visitor in a session of their own, behind one proxy.

    limits      what a visitor may do: numbers, and the rule that settings in their page follow
    sessions    a visitor's session: a folder, and a process that serves the ordinary page over it; removed when unused
    proxy       the one address: recognizes a visitor by a cookie, and passes their requests to their own session alone
    replays     recorded runs that visitors can look through

Sessions share no process, no temporary folder and no file server, so one visitor's files are not there for another, by
whatever path they are named. What belongs here: everything that only the public demo has.
"""
