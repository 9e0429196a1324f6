#!/usr/bin/env bash
# python_environment_test.sh PROJECT: an environment that cannot be made is told with the reason, and what needs it is
# skipped; one that is there is used as it is.
set -u
source "$(dirname "$0")/expect.sh"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
make=$1/scripts/python_environment
with=$1/scripts/with_python_environment
echo 'some-package==1' >"$folder/requirements.txt"
mkdir "$folder/programs"

# python_that STATEMENT: what is found as python3, in the place of the real one.
python_that() {
  printf '#!/bin/sh\n%s\n' "$1" >"$folder/programs/python3"
  chmod +x "$folder/programs/python3"
}
made() { PATH="$folder/programs:$PATH" "$make" "$folder/environment" "$folder/requirements.txt"; }
used() { "$with" "$folder/environment" "$folder/requirements.txt" "$@"; }

expect 77 '^skipped: .*python_environment has not been run' used echo ran
python_that 'exit 1'
expect 1 '^python3 is older' made
python_that '[ "$1" != -m ]'
expect 1 '^python3 cannot make a virtual environment' made
expect 77 '^skipped: python3 cannot make a virtual environment' used echo ran

# What `python3 -m venv FOLDER` makes: a folder with a python of its own, which is then to install the packages.
python_that '[ "$1" != -m ] || { mkdir -p "$3/bin" && printf "#!/bin/sh\necho no network\nexit 1\n" >"$3/bin/python" && chmod +x "$3/bin/python"; }'
expect 1 '^the packages of requirements.txt cannot be had: no network$' made
expect 77 '^skipped: the packages of requirements.txt cannot be had: no network$' used echo ran

python_that '[ "$1" != -m ] || { mkdir -p "$3/bin" && printf "#!/bin/sh\n" >"$3/bin/python" && chmod +x "$3/bin/python"; }'
expect 0 '' made
expect 0 '^ran it$' used echo ran it
expect 3 '' used sh -c 'exit 3'

# It is not made again until something else is required.
python_that 'echo asked for'
expect 0 '^$' made
echo 'some-package==2' >"$folder/requirements.txt"
expect 77 '^skipped: ' used echo ran
python_that 'exit 1'
expect 1 '^python3 is older' made
expect 2 '' "$make" "$folder/environment"
exit "$((failures > 0))"
