#!/usr/bin/env bash
# dev_test.sh PROJECT: ./dev's usage, its refusals, and that the shards of a full test are the full test.
set -u
source "$(dirname "$0")/expect.sh"
dev=$1/dev

expect 0 '^usage: ./dev' "$dev" help
expect 0 '^usage: ./dev' "$dev"
expect 2 "there is no command 'fly'" "$dev" fly
expect 2 "there is no preset 'hot'" "$dev" build hot
expect 2 'path takes the name' "$dev" path
expect 0 '^system  ' "$dev" doctor
expect 0 '^Devices, as cuvmm doctor tells|^devices  .*./dev build' "$dev" doctor
expect 2 'is not JSON; use: ' "$dev" doctor --json
if [ -x "$1/build/release/tools/cuvmm/cuvmm" ]; then
  expect 0 '^Devices, as cuvmm doctor tells' "$dev" doctor --driver emulated
  expect 0 'yes, tried' "$dev" doctor --driver emulated --probe
  expect 2 '--driver' "$dev" doctor --driver vulkan
fi
expect 2 "not '--fast'" "$dev" test --fast
expect 2 './dev help tells' "$dev" test --fast
expect 2 './dev help tells' "$dev" path
for command in test path build lint mutants; do
  expect 0 '^usage: ./dev' "$dev" "$command" --help
done
expect 2 'mutants takes at most one' "$dev" mutants a b
expect 2 '--shard and --list go with --full' "$dev" test --shard 1/2
for shard in 0/3 4/3 1/0 3 a/b '' 01/2; do
  expect 2 'I/N with 1 <= I <= N' "$dev" test --full --list --shard "$shard"
done

whole=$("$dev" test --full --list | sort)
for count in 1 2 3 5 9; do
  parts=$(for ((part = 1; part <= count; part++)); do "$dev" test --full --list --shard "$part/$count"; done | sort)
  if [ -z "$whole" ] || [ "$parts" != "$whole" ]; then
    echo "$count shards are not the whole: $parts"
    failures=$((failures + 1))
  fi
done
expect 0 '^tsan$' "$dev" test --full --list --shard 3/3

# Every command that the usage names is there, so none of them is answered by "there is no command".
for command in $("$dev" help | sed -n 's/^  \([a-z][a-z]*\) .*/\1/p'); do
  grep -qE "^  ($command|[a-z |-]*\b$command\b.*)\)" "$dev" || {
    echo "the usage names '$command', which ./dev does not know"
    failures=$((failures + 1))
  }
done
exit "$((failures > 0))"
