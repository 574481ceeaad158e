"""The parts of the Train tab that follow the chosen run (workbench.ui.train_tab puts them together)."""
