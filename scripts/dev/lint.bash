# Formatting and the checks that need no test.
cxx_sources() {
  (cd "$root" && git ls-files --cached --others --exclude-standard -- \
    '*.cpp' '*.hpp' '*.cu' '*.cuh' '*.def' | while read -r file; do [ ! -e "$file" ] || echo "$file"; done)
}

shell_sources() {
  (cd "$root" && git ls-files --cached --others --exclude-standard -- dev .ci/run scripts | while read -r file; do
    [ -f "$file" ] && head -n 1 "$file" | grep -qE '^#!.*sh$|^# ' && [[ $file != *.py ]] && echo "$file"
  done)
}

format_command() {
  install_packages
  (cd "$root" && cxx_sources | grep -vE '\.def$' | xargs -r clang-format -i)
}

lint_command() {
  [ $# -eq 0 ] || misuse "lint takes no argument"
  install_packages
  local check status failed=()
  for check in formatting scripts wording headers tidy; do
    say "lint: $check"
    set +e  # not `|| ...`, under which bash would go on after a failure within the check
    (set -e; "lint_$check")
    status=$?
    set -e
    [ "$status" -eq 0 ] || failed+=("$check")
  done
  [ ${#failed[@]} -eq 0 ] || fail "lint found something in: ${failed[*]}"
  echo "lint: clean"
}

lint_formatting() {
  (cd "$root" && cxx_sources | grep -vE '\.def$' | xargs -r clang-format --dry-run --Werror)
}

lint_scripts() {
  local file
  shell_sources | while read -r file; do bash -n "$root/$file"; done
}

# The project speaks of itself alone, and of finished things. The patterns are written so as not to find themselves.
lint_wording() {
  ! (cd "$root" && git grep --untracked -nE '/wor[k]/|\.\./share[d]/|\bTOD[O]\b|\bFIXM[E]\b|\bXX[X]\b' -- . ':!LICENSE')
}

# Every header can be included alone.
lint_headers() {
  build release cuvmm_headers
}

lint_tidy() {
  build release
  python3 "$root/scripts/clang_tidy.py" "$root/build/release" "${XDG_CACHE_HOME:-$HOME/.cache}/cuvmm/clang-tidy"
}
