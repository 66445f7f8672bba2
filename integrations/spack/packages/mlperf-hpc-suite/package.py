"""Spack recipe of the suite. Not built: see integrations/spack/README.md."""
# ruff: noqa: F403, F405 -- the form that Spack documents

from pathlib import Path

from spack.package import *
from spack_repo.builtin.build_systems.python import PythonPackage


class MlperfHpcSuite(PythonPackage):
    """Reference implementations of MLPerf HPC, with a checker of its result logs."""

    git = Path(__file__).resolve().parents[4].as_uri()

    license("Apache-2.0")

    version("main", branch="main")

    variant("train", default=True, description="The benchmarks, not the checker alone")
    variant("mpi", default=True, when="+train", description="Ranks that mpirun starts find each other")

    depends_on("python@3.11:", type=("build", "run"))
    depends_on("py-setuptools", type="build")
    depends_on("py-msgspec@0.19:", type=("build", "run"))
    depends_on("py-pyyaml@6:", type=("build", "run"))
    depends_on("py-tqdm@4.66:", type=("build", "run"))

    with when("+train"):
        depends_on("py-torch@2.8,2.10:", type=("build", "run"))
        depends_on("py-numpy@2:", type=("build", "run"))
        depends_on("py-mlperf-logging@4.1:", type=("build", "run"))
        depends_on("py-psutil@5.9:", type=("build", "run"))
        depends_on("py-safetensors@0.5:", type=("build", "run"))
        depends_on("py-crc32c@2.7:", type=("build", "run"))
        depends_on("py-h5py@3.11:", type=("build", "run"))
        depends_on("py-isal@1.7:", type=("build", "run"))
        depends_on("py-lmdb@1.5:", type=("build", "run"))
        depends_on("py-ase@3.23:", type=("build", "run"))
    depends_on("py-mpi4py@4:", type=("build", "run"), when="+mpi")
