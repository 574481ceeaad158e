"""Everything the page, the shell, the API and agents can do, one module per noun. `registry` generates the rest."""
