#!/bin/sh
# Build the image with buildah, as root, and try it without a network: `make image`. It reaches no registry: the base is
# Debian 12 by debootstrap, unless BASE names another. Arguments go to `buildah build`, such as
# --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cpu
set -eu
cd "$(dirname "$0")/.."
for tool in buildah debootstrap unshare; do
  command -v "$tool" >/dev/null || { echo "error: $tool is not here: apt install buildah debootstrap util-linux" >&2; exit 1; }
done
export BUILDAH_ISOLATION="${BUILDAH_ISOLATION:-chroot}" STORAGE_DRIVER="${STORAGE_DRIVER:-vfs}"
work=$(mktemp -d)
container=
trap 'test -z "$container" || buildah rm "$container" >/dev/null; rm -rf "$work"' EXIT

if [ -z "${BASE:-}" ]; then
  BASE=localhost/debian-python
  debootstrap --variant=minbase --include=ca-certificates,python3,python3-venv bookworm "$work/base" >"$work/log" || {
    cat "$work/log"
    exit 1
  }
  container=$(buildah from scratch)
  buildah add --quiet "$container" "$work/base" /
  buildah commit --quiet "$container" "$BASE"
  buildah rm "$container"
  container=
fi
buildah build --file containers/Dockerfile --tag mlperf-hpc --build-arg BASE="$BASE" --network host "$@" .

container=$(buildah from localhost/mlperf-hpc)
for command in "mlperf-hpc demo" "mlperf-hpc data synthesize cosmoflow tiny --grid 16 --particles 16 --train 8 --validation 4" \
  "mlperf-hpc measure cosmoflow mini --steps 3 -o fom.json"; do
  echo "+ $command"
  # shellcheck disable=SC2086 # words of the command
  unshare --net buildah run "$container" -- $command
done
