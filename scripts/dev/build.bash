# Configuring and building presets.
presets=(release asan tsan clang gpu)

check_preset() {
  local preset
  for preset in "${presets[@]}"; do
    [ "$preset" != "$1" ] || return 0
  done
  misuse "there is no preset '$1'; there are: ${presets[*]}"
}

# run_cmake PRESET ARGUMENT...: CMake in the project's root, with the address space layout that the preset needs.
run_cmake() {
  local preset=$1
  shift
  (cd "$root" && with_preset_layout "$preset" cmake "$@")
}

configure() {
  check_preset "$1"
  install_packages
  [ -f "$root/build/$1/build.ninja" ] || run_cmake "$1" --preset "$1" >&2
}

# build PRESET [TARGET...]
build() {
  local preset=$1
  shift
  configure "$preset" || return
  run_cmake "$preset" --build --preset "$preset" ${1:+--target "$@"} >&2
}

# As build, but says nothing unless it fails or takes a while.
build_quietly() {
  local log status=0
  configure "$1" || return
  mkdir -p "$root/build"
  log=$(mktemp "$root/build/log.XXXXXX")
  needs_building "$@" && say "building ${2:-$1}"
  build "$@" 2>"$log" || status=$?
  [ "$status" -eq 0 ] || cat "$log" >&2
  rm -f "$log"
  return "$status"
}

needs_building() {
  ! ninja -C "$root/build/$1" -n "${@:2}" 2>/dev/null | grep -q 'no work to do'
}

build_command() {
  [ $# -le 1 ] || misuse "build takes one preset"
  build "${1:-release}"
}

# output_of PRESET NAME: the absolute path of the program or library of that name.
output_of() {
  local found
  found=$(ninja -C "$root/build/$1" -t targets all 2>/dev/null |
    sed -n 's/^\(.*\): CXX_[A-Z_]*_LINKER_.*/\1/p' | grep -E "^(.*/)?$(sed 's/[.+]/\\&/g' <<<"$2")\$" | head -n 1) || true
  [ -n "$found" ] || return 1
  echo "$root/build/$1/$found"
}

path_command() {
  [ $# -ge 1 ] && [ $# -le 2 ] || misuse "path takes the name of a program or library, and at most one preset"
  local preset=${2:-release} output
  configure "$preset"
  build_quietly "$preset" build.ninja
  output=$(output_of "$preset" "$1") || fail "nothing named '$1' is built; there are:
$(ninja -C "$root/build/$preset" -t targets all | sed -n 's/^\(.*\/\)*\(.*\): CXX_[A-Z_]*_LINKER_.*/  \2/p')"
  build_quietly "$preset" "${output#"$root/build/$preset/"}"
  echo "$output"
}

bench_command() {
  build_quietly release
  local program any=no
  for program in "$root"/build/release/bench/bench_*; do
    [ -x "$program" ] && [ -f "$program" ] || continue
    any=yes
    say "${program##*/}"
    "$program" "$@"
  done
  [ "$any" = yes ] || fail "there is no benchmark under bench/"
}
