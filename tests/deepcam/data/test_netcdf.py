"""NetCDF files, written by the library of NetCDF itself, become the snapshots that training reads."""

import re

import numpy as np
import pytest

h5py = pytest.importorskip("h5py")
netCDF4 = pytest.importorskip("netCDF4")

from common.data.manifest import read_manifest  # noqa: E402
from deepcam import prepare  # noqa: E402
from deepcam.reference import CHANNELS  # noqa: E402
from tests.common.files import read_errors  # noqa: E402

HEIGHT, WIDTH = 6, 8
NAMES = [channel.name for channel in CHANNELS]
KINDS = ("NETCDF3_CLASSIC", "NETCDF3_64BIT_OFFSET", "NETCDF4", "NETCDF4_CLASSIC")


def make_fields(seed):
    random = np.random.default_rng(seed)
    fields = {name: random.normal(5, 2, (HEIGHT, WIDTH)).astype("f4") for name in NAMES}
    return fields | {"LABELS": random.integers(0, 3, (HEIGHT, WIDTH)).astype("i2")}


def write_netcdf(path, fields, kind="NETCDF4", times=1, unlimited=True, attributes=None):
    """Write fields of (time, lat, lon), or of (lat, lon) without times."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with netCDF4.Dataset(path, "w", format=kind) as file:
        file.set_auto_maskandscale(False)
        axes = (("time",) if times else ()) + ("lat", "lon")
        for axis, size in zip(("time", "lat", "lon"), (None if unlimited else times, HEIGHT, WIDTH), strict=True):
            file.createDimension(axis, size)
        for name, values in fields.items():
            own = dict((attributes or {}).get(name, {}))
            compression = {"zlib": True} if kind.startswith("NETCDF4") else {}
            variable = file.createVariable(
                name, values.dtype, axes, fill_value=own.pop("_FillValue", None), **compression
            )
            variable.set_auto_maskandscale(False)
            variable.setncatts(own)
            variable[:] = np.stack([values] * times) if times else values


def read_snapshot(path):
    with h5py.File(path) as file:
        return file["climate/data"][()], file["climate/labels_0"][()]


def convert(tmp_path, *options):
    return prepare.main(["import", str(tmp_path / "nc"), str(tmp_path / "out"), "--workers", "1", *options])


@pytest.mark.parametrize("times", [0, 1])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_file_becomes_the_same_snapshot(tmp_path, kind, times, capsys):
    fields = make_fields(1)
    write_netcdf(tmp_path / "nc/train/data-1996-06-01-00-1.nc", fields, kind, times, unlimited=times == 1)
    write_netcdf(tmp_path / "nc/validation/storm.nc4", make_fields(2), kind, times, unlimited=False)
    assert convert(tmp_path) == 0, capsys.readouterr().err
    data, labels = read_snapshot(tmp_path / "out/train/data-1996-06-01-00-1.h5")
    assert data.dtype == "<f4" and np.array_equal(data, np.stack([fields[name] for name in NAMES], -1))
    assert np.array_equal(labels, fields["LABELS"])
    manifest = read_manifest(tmp_path / "out/manifest.json")
    assert set(manifest.files) == {"train/data-1996-06-01-00-1.h5", "validation/data-storm.h5"}
    assert manifest.variant == "own" and manifest.facts["channels"] == NAMES
    assert convert(tmp_path) == 0
    assert "generated 0 items" in capsys.readouterr().out


@pytest.mark.parametrize("kind", KINDS)
def test_other_names_and_packed_numbers_are_read(tmp_path, kind):
    fields = make_fields(1)
    fields["prw"], fields["mask"] = np.arange(HEIGHT * WIDTH, dtype="i2").reshape(HEIGHT, WIDTH), fields.pop("LABELS")
    del fields["TMQ"]
    packed = {"prw": {"scale_factor": np.float64(0.5), "add_offset": np.float64(10), "_FillValue": np.int16(-32767)}}
    write_netcdf(tmp_path / "nc/a.nc", fields, kind, attributes=packed)
    assert convert(tmp_path, "--variable", "TMQ=prw", "--labels", "mask", "--variant", "full") == 0
    data, _ = read_snapshot(tmp_path / "out/data-a.h5")
    assert np.array_equal(data[..., 0], fields["prw"] * 0.5 + 10)
    assert read_manifest(tmp_path / "out/manifest.json").variant == "full"


def put(name, value, dtype="f4", **attributes):
    """Return what spoils a file: one wrong number of a variable."""

    def spoil(fields):
        fields[name] = fields[name].astype(dtype)
        fields[name][2, 3] = value
        return {"attributes": {name: attributes}}

    return spoil


FAULTS = [
    (lambda fields: fields.pop("PSL") is None or {}, r"has no variable `PSL`; it has: .*TMQ.*--variable CHANNEL=NAME"),
    (lambda fields: fields.pop("LABELS") is None or {}, r"has no variable `LABELS`;.* --labels NAME"),
    (lambda fields: {"times": 2}, r"`TMQ` has the shape \(2, 6, 8\); expected \(latitude, longitude\) of one time"),
    (put("TS", np.nan), r"`TS` has no value at 1 of 48 pixels: nan in row 2, column 3"),
    (put("TS", -999, _FillValue=np.float32(-999)), r"`TS` has no value at 1 of 48 pixels: -999 in row 2"),
    (put("TS", -999, missing_value=np.float32(-999)), r"`TS` has no value at 1 of 48 pixels: -999 in row 2"),
    (put("TS", 9.96921e36), r"`TS` has no value at 1 of 48 pixels: 9.96921e\+36"),
    (put("LABELS", 0.5), r"`LABELS` is not a label: it has 0.5; expected 0, 1 or 2 at each pixel: .*--labels NAME"),
    (put("LABELS", 3, "i2"), r"`LABELS` has the label 3; expected 0, 1 or 2"),
    (put("LABELS", -1, "i2", _FillValue=np.int16(-1)), r"`LABELS` has no value at 1 of 48 pixels: -1"),
]


@pytest.mark.parametrize("kind", ["NETCDF3_CLASSIC", "NETCDF4"])
@pytest.mark.parametrize(("spoil", "message"), FAULTS)
def test_a_wrong_variable_is_named_and_the_other_files_are_made(tmp_path, capsys, kind, spoil, message):
    write_netcdf(tmp_path / "nc/a.nc", make_fields(1), kind)
    fields = make_fields(2)
    options = spoil(fields)
    write_netcdf(tmp_path / "nc/b.nc", fields, kind, **options)
    assert re.search(rf"skipped b.nc: {tmp_path}/nc/b.nc:? {message}", read_errors(capsys, convert(tmp_path)))
    assert (tmp_path / "out/data-a.h5").exists() and not (tmp_path / "out/data-b.h5").exists()


def test_damaged_and_unknown_files_are_refused(tmp_path, capsys):
    write_netcdf(tmp_path / "nc/a.nc", make_fields(1), "NETCDF3_CLASSIC")
    whole = (tmp_path / "nc/a.nc").read_bytes()
    write_netcdf(tmp_path / "nc/b.nc", make_fields(1), "NETCDF4")
    hdf5 = (tmp_path / "nc/b.nc").read_bytes()
    for content, message in (
        (whole[:400], "not a readable NetCDF file"),
        (whole[:-2000], "not a readable NetCDF file"),
        (hdf5[: len(hdf5) // 2], "not a readable HDF5 file"),
        (b"<html>404</html>", "is not NetCDF, neither classic nor NetCDF-4: this is a web page"),
        (b"1.5 2.5", "it begins with b'1.5 '"),
        (b"", "is not NetCDF, neither classic nor NetCDF-4: it is empty"),
        (b"CDF\x05" + whole[4:], "nccopy -k nc4"),
    ):
        (tmp_path / "nc/b.nc").write_bytes(content)
        error = read_errors(capsys, convert(tmp_path))
        assert "skipped b.nc" in error and message in error
    (tmp_path / "nc/b.nc").unlink()
    (tmp_path / "nc/b.nc").symlink_to("moved")
    assert f"skipped b.nc: {tmp_path}/nc/b.nc is missing, or a link to nothing" in read_errors(
        capsys, convert(tmp_path)
    )
    (tmp_path / "nc/b.nc").unlink()
    write_netcdf(tmp_path / "nc/b.nc", make_fields(2))
    assert convert(tmp_path) == 0


def test_wrong_arguments_are_refused(tmp_path, capsys):
    assert f"INPUT_DIR {tmp_path}/nc is not a folder" in read_errors(capsys, convert(tmp_path), 2)
    (tmp_path / "nc").mkdir()
    assert f"INPUT_DIR {tmp_path}/nc is empty" in read_errors(capsys, convert(tmp_path), 2)
    (tmp_path / "nc" / "README").touch()
    for options, status, message in (
        ((), 1, "no files .nc or .nc4 in"),
        (("--variable", "rain=PRECT"), 2, "--variable rain=PRECT: expected CHANNEL=NAME, with a channel of TMQ"),
        (("--variable", "TMQ=U850", "--variable", "TMQ=V850"), 2, "TMQ=V850: the variable of TMQ is U850 already"),
    ):
        assert message in read_errors(capsys, convert(tmp_path, *options), status)
    (tmp_path / "out").symlink_to("nc")
    assert "out is INPUT_DIR; choose a new folder" in read_errors(capsys, convert(tmp_path), 2)
    (tmp_path / "out").unlink()  # nothing but the link
