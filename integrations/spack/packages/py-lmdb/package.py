"""Spack recipe of lmdb. Not built: see integrations/spack/README.md."""
# ruff: noqa: F403, F405 -- the form that Spack documents

from spack.package import *
from spack_repo.builtin.build_systems.python import PythonPackage


class PyLmdb(PythonPackage):
    """Binding of the LMDB database."""

    homepage = "https://github.com/jnwatson/py-lmdb"
    pypi = "lmdb/lmdb-3.0.0.tar.gz"

    license("OLDAP-2.8")

    version("3.0.0", sha256="06dda0723545e14d56ac7dcd6f582d9922c2ed5e16f1c3f8d0e670a96ec2ee65")

    depends_on("c", type="build")
    depends_on("python@3.9:", type=("build", "run"))
    depends_on("py-setuptools", type="build")
    depends_on("py-cffi", type=("build", "run"))
    depends_on("py-patch-ng", type="build")
    depends_on("lmdb")

    def setup_build_environment(self, env):
        """Link Spack's library instead of the bundled one."""
        env.set("LMDB_FORCE_SYSTEM", "1")
