"""The documented source for ipmitool, with the real one on a simulated board controller: ipmi_sim of OpenIPMI."""

import json
import shutil
import socket
import subprocess
import time
from pathlib import Path

import pytest

from common.measure.__main__ import main
from common.measure.power_sources import Clock, ReadingError, open_source
from tests.common.measure.test_power import documented

MISSING = [name for name in ("ipmitool", "ipmi_sim", "cc") if shutil.which(name) is None]
MODULE = Path(__file__).with_name("dcmi.c")
LAN = """\
name "test"
loadlib "{module}" "{watts}"
startlan 1
  addr 127.0.0.1 {port}
  priv_limit admin
  allowed_auths_admin md5
  guid a123456789abcdefa123456789abcdef
endlan
user 2 true "admin" "secret" admin 10
"""
CONTROLLER = "mc_setbmc 0x20\nmc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02\nmc_enable 0x20\n"

pytestmark = pytest.mark.needs("ipmi", not MISSING, f"{', '.join(MISSING)}: apt-get install openipmi ipmitool gcc")


@pytest.fixture
def controller(tmp_path, monkeypatch):
    """Start a controller; return its source, and the file with the watts of its node."""
    module, watts, port = tmp_path / "dcmi.so", tmp_path / "watts", free_port()
    subprocess.run(["cc", "-shared", "-fPIC", "-o", module, MODULE], check=True)
    watts.write_text("250\n")
    (tmp_path / "lan.conf").write_text(LAN.format(module=module, watts=watts, port=port))
    (tmp_path / "commands").write_text(CONTROLLER)
    (tmp_path / "state").mkdir()
    monkeypatch.setenv("IPMI_PASSWORD", "secret")
    words = ["ipmi_sim", "-n", "-c", tmp_path / "lan.conf", "-f", tmp_path / "commands", "-s", tmp_path / "state"]
    options = f"-I lanplus -C 3 -H 127.0.0.1 -p {port} -U admin -E"
    source = documented("command:node:watts:ipmitool dcmi").replace("ipmitool", f"ipmitool {options}")
    with subprocess.Popen(words) as process:
        try:
            wait_for(source)
            yield source, watts
        finally:
            process.kill()


def free_port():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def wait_for(source):
    end_s = time.monotonic() + 20
    while time.monotonic() < end_s:
        try:
            return open_source(source, Clock())[1].read_watts()
        except ReadingError:
            time.sleep(0.05)
    raise AssertionError("the simulated controller does not answer")


def test_the_power_of_a_node_comes_from_its_controller(controller, tmp_path, capsys):
    source, watts = controller
    reader = open_source(source, Clock())[1]
    assert reader.read_watts() == 250
    watts.write_text("1300\n")
    assert reader.read_watts() == 1300
    path = tmp_path / "node_0.txt"
    assert main(["power", "--source", source, "-o", str(path), "--interval", "0.1", "--seconds", "0.5"]) == 0
    assert ", 0 missed" in capsys.readouterr().err
    found = [json.loads(line.removeprefix(":::MLLOG ")) for line in path.read_text().splitlines()]
    assert {record["value"] for record in found if record["key"] == "power_reading"} == {1300}


def test_a_deactivated_reading_is_no_reading(controller):
    source, watts = controller
    watts.unlink()
    with pytest.raises(ReadingError, match="not '0 Power reading state is: deactivated'"):
        open_source(source, Clock())[1].read_watts()
    with pytest.raises(ReadingError, match=r"Unable to establish|no answer"):
        open_source(source.replace("-U admin", "-U nobody"), Clock())[1].read_watts()
