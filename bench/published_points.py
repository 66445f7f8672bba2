"""Write what projections need of the published results: scale, batch size, epochs and times of each.

python bench/published_points.py                                                  shows it, of ../shared/corpus
python bench/published_points.py -o submission/analysis/fits/published.json       writes it
"""

from __future__ import annotations

import sys
from pathlib import Path

from published import write_page

from compliance.engine import Options, check_paths
from submission.analysis.fits.projection import format_published
from submission.analysis.sets import analyse, known_facts


def points(folder: Path) -> str:
    """Return the text of the file for the results below a folder."""
    return format_published(analyse(check_paths([folder], Options(details=True)), known_facts()))


if __name__ == "__main__":
    sys.exit(write_page(__doc__, points))
