#!/usr/bin/env bash
# Versions: tifffile 2026.11.8, numpy 2.5.5.
# Expected: an OME-TIFF whose OME-XML is a `BinaryOnly` that names the companion file beside it (OME-TIFF specification,
#   "Companion file"; schema 2016-06) opens with the axes of that file, here times and channels; or is refused.
# Seen: it says that it is OME-TIFF and has one series of kind `generic`: six planes along one unnamed axis. Nothing is
#   raised, and nothing logged at the level of warnings. With the same metadata inside of the TIFF it has both axes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for python in ${PYTHON:-python3 python3.12 python3.13 python3.14 "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.1[2-9]*/bin/python}; do
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2>/dev/null && break # what is pinned wants 3.12
done
"$python" -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q tifffile==2026.11.8 numpy==2.5.5
cd "$folder"
venv/bin/python -W ignore - <<'PYTHON'
import io, logging, pathlib, sys
import numpy as np, tifffile

NAMESPACE = "http://www.openmicroscopy.org/Schemas/OME/2016-06"
OWN, OTHER = (f"urn:uuid:00000000-0000-4000-8000-00000000000{number}" for number in (1, 9))
planes = "".join(
    f'<TiffData FirstT="{n // 2}" FirstC="{n % 2}" IFD="{n}" PlaneCount="1"><UUID FileName="a.ome.tif">{OWN}</UUID></TiffData>'
    for n in range(6)
)
channels = "".join(f'<Channel ID="Channel:0:{n}" SamplesPerPixel="1"/>' for n in range(2))
image = (
    '<Image ID="Image:0"><Pixels ID="Pixels:0" DimensionOrder="XYCZT" Type="uint8" SizeX="4" SizeY="3" SizeZ="1"'
    f' SizeC="2" SizeT="3">{channels}{planes}</Pixels></Image>'
)


def document(uuid, inside):
    return f'<?xml version="1.0" encoding="UTF-8"?><OME xmlns="{NAMESPACE}" UUID="{uuid}">{inside}</OME>'


def series(description):
    values = np.arange(72, dtype="u1").reshape(6, 3, 4)
    tifffile.imwrite("a.ome.tif", values, description=description, metadata=None, photometric="minisblack")
    with tifffile.TiffFile("a.ome.tif") as file:
        return file.is_ome, [(each.kind, each.axes, each.shape) for each in file.series]


log = io.StringIO()
handler = logging.StreamHandler(log)
handler.setLevel(logging.WARNING)
logging.getLogger("tifffile").addHandler(handler)
pathlib.Path("a.companion.ome").write_text(document(OTHER, image))
beside = document(OWN, f'<BinaryOnly MetadataFile="a.companion.ome" UUID="{OTHER}"/>')
seen = [series(document(OWN, image)), series(beside), log.getvalue()]
print(seen)
expected = [(True, [("ome", "TCYX", (3, 2, 3, 4))]), (True, [("generic", "IYX", (6, 3, 4))]), ""]
sys.exit(seen != expected)
PYTHON
