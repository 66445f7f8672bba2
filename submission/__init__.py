"""Makes, summarises and shows submission packages; the verdict on them is compliance's."""
