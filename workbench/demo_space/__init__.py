"""The public demo: each visitor alone in a workspace of their own, behind one door.

limits      what a visitor may do: the rules that their page and its jobs carry (workbench.policy)
rooms       a visitor's room: a folder, and a process that serves the ordinary page over it; swept when it is left
door        the one address: knows a visitor by a cookie, and passes what they ask to their own room, and no other

Rooms share no process, no temporary folder and no file server, so what is one visitor's is not there for another, by
whatever path it is named. Not covered: rooms of different system accounts; a hole in the kernel or in Python is one
for all of them.
"""
