"""Searching tile extents and schedule fields, and keeping what was found."""
