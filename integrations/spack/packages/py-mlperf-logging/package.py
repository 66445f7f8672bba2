"""Spack recipe of mlperf-logging. Not built: see integrations/spack/README.md."""
# ruff: noqa: F403, F405 -- the form that Spack documents

from spack.package import *
from spack_repo.builtin.build_systems.python import PythonPackage


class PyMlperfLogging(PythonPackage):
    """The official logger and checker of MLPerf."""

    homepage = "https://github.com/mlcommons/logging"
    url = "https://files.pythonhosted.org/packages/py3/m/mlperf-logging/mlperf_logging-4.1.68-py3-none-any.whl"

    license("Apache-2.0")

    # PyPI has a wheel and no sources.
    version("4.1.68", sha256="1f199ff35625308786fe3410410d3b03a32661a8b2babd022eacad7b91166f03", expand=False)

    depends_on("py-pandas@1:", type=("build", "run"))
    depends_on("py-pyyaml@5.4.1:", type=("build", "run"))
    depends_on("py-numpy@1.17.3:", type=("build", "run"))
    depends_on("py-scipy@1.4.1:", type=("build", "run"))
