"""The workload for DLIO: what it says of a measurement and a dataset, bad input, and that DLIO runs it."""

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import h5py
import lmdb
import numpy as np
import pytest
import yaml

from common.measure.__main__ import main
from cosmoflow.data import tfrecord
from tests.measurement import STEPS

DLIO = os.environ.get("MLPERF_HPC_DLIO")
"""The folder that integrations/dlio/install.sh was called with."""
FOM = replace(STEPS, units=4, median_step_ms=20.0, waiting_ms=5.0)
SIDES = (19, 20, 21, 20)


def dataset(folder, kind):
    """Write four files of samples, and a file that is none."""
    (folder / "train").mkdir(parents=True)
    (folder / "train" / "notes.txt").write_text("not a sample")
    for number, side in enumerate(SIDES):
        path = folder / "train" / f"s{number}.{kind}"
        if kind == "tfrecord":
            tfrecord.write_sample(path, np.zeros((side, 20, 20, 4), np.int16), np.zeros(4, np.float32), compress=False)
        elif kind == "h5":
            with h5py.File(path, "w") as file:
                file["x"] = np.zeros((side, 20, 20, 4), np.int16)
        else:
            with lmdb.open(str(path), subdir=False, map_size=1 << 20) as file, file.begin(write=True) as transaction:
                for sample in range(side):
                    transaction.put(str(sample).encode(), bytes(3000))
                transaction.put(b"length", b"x")


@pytest.fixture
def export(tmp_path):
    """Return a function that exports a workload of a dataset."""
    fom, output = tmp_path / "fom.json", tmp_path / "conf" / "workload" / "ours.yaml"
    FOM.write_file(fom)
    output.parent.mkdir(parents=True)

    def run(*words, kind="tfrecord"):
        if kind:
            dataset(tmp_path / "data", kind)
        status = main(["dlio", str(fom), "--data", str(tmp_path / "data"), "-o", str(output), *words])
        return status, output

    return run


@pytest.mark.parametrize(
    ("kind", "name", "loader", "samples"),
    [
        ("tfrecord", "tfrecord", "tensorflow", 1),
        ("h5", "hdf5", "pytorch", 1),
        ("lmdb", "mmap_indexed_binary", "pytorch", 20),
    ],
)
def test_the_workload_says_what_was_measured(kind, name, loader, samples, export, tmp_path):
    status, output = export("--au", "0.7", kind=kind)
    found = yaml.safe_load(output.read_text())
    sizes = [path.stat().st_size for path in (tmp_path / "data/train").glob(f"*.{kind}")]
    data = found["dataset"]
    assert status == 0 and (data["format"], found["reader"]["data_loader"]) == (name, loader)
    assert (data["num_files_train"], data["num_samples_per_file"]) == (len(SIDES), samples)
    assert data["record_length"] == data["record_length_bytes"] == round(np.mean(sizes) / samples)
    assert data["record_length_stdev"] == (0 if kind == "lmdb" else round(np.std(sizes)))
    assert found["reader"]["batch_size"] == 4 and found["train"]["computation_time"] == 0.015
    assert found["metric"] == {"au": 0.7}


def test_another_file_is_refused(export, tmp_path, capsys):
    (tmp_path / "fom.json").write_text("x")
    status, output = export()
    assert status == 2 and "fom.json: this is not JSON" in capsys.readouterr().err and not output.exists()


def test_data_that_dlio_cannot_emulate_are_refused(export, tmp_path, capsys):
    status, output = export(kind=None)
    assert status == 2 and "data/train: No such file" in capsys.readouterr().err
    folder = tmp_path / "data" / "train"
    folder.mkdir(parents=True)
    (folder / "a.npy").touch()
    assert export(kind=None)[0] == 2 and "found none among its 1 files" in capsys.readouterr().err
    for name, what in (("a.tfrecord", "a TFRecord of one sample"), ("a.h5", "file of h5"), ("a.lmdb", "file of lmdb")):
        (folder / name).write_bytes(b"something else, of some length")
        assert export(kind=None)[0] == 2 and f"{name}: not a" in (error := capsys.readouterr().err) and what in error
        (folder / name).unlink()
    (folder / "a.h5").touch()
    (folder / "a.lmdb").touch()
    assert export(kind=None)[0] == 2 and "found .h5 and .lmdb" in capsys.readouterr().err
    assert not output.exists()


def test_an_existing_file_stays(export, capsys):
    _, output = export()
    text = output.read_text()
    assert export("--epochs", "7", kind=None)[0] == 2 and "already exists" in capsys.readouterr().err
    assert output.read_text() == text
    output.unlink()
    assert export("--au", "70", kind=None)[0] == 2 and "expected a share" in capsys.readouterr().err


@pytest.mark.exhaustive
@pytest.mark.needs("dlio", DLIO, "DLIO: MLPERF_HPC_DLIO is the folder of integrations/dlio/install.sh")
@pytest.mark.parametrize("kind", ["tfrecord", "h5", "lmdb"])
def test_dlio_runs_it(kind, export, tmp_path):
    export("--epochs", "1", "--read-threads", "2", kind=kind)
    bin = Path(DLIO).resolve() / "bin"
    command = [str(bin / "dlio_benchmark"), "--config-dir", "conf", "workload=ours", "hydra.run.dir=out"]
    command += ["++workload.workflow.generate_data=True", "++workload.reader.batch_size=1"]
    env = {"PATH": f"{bin}:/usr/bin:/bin", "TF_CPP_MIN_LOG_LEVEL": "3", "DFTRACER_ENABLE": "0"}
    ran = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    found = json.loads((tmp_path / "out/summary.json").read_text())
    wanted = yaml.safe_load((tmp_path / "conf/workload/ours.yaml").read_text())["dataset"]
    assert found["num_files_train"] == wanted["num_files_train"] and found["metric"]["train_au_percentage"][0] > 0
    assert found["num_samples_per_file"] == wanted["num_samples_per_file"]
    made = tmp_path / "data/dlio-cosmoflow/train"
    sizes = [path.stat().st_size for path in made.iterdir() if path.suffix != ".idx"]
    assert np.mean(sizes) == pytest.approx(wanted["record_length"] * wanted["num_samples_per_file"], rel=0.1)
