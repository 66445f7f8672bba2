"""Fits over results, and projections by them."""
