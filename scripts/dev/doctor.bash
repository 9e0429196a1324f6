# A report on this machine: what the project would use, and what is missing; then what `cuvmm doctor ARGUMENT...` says.
doctor_command() {
  local missing reason argument
  for argument in "$@"; do
    [ "$argument" != --json ] || misuse 'a report of ./dev doctor is not JSON; use: $(./dev path cuvmm) doctor --json'
  done
  printf 'system          %s, kernel %s, %s cores\n' "$(system_name)" "$(uname -r)" "$(nproc)"
  report_tool g++ g++
  report_tool clang++ clang++
  report_tool cmake cmake
  report_tool ninja ninja
  report_tool ccache ccache
  report_tool clang-format clang-format
  report_tool clang-tidy clang-tidy
  if command -v dpkg-query >/dev/null; then
    missing=$(missing_packages "${packages[@]}" "${optional_packages[@]}" | tr '\n' ' ')
    if [ -n "$missing" ]; then
      printf 'packages        missing: %s(./dev setup installs them)\n' "$missing"
    else
      printf 'packages        all there\n'
    fi
  else
    printf 'packages        not a Debian system: not looked at\n'
  fi
  printf 'sanitizers      %s\n' "$(sanitizer_note)"
  report_cuda_toolkit
  if reason=$("$root/scripts/why_no_gpu"); then
    printf 'CUDA driver     found; ./dev tour uses it\n'
    command -v nvidia-smi >/dev/null && nvidia-smi -L | sed 's/^/                /'
  else
    printf 'CUDA driver     none to use: %s; ./dev tour uses the emulated driver\n' "$reason"
  fi
  [ "${CUVMM_DRIVER:-}" = "" ] || printf 'CUVMM_DRIVER    %s\n' "$CUVMM_DRIVER"
  report_devices "$@"
}

# report_devices ARGUMENT...: what the devices can do, once there is a program that tells; who passes arguments on to it
# wants it built. Its status 1 says that something should be done about the devices, which is no failure of this report.
report_devices() {
  local program=$root/build/release/tools/cuvmm/cuvmm status=0
  if [ ! -x "$program" ] && [ $# -gt 0 ]; then build_quietly release cuvmm; fi
  if [ -x "$program" ]; then
    printf '\nDevices, as cuvmm doctor tells (./dev doctor --probe tries what they announce):\n'
    "$program" doctor "$@" || status=$?
    [ "$status" -le 1 ] || return "$status"
  else
    printf 'devices         ./dev build makes cuvmm, whose subcommand doctor tells what they can do\n'
  fi
}

system_name() {
  (. /etc/os-release 2>/dev/null && echo "${PRETTY_NAME:-Linux}") || echo Linux
}

# report_tool LABEL PROGRAM
report_tool() {
  if command -v "$2" >/dev/null; then
    printf '%-15s %s\n' "$1" "$("$2" --version 2>/dev/null | grep -oE '[0-9]+\.[0-9.]*[0-9]' | head -n 1)"
  else
    printf '%-15s missing\n' "$1"
  fi
}

sanitizer_note() {
  if ! layout_is_too_random; then
    echo "run as they are (vm.mmap_rnd_bits is $(mmap_random_bits))"
  elif setarch -R true 2>/dev/null; then
    echo "run without address randomisation (vm.mmap_rnd_bits is $(mmap_random_bits), more than 28)"
  else
    echo "cannot run: vm.mmap_rnd_bits is $(mmap_random_bits), more than 28, and setarch -R is not allowed"
  fi
}

report_cuda_toolkit() {
  local nvcc
  nvcc=$(command -v nvcc || ls "${CUDA_PATH:-/usr/local/cuda}/bin/nvcc" 2>/dev/null) || true
  if [ -n "$nvcc" ]; then
    printf 'CUDA toolkit    %s (%s): kernels for real GPUs are embedded\n' \
      "$("$nvcc" --version | sed -n 's/.*release \([0-9.]*\).*/\1/p')" "$nvcc"
  else
    printf 'CUDA toolkit    none: programs built here run kernels on the emulated driver only\n'
  fi
}
