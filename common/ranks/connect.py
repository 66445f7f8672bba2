"""Connect this process with the others that its launcher started, on a device, and end all when one fails."""

from __future__ import annotations

import contextlib
import itertools
import os
import time
import zlib
from collections.abc import Iterator

import torch
import torch.distributed as td

from common.device import choose_device, find_device_type, identify_only_device
from common.errors import LaunchError
from common.network import find_route
from common.processes import bound_cores, find_death_signal, usable_cores
from common.ranks.alarm import LOOK_EVERY_S, Alarm
from common.ranks.control import Rendezvous
from common.ranks.dist import DEFAULTS, MOST_CONNECTED, Dist, check_sharing, join_ranks
from common.ranks.groups import check_open_files
from common.ranks.launch import RankPosition, find_rank_position
from common.ranks.meeting import (
    ANSWER_S,
    AnsweringStore,
    Facts,
    choose_interface,
    claim_rank,
    complete_position,
    find_address,
    introduce_ranks,
    open_store,
)
from common.settings.machine import DistConfig
from common.stop import STOP

_connections = itertools.count()


@contextlib.contextmanager
def connect(
    config: DistConfig = DEFAULTS, expected: tuple[type[BaseException], ...] = (), failure: Exception | None = None
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
            yield Dist(position, choose_device(find_device_type(config.device)))
            return
        yield from _connect_ranks(position, config, expected, failure)


def _connect_ranks(
    position: RankPosition, config: DistConfig, expected: tuple[type[BaseException], ...], failure: Exception | None
) -> Iterator[Dist]:
    server, world_size = open_store(position, config.start_timeout_s)
    # So that neither a later connection nor torchrun's next attempt, which has the same store, finds its notes.
    prefix = f"attempt{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}/connect{next(_connections)}"
    shared = td.PrefixStore(prefix, server)
    check_open_files(position.rank, world_size, world_size <= MOST_CONNECTED)
    # That of this process answers; another's may be stopped, or cut off.
    store = shared if position.rank == 0 else AnsweringStore(shared, ANSWER_S)
    try:
        claim_rank(store, position.rank, world_size)
    except td.DistError as error:
        raise LaunchError(f"rank {position.rank} lost the store of the ranks at {server.host} ({error})") from error
    alarm = Alarm(shared, position.rank, world_size, expected)
    alarm.server = server.host, server.port
    try:
        with alarm:
            if failure:
                raise failure
            kind = find_device_type(config.device)
            cores = zlib.crc32(str(sorted(bound_cores())).encode())
            facts = Facts(position.rank, cores, identify_only_device(kind), *find_route(server.host, server.port))
            neighbours = introduce_ranks(store, facts, world_size, config.start_timeout_s)
            address = find_address(facts, neighbours.reached_at)
            choose_interface(address)
            if "OMP_NUM_THREADS" not in os.environ and usable_cores() < neighbours.sharing * len(bound_cores()):
                torch.set_num_threads(max(1, usable_cores() // neighbours.sharing))
            position = complete_position(position, world_size, neighbours)
            alarm.speaks = position.local_rank == (1 if position.node_rank == 0 else 0)
            device = choose_device(kind, *position.require_facts()[1:3], neighbours.devices)
            rendezvous = Rendezvous(shared, neighbours.seats, address)
            ranks = join_ranks(position, rendezvous, device, config, alarm)
            yield ranks
            ranks.leave()
        ranks.close()
    except BaseException as error:
        ending = alarm.report_error(error)
        if position.rank == 0:
            time.sleep(LOOK_EVERY_S)  # the others still use its store
        raise SystemExit(ending.exit_status) from error
