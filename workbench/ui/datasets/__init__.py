"""The Dataset tab: one file a panel. `tab.DatasetTab` puts them together."""
