"""What a notebook's kernel does first in the tests ($PYTHONSTARTUP): the jobs that it starts are asked of a host.

It leaves nothing that a cell could use.
"""

from tests.warm_client import patch_kernel

patch_kernel()
del patch_kernel
