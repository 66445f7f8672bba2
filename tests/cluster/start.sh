#!/bin/bash
# The inside of tests/cluster/slurm.py: process 1 of namespaces of its own (processes, network, mounts), in which each
# node has its own again, with a host name, an address, a /dev/shm and a local disk, /mnt. So nothing outside is changed,
# several clusters can be up at once, and all ends with this process, which ends with its standard input.
#
#   start.sh cluster FOLDER NODES            FOLDER has slurm.conf, and for each node a folder with `hosts` and `local`
#   start.sh node FOLDER NAME ADDRESS COMMAND…                                                     used by `cluster`
set -euo pipefail
folder=$2

attach() { # NAME ADDRESS COMMAND…: start a node, and connect it
  local name=$1 address=$2
  unshare --pid --net --uts --mount --ipc --fork --kill-child --mount-proc "$0" node "$folder" "$@" </dev/null &
  until [ -e "$folder/$name/made" ]; do sleep 0.05; done
  ip link add "to-$name" type veth peer name eth0 netns $!
  ip link set "to-$name" master switch up
}

cluster() { # NODES
  local i name
  ip link set lo up
  ip link add switch type bridge
  ip link set switch up
  dd if=/dev/urandom of="$folder/munge/key" bs=128 count=1 status=none
  chmod 600 "$folder/munge/key"
  munged --force --key-file="$folder/munge/key" --socket="$folder/munge/socket" --pid-file="$folder/munge/pid" \
    --log-file="$folder/munge/log" --seed-file="$folder/munge/seed"
  attach login1 10.77.0.100 slurmctld -D
  for i in $(seq "$1"); do
    name=$(printf 'nid%03d' "$i")
    attach "$name" "10.77.0.$i" slurmd -D -N "$name"
  done
  : >"$folder/ready"
  read -r || true
}

node() { # NAME ADDRESS COMMAND…
  local name=$1 address=$2
  shift 2
  hostname "$name"
  mount --bind "$folder/$name/hosts" /etc/hosts
  mount --bind "$folder/$name/local" /mnt
  mount -t tmpfs -o size=1g tmpfs /dev/shm
  ip link set lo up
  : >"$folder/$name/made"
  until ip link show eth0 >/dev/null 2>&1; do sleep 0.05; done
  ip address add "$address/24" dev eth0
  ip link set eth0 up
  "$@" </dev/null >"$folder/$name/output.txt" 2>&1 &
  wait
}

command=$1
shift 2
"$command" "$@"
