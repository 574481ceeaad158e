"""A dataset in another tool's layout: in a new folder or archive, or in a dataset repository on the Hub.

Not here: how layouts look (sources.layouts), importing (sources, ingest).
"""
