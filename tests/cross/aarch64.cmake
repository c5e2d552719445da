# For CMAKE_TOOLCHAIN_FILE: 64-bit ARM with Debian's cross compiler (g++-aarch64-linux-gnu). Needs
# PITH_SYSROOT, a tree of Debian's packages for arm64 (run.sh), where all libraries are looked for.
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES PITH_SYSROOT)
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_SYSROOT ${PITH_SYSROOT})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${PITH_SYSROOT})
set(ENV{PKG_CONFIG_LIBDIR}
    ${PITH_SYSROOT}/usr/lib/aarch64-linux-gnu/pkgconfig:${PITH_SYSROOT}/usr/share/pkgconfig)
