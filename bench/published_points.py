"""Write what projections need of the published results: scale, batch size, epochs and times of each.

python bench/published_points.py                                                  shows it, of ../shared/corpus
python bench/published_points.py -o submission/results/fits/published.json       writes it
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from published import write_page

from compliance.engine import Options, check_paths
from submission.results.fits.fit import scaled_sets
from submission.results.fits.projection import MEANS, OF_RUNS
from submission.results.sets import analyse_sets, read_facts

KEPT = (
    *("round", "organisation", "division", "system", "scaling", "benchmark", "processor", "accelerator"),
    *("accelerators", "batch_size"),
)
"""The fields of a row that fits ask for."""


def points(folder: Path) -> str:
    """Return the text of the file: the results below a folder that count in fits of time against units."""
    sets = analyse_sets(check_paths([folder], Options(details=True)), read_facts())
    results = [
        {
            "row": {name: getattr(one.row, name) for name in KEPT},
            "units": one.units,
            "normalisation": one.normalisation,
            "means": [one.mean(name) for name in MEANS],
            "runs": [[run.values.get(name) for name in OF_RUNS] for run in one.runs],
        }
        for one in scaled_sets(sets)[0]
    ]
    return "[\n" + ",\n".join(map(json.dumps, results)) + "\n]\n"


if __name__ == "__main__":
    sys.exit(write_page(__doc__, points))
