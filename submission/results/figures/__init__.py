"""The figures of an analysis, as inline SVG: pure functions of its results.

Each figure is a function of (results, name) that returns an SVG element, or empty markup where it has nothing to show.
name: makes its ids unique on the page. In a window that is narrower than the drawing, its frame scrolls.
"""
