"""Run the `workbench` command with `python -m workbench`."""

from workbench.cli import main

main()
