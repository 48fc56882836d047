"""Trace readers: each schema on hand-written rows, and every mistake told with its place, value, rule and fix."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from dispatcher.sim.readers import SCHEMAS, TraceError, read_trace, schema_of
from dispatcher.sim.trace import Rule, Trace, TraceJob, gang

COMMON = "job_id,submit_s,gpus,gpus_per_worker,workers,gpu_type,duration_s,queue,user,class"
HELIOS = "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue"
ACME = "job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,queue,gpu_time"
MURI = "job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,interval,iteration_time,priority"
OPENB = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time"
THROUGHPUTS = {
    "v100": {"('Transformer (batch size 16)', 1)": {"null": 2.0}, "('Transformer (batch size 16)', 8)": {"null": 10.0}},
    "k80": {"('Transformer (batch size 16)', 1)": {"null": 0.5, "('A3C', 1)": [0.1, 0.2]}},
    "v100_unconsolidated": {"('Transformer (batch size 16)', 8)": {"null": 4.0}},
}


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., Path]:
    """Writes a file of lines and gives its path."""

    def write(*lines: str, name: str = "trace.csv") -> Path:
        path = tmp_path / name
        path.write_text("\n".join(lines) + "\n")
        return path

    return write


Written = Callable[..., Path]


def test_the_common_schema_takes_gpus_as_the_truth_and_further_durations_as_speeds(written: Written) -> None:
    trace = read_trace(
        written(
            f"{COMMON},duration_k80_s",
            "a-0,100,1,1,1,,1000.4,vc-a,,ResNet,4000",
            "a-1,40.5,12,8,2,V100|T4,60,vc-b,ann,,",
            "a-2,50,16,8,2,,,vc-b,,,",
            "a-3,60,0,1,1,,30,vc-b,,,",
        )
    )

    assert trace == Trace(
        name="trace.csv",
        schema="common",
        licence="see the file's own note",
        rows=4,
        jobs=(
            TraceJob("a-1", 0, 2, 6, 60, "vc-b", "ann", "", ("V100", "T4")),
            TraceJob("a-0", 59, 1, 1, 1000, "vc-a", "", "ResNet", (), (("k80", 250),)),
        ),
        dropped=((Rule.NO_GPU, 1), (Rule.NO_RUN_TIME, 1)),
        adjusted=((Rule.SPLIT_EVENLY, 1),),
    )


def test_muri_counts_in_milliseconds_and_its_file_is_the_queue(written: Written) -> None:
    path = written(MURI, "0,8,1500,9,dqn,128,90000,0,490,1", "1,1,0,9,bert,4,400,0,178,0", name="trace2.csv")

    trace = read_trace(path)

    assert trace.schema == "muri"
    assert trace.jobs == (TraceJob("0", 0, 1, 8, 90, "trace2", kind="dqn"),)
    assert trace.dropped == ((Rule.NO_RUN_TIME, 1),)


def test_helios_keeps_a_pod_for_each_node_as_it_was(written: Written) -> None:
    trace = read_trace(
        written(
            HELIOS,
            "7,uA,vcX,16,64,2,COMPLETED,2020-06-09 18:41:27,2020-06-09 18:41:27,2020-06-09 18:45:36,249,0",
            "8,uB,vcY,9,64,2,FAILED,2020-06-09 18:41:01,None,None,36848,0",
            "9,uB,vcY,0,64,2,FAILED,2020-06-09 18:41:01,None,None,36848,0",
        )
    )

    assert trace.schema == "helios"
    assert trace.jobs == (TraceJob("8", 0, 3, 3, 36848, "vcY", "uB"), TraceJob("7", 26, 2, 8, 249, "vcX", "uA"))
    assert trace.adjusted == ((Rule.SPLIT_EVENLY, 1),)


def test_acme_says_what_kind_of_work_a_job_is_and_its_offsets_count(written: Written) -> None:
    trace = read_trace(
        written(
            ACME,
            "57,u5,1,8,128,Evaluation,FAILED,2023-03-01 00:18:22+08:00,,,117,32,936.0",
            "58,u5,2,16,128,Pretrain,FAILED,2023-02-28 17:18:22+00:00,,,117,32,936.0",
        )
    )

    assert trace.jobs == (
        TraceJob("57", 0, 1, 8, 117, "", "u5", "Evaluation"),
        TraceJob("58", 3600, 2, 8, 117, "", "u5", "Pretrain"),
    )


def test_openb_pods_that_never_ran_are_left_out_and_parts_of_a_gpu_are_whole(written: Written) -> None:
    trace = read_trace(
        written(
            OPENB,
            "pod-0,12000,16384,1,460,V100M16|V100M32,LS,Running,100,400,150",
            "pod-1,12000,16384,1,1000,,BE,Pending,200,400,",
            "pod-2,12000,16384,0,0,,BE,Running,200,400,210",
        )
    )

    assert trace.jobs == (TraceJob("pod-0", 0, 1, 1, 250, kind="LS", gpu_types=("V100M16", "V100M32")),)
    assert trace.dropped == ((Rule.NO_GPU, 1), (Rule.NO_RUN_TIME, 1))
    assert trace.adjusted == ((Rule.ROUNDED_UP, 1),)


def test_pai_jobs_are_made_of_their_tasks_with_gpus(tmp_path: Path) -> None:
    (tmp_path / "pai_job_table.csv").write_text(
        "j1,i1,userA,Terminated,1000.0,2000.0\nj2,i2,userB,Terminated,900.0,2000.0\nj3,i3,userC,Failed,,\n"
    )
    with gzip.open(tmp_path / "pai_task_table.csv.gz", "wt") as packed:
        packed.write(
            "job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type\n"
            "j1,ps,1.0,Terminated,1010.0,1990.0,600.0,29.3,,\n"
            "j1,worker,4.0,Terminated,1020.0,1500.0,600.0,29.3,200.0,V100\n"
            "j1,chief,1.0,Terminated,1015.0,1600.0,600.0,29.3,150.0,V100M32\n"
            "j3,worker,1.0,Failed,20.0,30.0,600.0,29.3,12.5,T4\n"
        )

    trace = read_trace(tmp_path)

    assert trace.schema == "pai"
    assert trace.jobs == (TraceJob("j1", 0, 5, 2, 585, user="userA", gpu_types=("V100", "V100M32")),)
    assert trace.dropped == ((Rule.NO_GPU, 1), (Rule.NO_RUN_TIME, 1))
    assert trace.adjusted == ((Rule.ROUNDED_UP, 2),)


def test_gavel_takes_run_times_from_measured_throughputs_in_all_its_layouts(tmp_path: Path) -> None:
    (tmp_path / "simulation_throughputs.json").write_text(json.dumps(THROUGHPUTS))
    folder = tmp_path / "traces" / "seed=0"
    folder.mkdir(parents=True)
    model = "Transformer (batch size 16)"
    (folder / "vc1.trace").write_text(
        f'{model}\tpython3 "train.py\t-step\t1\t2000\t50.6\t1\n'
        f"{model}\trun\t-step\t1\t2000\t20\t16\n"
        "A3C\tx\t-s\t0\t9\t9\t1\n"
    )
    (folder / "vc2.trace").write_text(
        f"{model}\trun\t-step\t1\t300\t8\t1\t-1\t100\n{model}\trun\tdir\t-step\t1\t300\t2\t1\t-1\t110.0\n"
    )

    trace = read_trace(folder)

    assert trace.schema == "gavel"
    assert trace.jobs == (
        TraceJob("vc1-1", 0, 2, 8, 200, "vc1", kind=model),
        TraceJob("vc1-0", 31, 1, 1, 1000, "vc1", kind=model, speeds=(("k80", 250),)),
        TraceJob("vc2-0", 80, 1, 8, 30, "vc2", kind=model),
    )
    assert trace.dropped == ((Rule.NO_THROUGHPUT, 2),)
    assert trace.adjusted == ((Rule.LARGEST_MEASURED, 1),)


ROW = "a-0,0,1,1,1,,60,q,,"

MISTAKES = [
    (
        "a count that is no number",
        (COMMON, ROW, "a-1,0,two,1,1,,60,q,,"),
        "trace.csv:3:7: error: 'two': gpus is a whole",
    ),
    ("half a GPU", (COMMON, "a-1,0,0.5,1,1,,60,q,,"), "trace.csv:2:7: error: '0.5': gpus is a whole number"),
    (
        "a duration below zero",
        (COMMON, "a-1,0,1,1,1,,-60,q,,"),
        "trace.csv:2:14: error: '-60': duration_s is a number of",
    ),
    (
        "a duration that is not a number",
        (COMMON, "a-1,0,1,1,1,,nan,q,,"),
        "trace.csv:2:14: error: 'nan': duration_s is",
    ),
    ("a number with a separator", (COMMON, "a-1,1_000,1,1,1,,60,q,,"), "trace.csv:2:5: error: '1_000': submit_s is"),
    ("a number without end", (COMMON, f"a-1,{'9' * 5000},1,1,1,,60,q,,"), "trace.csv:2:5: error: '9999"),
    ("a job twice", (COMMON, ROW, ROW), "trace.csv:3:1: error: 'a-0': job_id is a name that no other row has; leave"),
    ("a job without a name", (COMMON, ",0,1,1,1,,60,q,,"), "trace.csv:2:1: error: job_id is a name that no other row"),
    ("a job of GPUs in no worker", (COMMON, "a-1,0,1,0,1,,60,q,,"), "'0': gpus_per_worker is at least 1 where"),
    ("a field too many", (COMMON, f"{ROW},x"), "trace.csv:2:1: error: a row has 10 fields, this one has 11; mend"),
    ("a field too few", (COMMON, ROW, "a-1,0"), "trace.csv:3:1: error: a row has 10 fields, this one has 2"),
    ("a column named twice", (f"{COMMON},class", f"{ROW},"), "trace.csv:1:83: error: 'class': class is named twice"),
    ("no such schema", ("a,b,c", "1,2,3"), "trace.csv:1:1: error: 'a,b,c': the header line is that of no schema"),
    ("an empty file", ("",), "trace.csv:1:1: error: the file is empty; give the file with its header line"),
    ("nothing that can be used", (COMMON, "a-1,0,0,1,1,,60,q,,"), "none of its 1 rows can be used; is this a trace of"),
    ("a quotation mark left open", (COMMON, '"a-1,0,1,1,1,,60,q,,'), "trace.csv:2:1: error: not a row of the form"),
    ("a field over two lines", (COMMON, '"a', '1",0,1,1,1,,60,q,,'), "a field goes on over the end of its line; close"),
    ("a place after quoted fields", (COMMON, '"a,""b",0,x,1,1,,60,q,,'), "trace.csv:2:11: error: 'x': gpus is"),
    (
        "a date that is none",
        (HELIOS, "7,u,vc,1,1,1,C,2020-06-31 18:41:27,,,9,0"),
        "trace.csv:2:16: error: '2020-06-31 18:41:27': submit_time is a date and a time; write it like 2020-06-09 18:",
    ),
]


@pytest.mark.parametrize(("lines", "said"), [case[1:] for case in MISTAKES], ids=[case[0] for case in MISTAKES])
def test_a_mistake_is_told_with_its_place(written: Written, lines: tuple[str, ...], said: str) -> None:
    with pytest.raises(TraceError) as caught:
        read_trace(written(*lines))
    assert said in str(caught.value)


def test_a_column_that_is_missing_is_named_with_what_is_near_it(written: Written) -> None:
    with pytest.raises(TraceError) as caught:
        read_trace(written(COMMON.replace("gpus,", "gpu,"), ROW), schema="common")
    assert "'gpus': the schema needs a column of this name; did you mean 'gpu'?" in str(caught.value)


def test_what_is_not_utf8_is_told_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_bytes(f"{COMMON}\n{ROW}\n".encode() + b"\xff\xfe,0,1,1,1,,60,q,,\n")
    with pytest.raises(TraceError, match="the file is not UTF-8; convert the file to UTF-8"):
        read_trace(path)


def test_a_file_that_is_not_there_is_an_error_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(
        TraceError, match=r"none\.csv:1:1: error: the file cannot be read \(No such file or directory\)"
    ):
        read_trace(tmp_path / "none.csv")


def test_a_gavel_trace_without_throughputs_asks_for_them(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "er" / "still" / "a" / "b" / "vc.trace"
    path.parent.mkdir(parents=True)
    path.write_text("A3C\tx\t-s\t0\t9\t9\t1\n")
    with pytest.raises(TraceError, match=r"need measured throughputs; put Gavel's simulation_throughputs\.json beside"):
        read_trace(path)


def test_throughputs_of_another_form_are_refused(tmp_path: Path) -> None:
    (tmp_path / "simulation_throughputs.json").write_text('{"v100": {"A3C": {"null": 1.0}}}')
    (tmp_path / "vc.trace").write_text("A3C\tx\t-s\t0\t9\t9\t1\n")
    with pytest.raises(TraceError, match=r"throughputs are .*'A3C' is no pair of model and GPUs"):
        read_trace(tmp_path / "vc.trace")


def common(*cells: str) -> tuple[str, ...]:
    """Rows of the common schema: submission, GPUs and duration of each job."""
    rows = (cell.split() for cell in cells)
    return (COMMON, *(f"j{at},{sub},{gpus},1,1,,{lasts},q,u," for at, (sub, gpus, lasts) in enumerate(rows)))


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        pytest.param(
            common("0 1 999999999999999"), ":2:13: error: '999999999999999': duration_s is a number of seconds"
        ),
        pytest.param(common("0 1 400000000"), ":2:13: error: '400000000': duration_s is a run of at most 316224000 s"),
        pytest.param(common("999999999999999 1 60"), ":2:4: error: '999999999999999': submit_s is a number of seconds"),
        pytest.param(common("0 1 60", "400000000 1 60"), "12 years between its first submission and its last"),
        pytest.param(common("0 1 1e400"), ":2:13: error: '1e400': duration_s is a number of seconds"),
        pytest.param(("x" * 3_000_000,), ":1:1: error: a line of more than 1048576 letters"),
    ],
    ids=["a run of ages", "a run of twelve years", "a submission in ages", "twelve years apart", "no end", "one line"],
)
def test_what_no_clock_and_no_memory_could_hold_is_told_with_its_place(
    written: Written, lines: tuple[str, ...], said: str
) -> None:
    with pytest.raises(TraceError) as caught:
        read_trace(written(*lines), "common")
    assert said in str(caught.value)


@pytest.mark.parametrize("figure", ["NaN", "Infinity", "-1", "1e-300", "1e300", "true", "[]", '"fast"'])
def test_a_throughput_that_is_none_is_refused(tmp_path: Path, figure: str) -> None:
    (tmp_path / "x.trace").write_text("A3C\tcmd\tdir\t-n\t1000\t0.5\t1\n")
    (tmp_path / "simulation_throughputs.json").write_text(f"""{{"v100": {{"('A3C', 1)": {{"null": {figure}}}}}}}""")
    with pytest.raises(TraceError, match=r"simulation_throughputs\.json:1:1: error: throughputs are"):
        read_trace(tmp_path)


def test_a_run_that_throughputs_make_endless_is_told_with_its_steps(tmp_path: Path) -> None:
    (tmp_path / "x.trace").write_text("A3C\tcmd\tdir\t-n\t1000000\t0.5\t1\n")
    (tmp_path / "simulation_throughputs.json").write_text("""{"v100": {"('A3C', 1)": {"null": 1e-6}}}""")
    with pytest.raises(TraceError, match="lets it do in ten years"):
        read_trace(tmp_path)


def test_pai_without_one_of_its_tables_says_which(tmp_path: Path) -> None:
    (tmp_path / "pai_task_table.csv").write_text("")
    with pytest.raises(TraceError, match=r"pai_job_table\.csv:1:1: error: the schema needs this table"):
        read_trace(tmp_path)


def test_an_unknown_schema_suggests_one(written: Written) -> None:
    with pytest.raises(TraceError, match="'helius': no schema of this name; did you mean 'helios'"):
        read_trace(written(HELIOS), schema="helius")


@pytest.mark.parametrize(
    ("header", "name"),
    [(COMMON, "common"), (MURI, "muri"), (HELIOS, "helios"), (ACME, "acme"), (OPENB, "openb")],
)
def test_a_schema_is_recognised_by_its_header(written: Written, header: str, name: str) -> None:
    assert schema_of(written(header)).name == name


def test_every_schema_says_under_which_licence_its_public_trace_stands() -> None:
    assert [schema.name for schema in SCHEMAS] == ["common", "gavel", "muri", "helios", "acme", "pai", "openb"]
    assert all(schema.licence for schema in SCHEMAS)


@pytest.mark.parametrize(
    ("gpus", "per_pod", "expected"),
    [
        (1, 8, (1, 1)),
        (8, 8, (1, 8)),
        (12, 8, (2, 6)),
        (20, 8, (4, 5)),
        (17, 8, (17, 1)),
        (32, 8, (4, 8)),
        (6, 4, (2, 3)),
    ],
)
def test_a_gang_is_as_few_equal_pods_as_fit(gpus: int, per_pod: int, expected: tuple[int, int]) -> None:
    assert gang(gpus, per_pod) == expected
