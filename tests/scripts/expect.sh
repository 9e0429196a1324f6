# expect STATUS PATTERN COMMAND...: the command ends with that status, and what it prints matches the pattern.
failures=0
expect() {
  local status=$1 pattern=$2 output actual=0
  shift 2
  output=$("$@" 2>&1 </dev/null) || actual=$?
  if [ "$actual" -ne "$status" ] || ! grep -qE -- "$pattern" <<<"$output"; then
    printf 'expected status %s and /%s/ of: %s\nstatus %s, output:\n%s\n\n' "$status" "$pattern" "$*" "$actual" "$output"
    failures=$((failures + 1))
  fi
}
