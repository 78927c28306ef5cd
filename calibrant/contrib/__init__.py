"""Adapters of other tools, one file each. Each imports its tool only when it is used."""
