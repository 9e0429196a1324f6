# Messages go to standard error: standard output belongs to the program that was asked for.
say() {
  printf '== %s\n' "$*" >&2
}

fail() {
  printf './dev: %s\n' "$*" >&2
  exit 1
}

# Wrong usage of ./dev itself.
misuse() {
  printf './dev: %s\n./dev help tells the commands and what they take.\n' "$*" >&2
  exit 2
}
