#!/usr/bin/env bash
# Everything that this project holds itself to, in one command: lint, formatting, types, tests.
#
#   bash tests/run.sh [arguments for pytest]
#
# All of it runs on the newest Python that is found (PYTHON=/path/to/python names another one), and without arguments the
# tests of the formats also on the oldest that is supported, where that is there. Needs Python 3.11 or newer with pip. The
# rest is brought along: virtual environments (.venv-test and .venv-oldest for us, .venv-zarr2, .venv-napari and
# .venv-others for clients that want other libraries), JavaScript clients (.tools), and, where they are missing and this is root on a
# Debian-like system, Chromium, nginx and Node from the system's packages. A second run reuses all of it.
set -euo pipefail
exec </dev/null
cd "$(dirname "${BASH_SOURCE[0]}")/.."
unset PYTHONDONTWRITEBYTECODE # hundreds of servers are started: each would compile all modules anew
export DEBIAN_FRONTEND=noninteractive PIP_DISABLE_PIP_VERSION_CHECK=1
system_certificates=/etc/ssl/certs/ca-certificates.crt # Node does not look there by itself
[[ -f $system_certificates ]] && export NODE_EXTRA_CA_CERTS=${NODE_EXTRA_CA_CERTS:-$system_certificates}

say() { printf '\n== %s\n' "$*"; }

# pythons: the interpreters on the PATH and of pyenv, newest first, as lines of "3.MINOR PATH". No pre-releases, for which
# there are no wheels. pyenv's shims refuse to run where its configuration does not choose their version, so that its
# interpreters are looked for beside them.
pythons() {
    local folder candidate
    local -a folders
    IFS=: read -r -a folders <<<"$PATH"
    for folder in "${folders[@]}" "${PYENV_ROOT:-}/bin" ~/.pyenv/bin; do
        for candidate in "$folder"/python3 "$folder"/python3.[0-9]* "${folder%/*}"/versions/*/bin/python3.[0-9]*; do
            if [[ -x $candidate && $candidate != *-config ]]; then printf '%s\n' "$candidate"; fi
        done
    done | sort -u | while read -r candidate; do
        "$candidate" -c '
import sys, sysconfig, venv, pip
version, is_final = sys.version_info, sys.version_info.releaselevel == "final"
if version >= (3, 11) and is_final and not sysconfig.get_config_var("Py_GIL_DISABLED"):
    print(*version[:3], sys.executable)' 2>/dev/null || true
    done | sort -u -k1,1nr -k2,2nr -k3,3nr | sed 's/ /./; s/ [0-9]*//'
}

# python_of 3.MINOR: the newest of that version; nothing if there is none
python_of() { sed -n "s/^${1//./\\.} //p" <<<"$found" | head -n 1; }

# environment FOLDER REQUIREMENT...: a virtual environment, made again only when something that it depends on has changed
environment() {
    local folder=$1 stamp
    shift
    stamp="$("$python" --version) $* $([[ $1 != -e ]] || cksum <pyproject.toml)"
    [[ -f $folder/stamp && $(<"$folder/stamp") == "$stamp" ]] && return
    say "installing $folder (some minutes the first time)"
    "$python" -m venv --clear --without-pip "$folder" &&
        "$python" -m pip --python "$folder/bin/python" install -qq "$@" &&
        printf '%s' "$stamp" >"$folder/stamp"
}

