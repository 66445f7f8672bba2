"""Checkpoints: whole or not at all, no code in them, the newest kept, foreign and damaged ones refused."""

import copy
import hashlib
import os
import pickle
import zipfile
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch

from common.ranks.dist import Dist, make_single_dist
from common.ranks.launch import RankPosition
from common.training import checkpoint, weights
from common.training.checkpoint import CheckpointConfig, CheckpointError, Checkpoints, Position
from common.training.weights import main as export

STATE = {"model": {"layer.weight": torch.arange(6.0).reshape(2, 3)}, "config": {"optim": {"name": "sgd"}}, "seed": 7}


@pytest.fixture
def checkpoints(tmp_path):
    return Checkpoints(tmp_path / "checkpoints", "cosmoflow", CheckpointConfig(keep=2), make_single_dist())


@pytest.mark.parametrize("earlier", [{}, {"generators": [{"cpu": torch.get_rng_state()}]}])
def test_a_checkpoint_gives_back_position_and_state(checkpoints, earlier):
    path = checkpoints.save(Position(4, 17), STATE)
    torch.save({**torch.load(path), **earlier}, path)
    saved = checkpoints.load()
    assert saved.position == Position(4, 17)
    assert torch.equal(saved.state["model"]["layer.weight"], STATE["model"]["layer.weight"])


class Message(Dist):
    """One of two ranks: rank 0 sends, then the other receives the same messages."""

    def __init__(self, rank, sent):
        self.sent = sent
        super().__init__(RankPosition("single", rank, 2, rank, 2, 0, 1), torch.device("cpu"))

    def broadcast(self, tensor, src=0):
        if self.is_main:
            self.sent.append(tensor.clone())
        return tensor if self.is_main else tensor.copy_(self.sent.pop(0))

    def broadcast_json(self, value, src=0):
        if self.is_main:
            self.sent.append(value)
        return value if self.is_main else self.sent.pop(0)


def test_rank_0_reads_a_file_once_for_all(checkpoints, tmp_path, monkeypatch):
    path = checkpoints.save(Position(2, 0), {**STATE, "model": {"weight": torch.rand(1000)}})
    monkeypatch.setattr(checkpoint, "SENT_BYTES", 999)
    opened, whole = [], Path.open
    monkeypatch.setattr(Path, "open", lambda path, *how: opened.append(path) or whole(path, *how))
    sent, folder, config = [], checkpoints.folder, CheckpointConfig()
    read = Checkpoints(folder, "cosmoflow", config, Message(0, sent)).load()
    path.unlink()
    received = Checkpoints(folder, "cosmoflow", config, Message(1, sent)).load()
    assert opened == [path] and not sent and received.path == path and received.position == Position(2, 0)
    assert torch.equal(received.state["model"]["weight"], read.state["model"]["weight"])


def test_the_newest_are_kept(checkpoints):
    for epoch in (8, 9, 10, 11):
        checkpoints.save(Position(epoch, 0), STATE)
    assert [path.name for path in checkpoints.list_files()] == [
        "epoch-0010-step-0000000.pt",
        "epoch-0011-step-0000000.pt",
    ]
    assert checkpoints.load().position == Position(11, 0)


