"""Spack recipe of isal. Not built: see integrations/spack/README.md."""
# ruff: noqa: F403, F405 -- the form that Spack documents

from spack.package import *
from spack_repo.builtin.build_systems.python import PythonPackage


class PyIsal(PythonPackage):
    """Faster gzip by the ISA-L library."""

    homepage = "https://github.com/pycompression/python-isal"
    pypi = "isal/isal-1.9.1.tar.gz"

    license("PSF-2.0")

    version("1.9.1", sha256="d210dca02a689ef2af709d2c62d2daac2e36b5d2fa06e6dc0d023c83fee77e91")

    depends_on("c", type="build")
    depends_on("python@3.9:", type=("build", "run"))
    depends_on("py-setuptools@77:", type="build")
    depends_on("py-setuptools-scm@8:", type="build")
    depends_on("libisal")

    def setup_build_environment(self, env):
        """Link Spack's library instead of the bundled one."""
        env.set("PYTHON_ISAL_LINK_DYNAMIC", "true")
