"""Ramble application: the speed of training steps, by `python -m <benchmark> measure`."""
# ruff: noqa: F403, F405 -- the form that Ramble documents

from ramble.appkit import *


class MlperfHpc(ExecutableApplication):
    """Training steps of a benchmark of MLPerf HPC, with the suite installed in `interpreter`."""

    name = "mlperf-hpc"

    tags("machine-learning", "hpc-ml", "pytorch")

    # Samples are generated in ./data.
    executable("link-data", template=["mkdir -p {data}", "ln -sfn {data} data"], use_mpi=False)
    executable(
        "measure",
        "{interpreter} -m {workload_name} measure {config} {overrides} --steps {steps} -o fom.json",
        use_mpi=True,
    )

    workload("cosmoflow", executables=["link-data", "measure"])
    workload("deepcam", executables=["link-data", "measure"])
    workload("oc20", executables=["link-data", "measure"])
    workload_group("all_workloads", workloads=["cosmoflow", "deepcam", "oc20"])

    workload_variable(
        "interpreter",
        default="python3",
        description="A Python that has the suite with its extra `all`",
        workload_group="all_workloads",
    )
    workload_variable(
        "config",
        default="mini",
        description="mini, or config: the closed division's network",
        workload_group="all_workloads",
    )
    workload_variable(
        "overrides", default="", description="section.key=value of the configuration", workload_group="all_workloads"
    )
    workload_variable("steps", default="30", description="Steps to measure at most", workload_group="all_workloads")
    workload_variable(
        "data",
        default="{workload_input_dir}",
        description="A folder that keeps generated samples",
        workload_group="all_workloads",
    )

    figure_of_merit(
        "Samples per second",
        fom_regex=r"^FOM \w+ samples/s (?P<rate>\S+) units \d+",
        group_name="rate",
        units="samples/s",
    )
    figure_of_merit(
        "Units",
        fom_regex=r"^FOM \w+ samples/s \S+ units (?P<units>\d+)",
        group_name="units",
        units="",
    )
    figure_of_merit(
        "Spread",
        fom_regex=r"^FOM \w+ samples/s .* spread (?P<spread>\S+)",
        group_name="spread",
        units="",
    )

    success_criteria("measured", mode="string", match=r"^FOM \w+ samples/s .*", file="{log_file}")
