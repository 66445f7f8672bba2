"""Show what classical methods reach on the mini problem of a benchmark, beside its target.

    python bench/baselines.py cosmoflow                       the mini dataset; it is generated if it is missing
    python bench/baselines.py deepcam data/seed7              other data of the same form
    python bench/baselines.py oc20 -o baselines.json          also as a file, with what was chosen

The methods are fitted on the training split alone, and choose there, too; the validation split only judges them.
"""

from __future__ import annotations

import argparse
import json
import sys
from importlib import import_module
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # before this folder, whose files have names of packages

from common.benchmarks import PACKAGES
from common.config import section_of
from common.data.manifest import NAME, ManifestError, read_manifest
from common.installed import find_config
from common.reference import MINI
from compliance.benchmarks import MINIS


def main() -> int:
    """Fit the baselines, print them and write them to a file; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("benchmark", choices=PACKAGES)
    parser.add_argument("data_dir", nargs="?", type=Path, help="the dataset (default: that of the mini problem)")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE.json", help="also write the numbers to a file")
    arguments = parser.parse_args()
    name, folder = arguments.benchmark, arguments.data_dir
    reference = MINIS[name][0]
    if folder is None:
        folder = Path(section_of(find_config(name, MINI), (), "data")["data_dir"])
        if not (folder / NAME).exists():
            import_module(f"{name}.synthesize").SYNTHESIS.provide_data(folder, reference.variant)
    try:
        manifest = read_manifest(folder / NAME)
    except (OSError, ManifestError) as error:
        parser.error(f"{error}; generate the data by python -m {name}.synthesize")
    if manifest.benchmark != name:
        parser.error(f"{folder} has data of {manifest.benchmark}; expected what `{name}.synthesize` generates")
    target, baselines = reference.target, []
    print(f"{name}: {manifest.variant} dataset in {folder}, target {target.range_text}", flush=True)
    for baseline in import_module(f"baselines.{name}").fit_baselines(folder):
        baselines.append(baseline)
        print(f"{baseline.name:<24}{baseline.quality:>8.4f}  {baseline.note}", flush=True)
    best = sorted(baselines, key=lambda baseline: baseline.quality, reverse=target.lower_is_better)[-1]
    print(f"the best, {best.name}, {'meets' if target.met(best.quality) else 'misses'} the target")
    if arguments.output:
        content = {
            "benchmark": name,
            "variant": manifest.variant,
            "data_sha256": manifest.compute_digest(),
            "quality": target.key,
            "lower_is_better": target.lower_is_better,
            "target": target.value,
            "baselines": [baseline._asdict() for baseline in baselines],
            "best": best.name,
        }
        arguments.output.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
