# The Debian packages that building, testing and linting need.
packages=(
  g++ cmake ninja-build ccache pkg-config python3 python3-venv git
  clang clang-format clang-tidy
  libfmt-dev libcli11-dev nlohmann-json3-dev libgtest-dev libbenchmark-dev librapidcheck-dev libnuma-dev
)
# Without these cuvmm::mpi is left out, and all else is built: only ./dev setup installs them.
optional_packages=(libopenmpi-dev openmpi-bin)

missing_packages() {
  local package
  for package in "$@"; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || echo "$package"
  done
}

# install_packages [PACKAGE...]: those that are needed, and these. Says nothing and touches no network where all is there.
install_packages() {
  if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    explain_manual_setup
    return
  fi
  local missing administrator=()
  mapfile -t missing < <(missing_packages "${packages[@]}" "$@")
  [ ${#missing[@]} -gt 0 ] || return 0
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || fail "these packages are missing: ${missing[*]}. Install them as root:
  apt-get install ${missing[*]}"
    administrator=(sudo)
  fi
  say "installing ${missing[*]}"
  "${administrator[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -qq >&2
  "${administrator[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
    "${missing[@]}" </dev/null >&2 || fail "apt-get could not install: ${missing[*]}"
}

# Without apt, the tools alone can be checked for; CMake names a library that is missing.
explain_manual_setup() {
  local tool missing=()
  for tool in g++ cmake ninja; do
    command -v "$tool" >/dev/null || missing+=("$tool")
  done
  [ ${#missing[@]} -eq 0 ] || fail "there is no apt-get here, and ${missing[*]} cannot be found. Install:
  tools: g++ 12 or newer, cmake 3.25 or newer, ninja; ccache if you like; clang, clang-format and clang-tidy 14 for lint
  libraries: fmt 9, CLI11 2, nlohmann-json 3, GoogleTest, Google Benchmark, RapidCheck, libnuma; OpenMPI if you like"
}
