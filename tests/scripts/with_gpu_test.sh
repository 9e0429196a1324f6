#!/usr/bin/env bash
# with_gpu_test.sh PROJECT: a program that needs a GPU runs where why_no_gpu says that there is one, and nowhere else.
set -u
source "$(dirname "$0")/expect.sh"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cp "$1/scripts/with_gpu" "$folder"

printf '#!/bin/sh\necho "no such luck"\nexit 1\n' >"$folder/why_no_gpu"
chmod +x "$folder/why_no_gpu"
expect 77 '^skipped: no such luck$' "$folder/with_gpu" echo ran

printf '#!/bin/sh\nexit 0\n' >"$folder/why_no_gpu"
expect 0 '^ran it$' "$folder/with_gpu" echo ran it
expect 3 '' "$folder/with_gpu" sh -c 'exit 3'
exit "$((failures > 0))"
