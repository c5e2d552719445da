# Sourced by run.sh: what is made here, without a GPU, and carried along.
# shellcheck shell=bash

readonly most_bytes=$((62 << 20)) # of pack and working tree, which travel together
# What a build there needs beyond nvcc, g++, cmake and ninja. From Debian; Ubuntu 24.04 takes them.
readonly debs=(libhwy-dev libhwy1 libfmt-dev libfmt9 libspdlog-dev libspdlog1.10 libssl-dev
  libcli11-dev nlohmann-json3-dev libeigen3-dev catch2 pkgconf-bin libpkgconf3)

readonly kernel_flags=(-std=c++20 -O3 --expt-relaxed-constexpr -fmad=false "-I$root" "-I$root/src")

# Registers, stack and spills of each kernel, as ptxas says them of this code.
tell_resources() { # CODE FILE
  local nvcc kernel launcher=() filter=cat
  nvcc=$(find_nvcc)
  if command -v ccache >/dev/null; then launcher=(ccache); fi
  if command -v c++filt >/dev/null; then filter=c++filt; fi
  mkdir -p "$tree/kernels"
  for kernel in "$root"/cuda/kernels/*.cu; do
    "${launcher[@]}" "$nvcc" "${kernel_flags[@]}" "-arch=$1" -Xptxas -v -cubin \
      -o "$tree/kernels/$(basename "$kernel" .cu).cubin" "$kernel" 2>&1 || exit 1
  done | "$filter" >"$2" || { cat "$2" && return 1; }
}

configure() {
  local generator=() launcher=()
  if command -v ninja >/dev/null; then generator=(-G Ninja); fi
  if command -v ccache >/dev/null; then
    launcher=(-DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
  fi
  cmake -S "$root" -B "$tree" "${generator[@]}" "${launcher[@]}" -DCMAKE_BUILD_TYPE=Release \
    -DPITH_TESTS=ON "$@" >"$tree/configure.log" || { cat "$tree/configure.log" && return 1; }
}

compile_cuda_perf() {
  local nvcc
  nvcc=$(find_nvcc) || { say "no nvcc: no cuda_perf" && return 0; }
  local made=$tree/bin/cuda_perf source=$root/perf/cuda_perf.cu
  [[ ! -x $made || -n $(find "$source" "$root/perf/cuda" -newer "$made") ]] || return 0
  "$nvcc" "${kernel_flags[@]}" "-arch=$1" -o "$made" "$source"
}

# What the programs load beyond libc and the compiler's own, which every machine has.
libraries_of() {
  ldd "$@" | awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u |
    grep -Ev '/(libc|libm|libdl|librt|libpthread|libgcc_s|libstdc\+\+|libnccl|libcuda)\.so' ||
    true
}

prebuild() {
  find_nvcc >/dev/null || { say "prebuild: needs nvcc" && return 1; }
  local into=$tree/programs program
  rm -rf -- "$into" "$pack/bin" "$pack/lib" "$pack/spare"
  mkdir -p "$pack" "$into/bin" "$into/lib" "$into/spare" "$into/net"
  export CCACHE_BASEDIR=$root CCACHE_NOHASHDIR=1
  configure "-DPITH_CUDA_CODE=${PREBUILD_CODE:-sm_90+ptx}"
  cmake --build "$tree" --parallel "${JOBS:-$(nproc)}" --target nccl "${programs[@]}"
  compile_cuda_perf sm_90
  tell_resources sm_90 "$into/resources.txt"
  for program in "${programs[@]}" cuda_perf; do
    install -s "$tree/bin/$program" "$into/bin/$program"
  done
  install -s "$tree/lib/libnccl.so.2" "$into/lib/libnccl.so.2"
  # For links of a known rate, where the machine has none itself.
  for program in ip tc; do
    program=$(PATH=$PATH:/usr/sbin:/sbin command -v "$program") && cp -L "$program" "$into/net/"
  done
  libraries_of "$into"/bin/* "$into"/net/* "$into/lib/libnccl.so.2" |
    while read -r program; do cp -L "$program" "$into/spare/"; done
  # What travels is counted as it lies there, and device code shrinks to a third.
  tar -czf "$pack/programs.tar.gz" -C "$into" bin lib spare net resources.txt
  git -C "$root" describe --always --dirty >"$pack/commit" 2>/dev/null || printf '?' >"$pack/commit"
  check_pack
}

make_pack() {
  mkdir -p "$pack/debs"
  (cd "$pack/debs" && rm -f -- *.deb && apt-get download "${debs[@]}")
  check_pack
}

# Files that git has or would take, without a repository all.
tree_bytes() {
  (cd "$root" && git ls-files -z --cached --others --exclude-standard 2>/dev/null |
    du -cb --files0-from=- 2>/dev/null | tail -n 1 | cut -f1)
}

check_pack() {
  local bytes others
  bytes=$(du -sb "$pack" | cut -f1)
  others=$(tree_bytes)
  say "tools/gpu/pack has $((bytes >> 20)) MiB, and the working tree $((${others:-0} >> 20))"
  ((bytes + ${others:-0} <= most_bytes)) || { say "pack: too much to be carried" && return 1; }
}
