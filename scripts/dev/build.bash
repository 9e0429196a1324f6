# Configuring and building presets.
presets=(release asan tsan clang gpu fuzz)

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
  [ -f "$root/build/$1/build.ninja" ] || configure_anew "$1"
}

# Says what CMake says if that fails, and nothing else.
configure_anew() {
  local said
  said=$(run_cmake "$1" --preset "$1" 2>&1) || fail "CMake cannot configure the preset $1:
$said"
}

# build PRESET [TARGET...]
build() {
  local preset=$1
  shift
  configure "$preset" || return
  run_cmake "$preset" --build --preset "$preset" ${1:+--target "$@"} >&2
}

# As build, but says nothing while there is nothing to do, little while there is, and everything if it fails.
build_quietly() {
  local log status
  configure "$1" || return
  mkdir -p "$root/build"
  log=$(mktemp "$root/build/log.XXXXXX")
  build "$@" 2>&1 | tee "$log" | show_progress "${2:-$1}"
  status=${PIPESTATUS[0]}
  [ "$status" -eq 0 ] || cat "$log" >&2
  rm -f "$log"
  return "$status"
}

# Reads ninja's output: one line that building has begun, and on a terminal a count of the steps.
show_progress() {
  local line begun=no
  while IFS= read -r line; do
    [[ $line =~ ^(\[[0-9]+/[0-9]+\])\ (Building|Linking|Generating|Compiling) ]] || continue
    [ "$begun" = yes ] || say "building ${1##*/}"
    begun=yes
    [ ! -t 2 ] || printf '\r%s ' "${BASH_REMATCH[1]}" >&2
  done
  [ "$begun" = no ] || [ ! -t 2 ] || printf '\r\033[K' >&2
}

build_command() {
  [ $# -le 1 ] || misuse "build takes one preset"
  build "${1:-release}"
}

# The programs and libraries of a preset, as paths within its build folder.
outputs() {
  ninja -C "$root/build/$1" -t targets all | sed -n 's/^\(.*\): CXX_[A-Z_]*_LINKER_.*/\1/p' | grep -v '\.cmake$'
}

# output_of PRESET NAME: the absolute path of the program or library of that name, or of the shared library libNAME.so.
output_of() {
  local output name
  for name in "$2" "lib$2.so"; do
    while read -r output; do
      if [ "${output##*/}" = "$name" ]; then
        echo "$root/build/$1/$output"
        return 0
      fi
    done < <(outputs "$1")
  done
  return 1
}

path_command() {
  if [ $# -lt 1 ] || [ $# -gt 2 ]; then misuse "path takes the name of a program or library, and at most one preset"; fi
  local preset=${2:-release} output
  configure "$preset"
  build_quietly "$preset" build.ninja  # so that what was added since is known
  output=$(output_of "$preset" "$1") || fail "nothing named '$1' is built; there are:
$(outputs "$preset" | sed 's/.*\///; s/^/  /')"
  build_quietly "$preset" "${output#"$root/build/$preset/"}"
  echo "$output"
}

# The reports of `cuvmm bench`, or the programs of Google Benchmark.
bench_command() {
  if [ "${1:-}" != micro ]; then
    build_quietly release cuvmm
    "$(output_of release cuvmm)" bench "$@"
    return
  fi
  shift
  build_quietly release
  local program any=no
  for program in "$root"/build/release/bench/bench_*; do
    if [ ! -x "$program" ] || [ ! -f "$program" ]; then continue; fi
    any=yes
    say "${program##*/}"
    "$program" "$@"
  done
  [ "$any" = yes ] || fail "there is no benchmark under bench/"
}
