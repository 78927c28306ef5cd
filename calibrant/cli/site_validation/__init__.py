"""Checks of an installation on site, and the page that states their results: `calibrant validate`."""
