"""The tests are of the package beside them, installed or not."""

from pathlib import Path

from common.benchmarks import use_folders

use_folders([str(Path(__file__).parents[1])])