# system_package PROGRAM PACKAGE...: PROGRAM, from the system's packages where it is missing. RUNLEVEL=1: Debian is not to
# start a service that comes with one.
system_package() {
    local program=$1
    shift
    command -v "$program" >/dev/null && return
    if [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null; then
        say "installing $*"
        apt-get update -qq && RUNLEVEL=1 apt-get install -y -qq --no-install-recommends "$@" >/dev/null && return
    fi
    say "NOTE: $program is missing and cannot be installed from here: install $*, or its tests are skipped"
}

javascript_clients() {
    command -v npm >/dev/null || return 0
    cmp -s tests/js/package.json .tools/package.json && return
    say "installing JavaScript clients"
    rm -rf .tools && mkdir -p .tools/new && cp tests/js/package.json .tools/new/
    if npm install --prefix .tools/new --silent --no-package-lock --fetch-retries 1; then
        mv .tools/new/* .tools/ && rmdir .tools/new
    else
        say "NOTE: npm could not install tests/js/package.json: the tests of JavaScript clients are skipped"
    fi
}

# optional FOLDER REQUIREMENT...: an environment that a Python or a day may lack wheels for
optional() {
    environment "$@" && return
    rm -rf "$1"
    say "NOTE: $1 cannot be installed on $python: its tests are skipped"
}

other_clients() {
    # zarr-python 2 wants a numcodecs that has no wheels for Pythons after 3.13
    python=$(tail -n 1 <<<"$found" | cut -d ' ' -f 2-) optional .venv-zarr2 \
        'zarr==2.18.*' 'numcodecs[msgpack]<0.16' fsspec aiohttp
    optional .venv-napari napari-ome-zarr
    # aiobotocore[boto3]: spatialdata brings the one and cloud-volume the other, which wait for each other's releases
    optional .venv-others anndata 'bio2zarr[vcf]' hdmf-zarr multidimio spatialdata \
        icechunk virtualizarr arro3-core cloud-volume 'aiobotocore[boto3]'
    system_package chromium-headless-shell chromium-headless-shell # half the processor time of a Chromium with windows
    command -v chromium-headless-shell >/dev/null || system_package chromium chromium
    system_package nginx nginx-light
    system_package openssl openssl
    system_package node nodejs
    system_package npm npm
    javascript_clients
}

found=$(pythons)
if [[ -n ${PYTHON:-} ]]; then
    candidates=$(command -v "$PYTHON") && "$candidates" -c 'import sys, venv, pip; sys.exit(sys.version_info < (3, 11))'
else
    candidates=$(sort -u -s -t ' ' -k1,1rV <<<"$found" | cut -d ' ' -f 2-)
fi || candidates=
if [[ -z $candidates ]]; then
    echo "tests/run.sh: no Python 3.11 or newer with pip was found; name one with PYTHON=/path/to/python" >&2
    exit 1
fi
installed=
while read -r python; do # a Python that has just been released may lack wheels
    if environment .venv-test -e '.[test]'; then
        installed=$("$python" -c 'import sys; print(*sys.version_info[:2], sep=".")')
        break
    fi
    say "NOTE: $python cannot install '.[test]'"
done <<<"$candidates"
[[ -n $installed ]]
supported=$(sed -n 's/^requires-python = ">=\(.*\)"/\1/p' pyproject.toml)
oldest=$(python_of "$supported")
say "Python $installed at $python${oldest:+, and $supported at $oldest}"
other_clients & # beside the checks below, which need none of them
clients=$!
trap wait EXIT # a check that fails leaves nothing half installed behind
bin=$PWD/.venv-test/bin
say "ruff"
"$bin/ruff" check
"$bin/ruff" format --check
types=$(mktemp)
"$bin/mypy" >"$types" 2>&1 & # beside what is installed, which waits for others
mypy=$!
# The first time, tests are compiled once here, which all processes would do at the same time. Errors come again below.
[[ -e tests/__pycache__ ]] || "$bin/pytest" --collect-only -q >/dev/null || :
[[ $installed == "$supported" || $# != 0 ]] && oldest=
[[ -n $oldest ]] && python=$oldest environment .venv-oldest -e '.[test]'
wait "$clients"
trap - EXIT
# Tests wait for servers and clocks, so two processes more than there are processors keep these busy; each takes a GiB.
processes=$(($(getconf _NPROCESSORS_ONLN) + 2))
processes=${TEST_PROCESSES:-$((processes < 8 ? processes : 8))}
status=0 SECONDS=0

# tests ENVIRONMENT PROCESSES ARGUMENT...: pytest in one of the environments
tests() {
    local folder=$1 processes=$2
    shift 2
    say "pytest, $("$folder/bin/python" --version)"
    "$folder/bin/pytest" --numprocesses "$processes" --dist loadfile --no-loadscope-reorder "$@" || status=$?
}

# on_the_oldest PROCESSES FOLDER...: by chance enough is tried on the newest
on_the_oldest() {
    TEST_EXAMPLES=${TEST_EXAMPLES:-5} tests .venv-oldest "$@"
    return "$status"
}

if [[ -n $oldest ]]; then # beside the others, which do not keep all processors busy all the time
    formats=$(mktemp)
    on_the_oldest 1 tests/engine tests/conformance >"$formats" 2>&1 &
    beside=$!
fi
tests .venv-test "$processes" "$@"
if [[ -n $oldest ]]; then
    wait "$beside" || status=1
    cat "$formats"
    rm "$formats"
    ((SECONDS > 480)) || on_the_oldest "$processes" tests/api tests/client || : # all tests together take 12 minutes
fi
say "mypy"
wait "$mypy" || status=1
cat "$types"
rm "$types"
exit "$status"
