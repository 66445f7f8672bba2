"""What pages share: HTML, drawings in SVG, the document and its colours."""
