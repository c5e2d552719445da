"""Pith for Spack, built from the clone of the repository in which this file lies:

    spack repo add tools/packaging/spack && spack install pith

It is written for Spack 0.22 and 0.23, in whose own repository the names of packages were looked up.
That it is Python and names our options is checked (tests/packaging); Spack itself has not run it.
"""
import pathlib

from spack.package import *


class Pith(CMakePackage):
    """Collective communication for any worker on any link, with compressed gradients, and a
    libnccl.so.2 by which programs made for NCCL run on it."""

    git = pathlib.Path(__file__).resolve().parents[5].as_uri()

    license("Apache-2.0")
    version("main", branch="main")

    variant("ucx", default=True, description="the transport over UCX")
    variant("verbs", default=True, description="the transport over InfiniBand and RoCE")
    variant("zstd", default=True, description="the scheme lossless")
    variant("hwloc", default=True, description="ranks ordered by the topology of their hosts")
    variant("cuda", default=False, description="kernels for device memory, as PTX")

    depends_on("cmake@3.25:", type="build")
    depends_on("ninja", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("help2man", type="build")
    depends_on("cli11", type="build")
    depends_on("eigen@3.3:", type="build")
    depends_on("nlohmann-json", type="build")
    depends_on("spdlog", type="build")
    depends_on("fmt")
    depends_on("highway@1.0.3:")
    depends_on("openssl")
    depends_on("zstd", when="+zstd")
    # The library loads these by their names, from where it was linked to look.
    depends_on("hwloc@2", when="+hwloc")
    depends_on("rdma-core", when="+verbs")
    depends_on("ucx@1.13:", when="+ucx")
    depends_on("cuda@12:", when="+cuda", type="build")  # the driver is loaded at run time

    generator("ninja")
    conflicts("%gcc@:11", msg="coroutines of C++20 need GCC 12")
    conflicts("platform=darwin", msg="Pith runs on Linux")
    conflicts("platform=windows", msg="Pith runs on Linux")

    def cmake_args(self):
        return [
            self.define("PITH_TESTS", self.run_tests),
            self.define("PITH_WERROR", False),
            self.define_from_variant("PITH_UCX", "ucx"),
            self.define_from_variant("PITH_VERBS", "verbs"),
            self.define_from_variant("PITH_ZSTD", "zstd"),
            self.define("PITH_CUDA_CODE", "ptx" if self.spec.satisfies("+cuda") else "none"),
        ]
