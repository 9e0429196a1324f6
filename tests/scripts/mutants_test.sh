#!/usr/bin/env bash
# mutants_test.sh PROJECT: what scripts/mutants.py says of mutants that drifted away from the source.
set -u
source "$(dirname "$0")/expect.sh"
check=(python3 "$1/scripts/mutants.py" --check)

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir -p "$folder/tests/mutants"
printf 'if (a) return;\nif (b) return;\n' >"$folder/source.cpp"

# mutants NAME LINE...: a list of mutants of that source.
mutants() {
  : >"$folder/tests/mutants/mutants.toml"
  while [ $# -gt 0 ]; do
    printf '[[mutant]]\nname = "%s"\nfile = "source.cpp"\nline = "%s"\nreplacement = ""\nprogram = "p"\nfilter = "*"\n' \
      "$1" "$2" >>"$folder/tests/mutants/mutants.toml"
    shift 2
  done
}

mutants first 'if (a) return;' second 'if (b) return;'
expect 0 '^2 mutants apply' "${check[@]}" "$folder"
mutants first 'if (c) return;'
expect 2 'first: source.cpp has its line 0 times, not once' "${check[@]}" "$folder"
mutants first 'return;'
expect 2 'first: source.cpp has its line 2 times, not once' "${check[@]}" "$folder"
mutants first ''
expect 2 'first: source.cpp has its line' "${check[@]}" "$folder"
mutants same 'if (a) return;' same 'if (b) return;'
expect 2 'same: two mutants have this name' "${check[@]}" "$folder"
expect 2 '^usage: mutants.py' python3 "$1/scripts/mutants.py"
exit "$((failures > 0))"
