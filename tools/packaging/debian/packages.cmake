# Three Debian packages by CPack, a component each: libpithN, libpith-dev and pith-tools. N is the
# SOVERSION, so that libraries of two can be installed at a time.
if(NOT CMAKE_INSTALL_PREFIX STREQUAL "/usr")
  message(FATAL_ERROR "PITH_DEBIAN: CMAKE_INSTALL_PREFIX is '${CMAKE_INSTALL_PREFIX}', expected "
                      "/usr, as ./pith package has it")
endif()
set(PITH_MAINTAINER "Pith maintainers <maintainers@pith.invalid>" CACHE STRING
    "who has made the Debian packages")
set(PITH_DEBIAN_REVISION 1 CACHE STRING "of packages of the same version")

get_target_property(soversion pith SOVERSION)
set(library_package libpith${soversion})
set(packages ${library_package} libpith-dev pith-tools)
set(components runtime development tools)

# --- what Debian wants in each package besides ----------------------------------------------------

set(made ${CMAKE_CURRENT_BINARY_DIR}/debian)
file(READ ${PROJECT_SOURCE_DIR}/NOTICE notice)
# In Debian's form of copyright files: indented, a dot for a blank line.
string(REGEX REPLACE "\n\n" "\n.\n" notice "${notice}")
string(REGEX REPLACE "\n(.)" "\n \\1" notice " ${notice}")
configure_file(${CMAKE_CURRENT_LIST_DIR}/copyright.in ${made}/copyright @ONLY)
string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC)  # SOURCE_DATE_EPOCH, if that is set
configure_file(${CMAKE_CURRENT_LIST_DIR}/changelog.in ${made}/changelog.Debian @ONLY)
configure_file(${PROJECT_SOURCE_DIR}/CHANGELOG.md ${made}/changelog COPYONLY)
foreach(file IN ITEMS changelog changelog.Debian)
  execute_process(COMMAND gzip -9nf ${made}/${file} COMMAND_ERROR_IS_FATAL ANY)
endforeach()
foreach(package component IN ZIP_LISTS packages components)
  install(FILES ${made}/copyright ${made}/changelog.gz ${made}/changelog.Debian.gz
          DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${package} COMPONENT ${component})
endforeach()
# Where Debian's users look for examples.
file(CREATE_LINK tools/examples ${made}/examples SYMBOLIC)
install(FILES ${made}/examples DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT development)

# Written here, because CPack would tell dpkg that any program's libnccl.so.2 is in this package.
file(CONFIGURE OUTPUT ${made}/shlibs
     CONTENT "libpith ${soversion} ${library_package} (>= ${PROJECT_VERSION})\n")
# What Debian asks for; the scripts that CPack adds do the same once more.
file(CONFIGURE OUTPUT ${made}/triggers CONTENT "activate-noawait ldconfig\n")

# --- the packages ---------------------------------------------------------------------------------

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME pith)
set(CPACK_PACKAGE_CONTACT "${PITH_MAINTAINER}")
set(CPACK_PACKAGING_INSTALL_PREFIX ${CMAKE_INSTALL_PREFIX})
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL ${components})
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_GROUPING IGNORE)  # a package each
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE ${PITH_DEBIAN_REVISION})
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CMAKE_LIBRARY_OUTPUT_DIRECTORY})
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
    OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(this_version "(= ${PROJECT_VERSION}-${PITH_DEBIAN_REVISION})")

set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME ${library_package})
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_CONTROL_EXTRA ${made}/shlibs ${made}/triggers)
# Loaded when they are there: hwloc orders ranks, libcrypto (libssl3) encrypts, others are links.
set(CPACK_DEBIAN_RUNTIME_PACKAGE_RECOMMENDS "libhwloc15, libibverbs1")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SUGGESTS "ibverbs-providers, libcuda1, libpmix2, libssl3, libucx0")
set(CPACK_COMPONENT_RUNTIME_DESCRIPTION
"collective communication for any worker on any link
Pith sums, gathers and distributes arrays among workers: threads, processes
and hosts, over shared memory, TCP, InfiniBand verbs and UCX. On slow links it
can compress gradients. Calls name dead ranks instead of hanging, and the
survivors continue.
.
This package has the library and, in a folder of its own, a libnccl.so.2 by
which programs made for NCCL run on Pith (LD_PRELOAD).")

set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libpith-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "${library_package} ${this_version}")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SUGGESTS "libssl-dev, libzstd-dev")  # to link libpith.a
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION
"collective communication for any worker on any link (development files)
Pith sums, gathers and distributes arrays among workers: threads, processes
and hosts.
.
This package has the header, the static library, files for pkg-config and
CMake, the manuals and examples in C.")

set(CPACK_DEBIAN_TOOLS_PACKAGE_NAME pith-tools)
set(CPACK_DEBIAN_TOOLS_PACKAGE_SECTION utils)
set(CPACK_DEBIAN_TOOLS_PACKAGE_DEPENDS "${library_package} ${this_version}")
set(CPACK_COMPONENT_TOOLS_DESCRIPTION
"programs around Pith, a library for collective communication
Benchmarks with the flags and the output of nccl-tests (all_reduce_perf and
others), pith-info about this machine and the library's settings, pith-explain
and pith-sim about what calls cost and why, pith-trace, which draws calls, and
a demo that trains a small network on several workers.")

include(CPack)
