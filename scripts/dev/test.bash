# Running the tests: plain, or everything in steps that can be shared out.

# The steps of --full, in the order in which they matter most.
full_steps=(release asan tsan lint long)

step_release() { run_tests release; }
step_asan() { run_tests asan; }
step_tsan() { run_tests tsan; }
step_long() { CUVMM_TEST_LONG=1 run_tests release; }
step_lint() { lint_command; }

# run_tests PRESET: builds it and runs its tests, the ones on a GPU too where there is one. Tests are started one a core;
# a test that needs the machine for itself says so (RUN_SERIAL).
run_tests() {
  local preset=$1 reason chosen=() excluded=none
  install_packages
  rm -f "$root/build/$preset/tests.log"
  build "$preset"
  if reason=$("$root/scripts/why_no_gpu"); then
    say "a GPU is here: the tests on it run too"
  else
    excluded+='|gpu'
    say "tests on a GPU are skipped: $reason"
  fi
  if ! reason=$(why_no_python_tests "$preset"); then
    excluded+='|python'
    say "tests in Python are skipped: $reason"
  fi
  [ "$excluded" = none ] || chosen=(--label-exclude "^($excluded)\$")
  run_ctest "$preset" "${chosen[@]}"
}

# Exits with 0 where the preset's tests in Python can run; elsewhere says why they cannot and exits with 1. The first time
# this makes their environment, which needs a network.
why_no_python_tests() {
  case "$1" in
    asan | tsan)
      echo "a sanitizer's runtime cannot be loaded into Python"
      return 1
      ;;
  esac
  "$root/scripts/python_environment" "$root/build/$1/python" "$root/tests/python/requirements.txt"
}

run_ctest() {
  local preset=$1
  shift
  (cd "$root" && with_preset_layout "$preset" ctest --preset "$preset" --parallel "$(nproc)" "$@") 2>&1 |
    tee "$root/build/$preset/tests.log"
}

# Mutants: tests/mutants/mutants.toml. The copy of the project stays under build/mutants, for the next time.
mutants_command() {
  [ $# -le 1 ] || misuse "mutants takes at most one part of a name"
  install_packages
  python3 "$root/scripts/mutants.py" "$root" "$root/build/mutants" "$@"
}

# The line with which ctest ended in a preset: "100% tests passed, 0 tests failed out of 12".
closing_line() {
  grep -E '^[0-9]+% tests passed' "$root/build/$1/tests.log" 2>/dev/null | tail -n 1
}

test_command() {
  local full=no list=no shard=1/1
  while [ $# -gt 0 ]; do
    case "$1" in
      --full) full=yes ;;
      --list) list=yes ;;
      --shard)
        [ $# -ge 2 ] || misuse "--shard takes I/N, as in --shard 1/3"
        shard=$2
        shift
        ;;
      --shard=*) shard=${1#--shard=} ;;
      *) misuse "test knows --full, --shard I/N and --list, not '$1'" ;;
    esac
    shift
  done
  if ! [[ $shard =~ ^([1-9][0-9]?)/([1-9][0-9]?)$ ]] || [ "${BASH_REMATCH[1]}" -gt "${BASH_REMATCH[2]}" ]; then
    misuse "--shard takes I/N with 1 <= I <= N, not '$shard'"
  fi
  if [ "$full" = no ]; then
    [ "$shard$list" = 1/1no ] || misuse "--shard and --list go with --full"
    run_tests release
  elif [ "$list" = yes ]; then
    steps_of_shard "${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}"
  else
    test_fully "${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}"
  fi
}

# steps_of_shard I N: every N-th step beginning with the I-th.
steps_of_shard() {
  local number
  for ((number = $1 - 1; number < ${#full_steps[@]}; number += $2)); do
    echo "${full_steps[number]}"
  done
}

# test_fully I N: the steps of that shard. Goes on after a failure, so that one run tells of all.
test_fully() {
  local step steps status failed=no results=()
  mapfile -t steps < <(steps_of_shard "$1" "$2")
  if [ ${#steps[@]} -eq 0 ]; then
    say "part $1 of $2 is empty: there are ${#full_steps[@]} steps"
    return
  fi
  for step in "${steps[@]}"; do
    say "step: $step"
    set +e  # not `|| status=$?`, under which bash would go on after a failure within the step
    (set -e; "step_$step")
    status=$?
    set -e
    if [ "$status" -eq 0 ]; then
      results+=("$step: passed$(step_detail "$step")")
    else
      results+=("$step: FAILED$(step_detail "$step")")
      failed=yes
    fi
  done
  printf '%s\n' "${results[@]}"
  [ "$failed" = no ]
}

step_detail() {
  local preset=$1 line
  [ "$preset" != long ] || preset=release
  [ "$preset" != lint ] || return 0
  line=$(closing_line "$preset") && echo " ($line)"
  return 0
}
