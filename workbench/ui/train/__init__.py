"""The parts of the Train tab that follow the chosen run (workbench.ui.train.tab puts them together)."""
