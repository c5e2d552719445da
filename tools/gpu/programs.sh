# Sourced by run.sh: which programs run on this machine, the carried ones or those built there.
# shellcheck shell=bash

# What these lack: libraries, or versions of them (then the name of the program).
missing_in() { ldd "$@" 2>/dev/null | awk '/not found/ {print $1}' | sort -u; }

# Sets $carried to the folder of the carried programs.
unpack_programs() {
  carried=$pack
  [[ -f $pack/programs.tar.gz ]] || return 0
  carried=$tree/carried
  [[ ! $carried/unpacked -nt $pack/programs.tar.gz ]] || return 0
  rm -rf -- "$carried"
  mkdir -p "$carried"
  tar -xzf "$pack/programs.tar.gz" -C "$carried" && touch "$carried/unpacked"
}

# Whether the carried programs run here. Libraries that the system has are not replaced, for they
# are Python's too; a library that was lacking may lack others.
carried_run() {
  unpack_programs
  [[ -f $carried/bin/test_cuda_gpu ]] || return 1
  chmod u+x "$carried"/bin/* 2>/dev/null || true # where only contents were carried
  local library round spare=$tree/spare
  mkdir -p "$spare"
  LD_LIBRARY_PATH=$carried/lib:$spare${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  export LD_LIBRARY_PATH
  for round in 1 2; do
    for library in $(missing_in "$carried"/bin/* "$carried"/net/* "$carried/lib/libnccl.so.2"); do
      if [[ -f $carried/spare/$library ]]; then cp "$carried/spare/$library" "$spare/"; fi
    done
  done
  library=$(missing_in "$carried"/bin/* "$carried/lib/libnccl.so.2")
  [[ -z $library ]] || { say "the carried programs lack: ${library//$'\n'/ }" && return 1; }
}

# Sets $at to the folder whose programs run here: the carried ones, else those built here.
find_programs() {
  [[ -z ${GPU_STUB:-} ]] || export LD_LIBRARY_PATH=$GPU_STUB${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  if carried_run; then
    at=$carried
  elif [[ -x $tree/bin/test_cuda_gpu ]]; then
    use_debs
    at=$tree
    export LD_LIBRARY_PATH=$at/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  else
    return 1
  fi
}

# The carried packages beside the system's; nothing is installed.
use_debs() {
  [[ -d $pack/debs ]] || return 0
  local into=$tree/pack file
  if [[ ! -d $into ]]; then
    mkdir -p "$into"
    for file in "$pack"/debs/*.deb; do dpkg -x "$file" "$into"; done
    ln -sf pkgconf "$into/usr/bin/pkg-config"
  fi
  local libraries=$into/usr/lib/x86_64-linux-gnu
  command -v pkg-config >/dev/null || PATH=$PATH:$into/usr/bin
  export PATH CMAKE_PREFIX_PATH=$into/usr
  # OpenSSL's configuration lies where only a compiler's own /usr is searched.
  export CPATH=$into/usr/include/x86_64-linux-gnu${CPATH:+:$CPATH}
  export PKG_CONFIG_SYSROOT_DIR=$into
  export PKG_CONFIG_LIBDIR=$libraries/pkgconfig:$into/usr/share/pkgconfig
  export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$libraries
}

# What a part needs to go on: its programs and a GPU.
ready() {
  find_programs || { say "$1: no program runs here, run.sh build makes them: skipped" && return 1; }
  has_gpu || { say "$1: no GPU: skipped" && return 1; }
}