def test_without_a_checkpoint_the_error_says_so(checkpoints):
    with pytest.raises(CheckpointError, match="no checkpoint to resume from"):
        checkpoints.load()


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "text"])
def test_damaged_files_are_skipped(checkpoints, damage, tmp_path, capsys):
    path = checkpoints.save(Position(2, 0), STATE)
    content = bytearray(path.read_bytes())
    if damage == "cut":
        content = content[: len(content) // 2]
    elif damage == "flip":
        at = content.index(torch.arange(6.0).numpy().tobytes())
        content[at + 5] ^= 1
    else:
        content = b"" if damage == "empty" else b"epoch: 3\n"
    path.write_bytes(content)
    for place in (None, path, tmp_path):
        with pytest.raises(CheckpointError, match=path.name):
            checkpoints.load(place)
    checkpoints.save(Position(1, 5), STATE)
    assert checkpoints.load(tmp_path).position == checkpoints.load().position == Position(1, 5)
    warning = capsys.readouterr().err.splitlines()[-1]
    assert warning.startswith(f"warning: {path}: ") and warning.endswith("; using epoch-0001-step-0000005.pt instead")


def test_the_file_just_written_stays_even_beside_newer_ones(checkpoints):
    for position in (Position(3, 0), Position(4, 0), Position(1, 5)):
        path = checkpoints.save(position, STATE)
    assert path in checkpoints.list_files() and len(checkpoints.list_files()) == 2


class Boom:
    def __reduce__(self):
        return os.mkdir, (os.environ["BOOM"],)


@pytest.mark.parametrize("save", [torch.save, lambda value, path: path.write_bytes(pickle.dumps(value))])
def test_code_in_a_file_is_not_run(checkpoints, tmp_path, monkeypatch, save):
    monkeypatch.setenv("BOOM", str(tmp_path / "boom"))
    path = tmp_path / "hostile.pt"
    save({"format": checkpoint.FORMAT, "state": Boom()}, path)
    with pytest.raises(CheckpointError, match=r"not a (PyTorch )?checkpoint"):
        checkpoints.load(path)
    assert not (tmp_path / "boom").exists()


def add_entry(path, name, compression):
    with zipfile.ZipFile(path, "a", compression) as archive:
        archive.writestr(f"{archive.namelist()[0].partition('/')[0]}/{name}", bytes(1 << 20))


def nest(value, depth):
    return nest([value, value], depth - 1) if depth else value


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize(
    ("grow", "says"),
    [
        (lambda path, _: add_entry(path, "data/999", zipfile.ZIP_DEFLATED), "unexpected entry '.*data/999'"),
        (lambda path, _: add_entry(path, "other/0", zipfile.ZIP_STORED), "unexpected entry '.*other/0'"),
        (lambda path, _: add_entry(path, "version", zipfile.ZIP_STORED), "entries overlap"),
        (lambda _, state: state.update(wide=torch.zeros(1).expand(1 << 40)), r"shape \(1099511627776,\) that is not"),
        (lambda _, state: state.update(many=[torch.zeros(1 << 12)] * 9), r"tensors of [\d,]+ bytes"),
        (lambda _, state: state.update(deep=nest(0, 40)), "more than 4,096 values"),
        (lambda _, state: state.update(long=[1] * (1 << 21)), r"a pickle of 4,\d+,\d+ bytes"),
    ],
)
def test_what_would_grow_in_memory_is_refused_before(checkpoints, grow, says, monkeypatch):
    monkeypatch.setattr("common.training.checkpoint.MOST_VALUES", 1 << 12)
    path = checkpoints.save(Position(2, 0), STATE)
    content = torch.load(path)
    grow(path, content["state"])
    if len(content["state"]) > len(STATE):
        torch.save(content, path)
    checkpoints.save(Position(1, 0), STATE)
    with pytest.raises(CheckpointError, match=says):
        checkpoints.load(path)
    assert checkpoints.load().position == Position(1, 0)


def test_what_could_not_be_read_again_is_not_written(checkpoints):
    first = checkpoints.save(Position(1, 0), STATE)
    with pytest.raises(
        CheckpointError, match=r"a pickle of .*keep large states of callbacks in tensors.*is still there"
    ):
        checkpoints.save(Position(2, 0), {**STATE, "callbacks": {"long": [1] * (1 << 21)}})
    assert checkpoints.list_files() == [first]


def test_files_of_others_are_refused(checkpoints, tmp_path):
    torch.save({"weights": torch.zeros(2)}, tmp_path / "foreign.pt")
    with pytest.raises(CheckpointError, match="not a checkpoint of this suite"):
        checkpoints.load(tmp_path / "foreign.pt")
    other = Checkpoints(tmp_path, "deepcam", CheckpointConfig(), make_single_dist()).save(Position(), STATE)
    with pytest.raises(CheckpointError, match="'deepcam'; write deepcam"):
        checkpoints.load(other)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"position": ["1", 0]}, r"Expected `int`, got `str` - at `\$.position\[0\]`"),
        ({"position": [-1, 0]}, r"Expected `int` >= 0 - at `\$.position\[0\]`"),
        ({"state": {**STATE, "seed": 1 << 70}}, r"at `\$.state.seed`"),
        ({"state": {**STATE, "model": {"layer.weight": 3}}}, r"Expected `Tensor`, got `int`"),
    ],
)
def test_forged_fields_are_told(checkpoints, fields, says):
    path = checkpoints.save(Position(1, 0), STATE)
    torch.save({**torch.load(path), **fields}, path)
    with pytest.raises(CheckpointError, match=rf"step-0000000.pt: not as this suite writes checkpoints: .*{says}"):
        checkpoints.load(path)


def test_a_state_that_is_not_of_a_run_has_no_weights(checkpoints):
    path = checkpoints.save(Position(1, 0), {"model": STATE["model"]})
    with pytest.raises(CheckpointError, match=r"step-0000000.pt: its state lacks seed, config; expected"):
        weights.read_weights(path)


@pytest.mark.parametrize(
    ("dist", "read"),
    [
        ({"spatial": [4, 2], "timeout_s": 9.0}, {"spatial": 1, "timeout_s": 9.0}),
        # A section that is none is left to who reads the configuration.
        (5, 5),
        (None, None),
        ("x", "x"),
        ([1], [1]),
    ],
)
def test_the_configuration_of_a_network_has_whole_samples_for_each_rank(dist, read):
    state = STATE | {"config": {"dist": dist, "model": {"fc1": 3}}}
    before = copy.deepcopy(state["config"])
    assert checkpoint.Saved(Path("one.pt"), {"state": state}, []).config == {"dist": read, "model": {"fc1": 3}}
    assert state["config"] == before


def test_a_full_disk_leaves_nothing_of_the_first_checkpoint(checkpoints, monkeypatch):
    monkeypatch.setattr(torch, "save", Mock(side_effect=OSError(28, "No space left on device")))
    with pytest.raises(CheckpointError, match=r"No space left(?!.*still there)"):
        checkpoints.save(Position(2, 0), STATE)
    assert list(checkpoints.folder.iterdir()) == []


def test_export_writes_the_weights_and_where_they_come_from(checkpoints, tmp_path, capsys):
    safetensors = pytest.importorskip("safetensors")
    numbers = STATE["model"]["layer.weight"].numpy().tobytes()
    path, weights = checkpoints.save(Position(3, 0), STATE), tmp_path / "out" / "weights.safetensors"
    assert export([str(path), str(weights)]) == 2 and "make it first" in capsys.readouterr().err
    weights.parent.mkdir()
    assert export([str(path), str(weights)]) == 0
    assert "6 numbers" in capsys.readouterr().out
    with safetensors.safe_open(weights, "pt") as file:
        assert torch.equal(file.get_tensor("layer.weight"), STATE["model"]["layer.weight"])
        assert file.metadata() == {
            "benchmark": "cosmoflow",
            "epochs_done": "3",
            "config": '{"optim": {"name": "sgd"}}',
            "interface": "null",
            "weights_sha256": hashlib.sha256(b"layer.weight\0torch.float32\0[2, 3]\0" + numbers).hexdigest(),
        }
    assert export([str(path), str(weights)]) == 2
    assert "already exists" in capsys.readouterr().err
