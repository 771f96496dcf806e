#!/usr/bin/env bash
# The whole benchmark in one command: installs what is compared, then measures.
#
#   bash tests/benchmarks/run.sh [arguments for python -m tests.benchmarks]       (without any: --suite all)
#
# Needs Python 3.11 or newer with pip (PYTHON names it). Makes three virtual environments that are kept: .venv-bench for
# us and most libraries, .venv-zarr2 for zarr-python 2, .venv-peers for other array servers. nginx and wrk come from the
# system's packages where this is root on a Debian-like system; else install them first, or what needs them is left out.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
export DEBIAN_FRONTEND=noninteractive PIP_DISABLE_PIP_VERSION_CHECK=1
python=${PYTHON:-python3}

# environment FOLDER REQUIREMENT...: a virtual environment, made again only when what it is made of has changed
environment() {
    local folder=$1 stamp
    shift
    stamp="$("$python" --version) $* $(cksum <pyproject.toml)"
    [[ -f $folder/stamp && $(<"$folder/stamp") == "$stamp" ]] && return
    echo "installing $folder" >&2
    "$python" -m venv --clear "$folder" && "$folder/bin/pip" install -qq "$@" && printf '%s' "$stamp" >"$folder/stamp"
}

environment .venv-bench -e '.[bench]'
environment .venv-zarr2 'zarr==2.18.*' 'numcodecs<0.16' fsspec aiohttp ||
    echo "zarr-python 2 could not be installed: it is left out" >&2
environment .venv-peers 'tiled[server]' 'h5grove[fastapi]' hdf5plugin large-image-source-zarr ||
    echo "other array servers could not be installed: they are left out" >&2
if ! { command -v nginx && command -v wrk; } >/dev/null && [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null; then
    apt-get update -qq && apt-get install -y -qq --no-install-recommends nginx-light wrk >/dev/null || true
fi

if [[ -x .venv-peers/bin/python ]]; then export PEERS_PYTHON=${PEERS_PYTHON:-$PWD/.venv-peers/bin/python}; fi
[[ $# -gt 0 ]] || set -- --suite all
exec .venv-bench/bin/python -m tests.benchmarks "$@"
