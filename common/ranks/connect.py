"""Connect this process with the others that its launcher started, and end all when one fails."""

from __future__ import annotations

import contextlib
import itertools
import os
import time
import zlib
from collections.abc import Iterator
from functools import partial
from typing import Final

import torch
import torch.distributed as td

from common.processes import bound_cores, find_death_signal
from common.ranks.alarm import LOOK_EVERY_S, Alarm, Stores
from common.ranks.connections import check_open_files
from common.ranks.device import choose_device, find_device_type, identify_only_device
from common.ranks.dist import Dist, check_sharing, join_ranks
from common.ranks.groups import connects_lazily
from common.ranks.launch import Node, RankPosition, complete_position, find_rank_position
from common.ranks.meeting import choose_interface, claim_rank, find_route, introduce_ranks, open_store
from common.settings.machine import DistConfig
from common.stop import STOP

_DEFAULTS: Final = DistConfig()
_connections = itertools.count()


@contextlib.contextmanager
def connect(
    config: DistConfig = _DEFAULTS, expected: tuple[type[BaseException], ...] = (), failure: Exception | None = None
) -> Iterator[Dist]:
    """Yield the Dist of this process among all that its launcher started; the end is a barrier.

    If the body raises on one of several ranks, its error is shown with the rank, `alarm.Stopped` is raised on the
    others, and all exit by SystemExit with the status that the error stands for: put all cleaning up inside the `with`.
    A stop signal ends the body by StopAsked, unless the caller listens to it. A single process raises what the body
    raises.
    expected: errors that are shown without a traceback. failure: why this rank takes no part, for the others.

    Raises LaunchError if the launcher's variables are incomplete, the ranks cannot connect, a node has more ranks than
    devices, or the device does not exist. Under mpirun it can be called once per process.
    """
    position = find_rank_position(os.environ)
    if "TORCHELASTIC_RUN_ID" in os.environ and (die_with_parent := find_death_signal()):
        die_with_parent()  # a torchrun that is killed leaves its ranks behind
    with contextlib.ExitStack() as stack:
        if not STOP.listens:
            stack.enter_context(STOP.listening())
            stack.enter_context(STOP.interrupting())
        if position.world_size == 1:
            if failure:
                raise failure
            check_sharing(config, 1)
            yield Dist(position, choose_device(find_device_type(config.device), position))
            return
        yield from _connect_ranks(position, config, expected, failure)


def _connect_ranks(
    position: RankPosition, config: DistConfig, expected: tuple[type[BaseException], ...], failure: Exception | None
) -> Iterator[Dist]:
    server, world_size = open_store(position, config.start_timeout_s)
    connect_again = partial(td.TCPStore, server.host, server.port, is_master=False, wait_for_workers=False)
    # So that neither a later connection nor torchrun's next attempt, which has the same store, finds its notes.
    prefix = f"attempt{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}/connect{next(_connections)}"
    stores = Stores(server, connect_again, server.host, server.port).within(prefix)
    check_open_files(position.rank, world_size, connects_lazily(world_size))
    claim_rank(stores.store, position.rank, world_size)
    alarm = Alarm(stores, position.rank, world_size, expected)
    try:
        with alarm:
            if failure:
                raise failure
            route, kind = find_route(server), find_device_type(config.device)
            cores = zlib.crc32(str(sorted(bound_cores())).encode())  # equal for ranks that share them
            facts = [cores, identify_only_device(kind), route]
            node = introduce_ranks(stores.store, position, world_size, facts, config.start_timeout_s)
            choose_interface(route, node.reached_at)
            ranks = _join_ranks(complete_position(position, world_size, node), alarm, node, kind, config)
            yield ranks
            ranks.leave()
        ranks.close()
    except BaseException as error:
        ending = alarm.report(error)
        if position.rank == 0:
            time.sleep(LOOK_EVERY_S)  # the others still use its store
        raise SystemExit(ending.exit_status) from error


def _join_ranks(position: RankPosition, alarm: Alarm, node: Node, kind: str, config: DistConfig) -> Dist:
    """Return the Dist of all ranks, after setting threads and device for those that share the node."""
    own = node.facts[node.ranks.index(position.rank)]
    sharing = sum(facts[0] == own[0] for facts in node.facts)
    if sharing > 1 and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, len(bound_cores()) // sharing))
    device = choose_device(kind, position, [facts[1] for facts in node.facts])
    return join_ranks(position, alarm.stores.store, device, config, alarm)
