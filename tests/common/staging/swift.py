"""A small object store for tests: OpenStack Swift with its S3 interface, one process for each of its servers."""

import getpass
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from contextlib import ExitStack, contextmanager

KEYS = {"AWS_ACCESS_KEY_ID": "test:tester", "AWS_SECRET_ACCESS_KEY": "testing", "AWS_DEFAULT_REGION": "us-east-1"}
KINDS = ("account", "container", "object")
HERE = all(shutil.which(f"swift-{kind}-server") for kind in (*KINDS, "proxy"))
HOW = "OpenStack Swift: apt install swift-proxy swift-account swift-container swift-object"
COMMON = """\
[swift-hash]
swift_hash_path_prefix = test
swift_hash_path_suffix = test
[storage-policy:0]
name = only
default = yes
"""
SERVER = """\
[DEFAULT]
bind_ip = 127.0.0.1
bind_port = {port}
user = {user}
swift_dir = {folder}
devices = {folder}/devices
mount_check = false
workers = 0
[pipeline:main]
pipeline = {filters} {kind}-server
[app:{kind}-server]
use = egg:swift#{kind}
account_autocreate = true
"""
PROXY = "".join(
    f"[filter:{name}]\nuse = egg:swift#{name}\n" for name in ("catch_errors", "memcache", "listing_formats", "s3api")
)
PROXY += "[filter:tempauth]\nuse = egg:swift#tempauth\nuser_test_tester = testing .admin\n"


def find_ports(count):
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def run(folder, *words):
    subprocess.run(words, cwd=folder, check=True, stdout=subprocess.DEVNULL)


def wait_for(url, folder, servers):
    end_s = time.monotonic() + 120  # four interpreters start, perhaps beside other tests
    while time.monotonic() < end_s and all(server.poll() is None for server in servers):
        try:
            return urllib.request.urlopen(url, timeout=5)
        except urllib.error.HTTPError:
            return None  # an answer, whatever it is
        except OSError:
            time.sleep(0.1)
    raise AssertionError("".join(path.read_text()[-2000:] for path in folder.glob("*.log")))


@contextmanager
def object_store(folder):
    """Start a store below a folder; yield the environment in which S3 clients find it."""
    ports = dict(zip((*KINDS, "proxy"), find_ports(4), strict=True))
    (folder / "devices/disk").mkdir(parents=True)
    (folder / "swift.conf").write_text(COMMON)
    for kind, port in ports.items():
        filters, more = "", ""
        if kind == "proxy":
            filters, more = "catch_errors memcache listing_formats s3api tempauth", PROXY
        else:
            run(folder, "swift-ring-builder", f"{kind}.builder", "create", "4", "1", "1")
            run(folder, "swift-ring-builder", f"{kind}.builder", "add", f"r1z1-127.0.0.1:{port}/disk", "1")
            run(folder, "swift-ring-builder", f"{kind}.builder", "rebalance")
        text = SERVER.format(port=port, user=getpass.getuser(), folder=folder, filters=filters, kind=kind)
        (folder / f"{kind}.conf").write_text(text + more)
    with ExitStack() as stack:
        servers = []
        for kind in ports:
            log = stack.enter_context((folder / f"{kind}.log").open("w"))
            command = [f"swift-{kind}-server", str(folder / f"{kind}.conf"), "--verbose"]
            servers.append(stack.enter_context(subprocess.Popen(command, stdout=log, stderr=log)))
            stack.callback(servers[-1].kill)
        url = f"http://127.0.0.1:{ports['proxy']}"
        wait_for(url, folder, servers)
        yield KEYS | {"AWS_ENDPOINT_URL": url}
