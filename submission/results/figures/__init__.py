"""The figures of an analysis, as inline SVG: pure functions of its results.

Each figure is a function of (results, name, width) that returns an SVG element, or empty markup where it has nothing to
show. name: makes its ids unique on the page. width: WIDE or HALF for a screen or paper, NARROW for a phone; a page
has both in one `figure` element of class "plots", and page.css shows one of them.
"""
