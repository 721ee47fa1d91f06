"""tests/gpu_compile: reading of compilers' output, failures, and recording of the programs built for GPUs."""

import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]
sys.path.insert(0, str(TESTS))

from gpu_compile import build, limits, report, sources, targets, tools  # noqa: E402
from gpu_compile.build import Result  # noqa: E402
from gpu_compile.figures import CompileError, Figures, TooSlow  # noqa: E402
from gpu_compile.loops import matrix_share, multiplying_loop  # noqa: E402
from gpu_compile.occupancy import MULTIPROCESSORS, occupancy, of_launch  # noqa: E402
from gpu_compile.programs import Launch, Program  # noqa: E402
from gpu_compile.record import read, record_calls  # noqa: E402
from gpu_compile.sample import of as sample_of  # noqa: E402
from gpu_compile.targets import TARGETS  # noqa: E402

PTXAS = """\
ptxas info    : 4 bytes gmem
ptxas info    : Compiling entry function 'calm' for 'sm_90'
ptxas info    : Function properties for calm
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 20 registers, used 1 barriers, 4096 bytes smem, 448 bytes cmem[0]
ptxas info    : Compiling entry function 'torn' for 'sm_90'
ptxas info    : Function properties for torn
    176 bytes stack frame, 24 bytes spill stores, 48 bytes spill loads
ptxas info    : Used 255 registers, used 0 barriers
"""
PTX = """\
.visible .entry calm(
	.param .u64 .ptr .global .align 4 calm_param_0
)
{
	ld.global.v4.f32 	{%f1, %f2, %f3, %f4}, [%rd1];
	ld.global.nc.f32 	%f5, [%rd2];
	ld.global.u8 	%rs1, [%rd3];
	ld.param.u64 	%rd4, [calm_param_0];
}
"""
AMDGCN = """\
	.text
calm:
	global_load_dwordx4 v[0:3], v4, s[0:1]
	global_load_dword v5, v4, s[2:3]
	s_add_u32 s4, s4, lost@gotpcrel32@lo+4
	s_add_u32 s6, s6, found@rel32@lo+4
	.amdhsa_kernel calm
	.end_amdhsa_kernel
; NumSgprs: 24
; NumVgprs: 136
; ScratchSize: 792
; Occupancy: 7
; LDSByteSize: 3072 bytes/workgroup (compile time only)
; COMPUTE_PGM_RSRC2:SCRATCH_EN: 1
found:
	s_setpc_b64 s[30:31]
amdhsa.kernels:
  - .args:
      - .name:           count
        .size:           8
    .group_segment_fixed_size: 3072
    .name:           calm
    .private_segment_fixed_size: 792
    .vgpr_count:     136
    .vgpr_spill_count: 3
"""
CALM = Figures(registers=32, spills=0, scratch=0, local=0, waves=None, vector_loads=1, loads=2)


def result(figures: Figures = CALM, error: str = "", launch: Launch | None = None) -> Result:
    launches = {"calm": launch or Launch(256, 0)}
    return Result(Program("reduce", "", "-D CLASS_F -D HAS_FP64", launches), "sm_90", error, {"calm": figures})


def test_ptxas_is_read_kernel_by_kernel() -> None:
    parts = targets.ptxas_parts(PTXAS)
    assert list(parts) == ["calm", "torn"]
    assert targets.nvidia_figures(parts["calm"], PTX) == replace(CALM, registers=20, local=4096, loads=3)
    torn = targets.nvidia_figures(parts["torn"], "")
    assert (torn.registers, torn.spills, torn.scratch, torn.local, torn.loads) == (255, 24, 176, 0, 0)


def test_amdgcn_is_read_with_its_remarks() -> None:
    expected = Figures(registers=136, spills=12, scratch=792, local=3072, waves=7, vector_loads=1, loads=2)
    assert targets.amdgcn_figures(AMDGCN) == {"calm": expected}


def test_undefined_functions_are_found() -> None:
    assert targets.missing_in_amdgcn(AMDGCN) == ["lost"]
    assert targets.missing_in_ptx(
        ".extern .func  (.param .b32 func_retval0) _Z3fooi\n(\n)\n;\n.extern .func bar\n"
    ) == [
        "_Z3fooi",
        "bar",
    ]


@pytest.mark.parametrize(
    ("registers", "local", "group", "expected"),
    [
        (32, 0, 256, 1.0),
        (33, 0, 256, 0.75),  # 40 a work-item: 51 warps of 64, by fours 48
        (128, 0, 256, 0.25),
        (255, 0, 256, 0.125),
        (32, 32 << 10, 256, 0.75),  # 228 KiB for groups of 33
        (32, 0, 32, 0.5),  # 32 groups of one warp
        (255, 0, 1024, 0.0),  # 32 warps of 8160 registers do not fit
    ],
)
def test_occupancy_follows_from_registers_local_memory_and_groups(
    registers: int, local: int, group: int, expected: float
) -> None:
    assert occupancy(MULTIPROCESSORS["sm_90"], registers, local, group) == expected
    assert of_launch("sm_90", registers, None, local, group) == expected
    assert of_launch("gfx1030", registers, 4, local, group) == 0.25


@pytest.mark.parametrize(
    ("broken", "text"),
    [
        (result(error="error: use of undeclared identifier"), "undeclared"),
        (result(replace(CALM, spills=8)), "spills 8 bytes"),
        (result(replace(CALM, scratch=400)), "uses 400 bytes of scratch"),
        (result(replace(CALM, registers=65)), "65 registers"),
        (result(replace(CALM, local=(32 << 10) + 4)), "32772 bytes of local memory"),
        (result(launch=Launch(256, 40000)), "40000 bytes of local memory"),
    ],
)
def test_violated_limits_are_found(broken: Result, text: str) -> None:
    hot = {"calm": {"sm_90": 64, "gfx1030": 32}}
    assert limits.failures([result()], hot) == []
    assert len(found := limits.failures([result(), broken], hot)) == 1
    assert text in found[0]


def test_programs_with_a_constant_have_separate_limits() -> None:
    hot = {"calm": {"sm_90": 64}, "calm:DENSE=1": {"sm_90": 16}}
    assert limits.failures([result()], hot) == []
    assert any("calm:DENSE=1" in gap for gap in limits.gaps([result()], hot))
    dense = result()
    dense.program.options += " -D DENSE=1"
    (failure,) = limits.failures([dense], hot)
    assert "takes 32 registers, and hot_kernels.txt allows 16" in failure
    assert not any("calm" in gap for gap in limits.gaps([result(), dense], hot))


def test_a_kernel_has_to_load_whole_vectors() -> None:
    hot = {"calm:DENSE=1:ALIGNED=1": {"vectors": 4}}
    scalar, vectors, other = result(), result(replace(CALM, vector_loads=4)), result()
    other.program.options += " -D DENSE=1"
    for each in (scalar, vectors):
        each.program.options += " -D ALIGNED=1 -D DENSE=1"
    assert limits.failures([vectors, other], hot) == []
    (failure,) = limits.failures([scalar, vectors, other], hot)
    assert "loads of whole vectors, and hot_kernels.txt asks for 4" in failure


def test_kernels_that_are_not_listed_may_spill() -> None:
    assert limits.failures([result(replace(CALM, spills=8, scratch=400))], {}) == []


def test_the_worst_kernels_come_first() -> None:
    calm, torn = result(), result(replace(CALM, scratch=16))
    torn.kernels = {"torn": torn.kernels["calm"]}
    torn.program.launches = {"torn": Launch(64, 0)}
    table = report.rows(limits.uses([calm, torn]))
    assert [row[0] for row in table] == ["torn", "calm"]
    assert dict(zip(report.HEAD, table[1], strict=True))["vector loads"] == "1 of 2"


def test_unused_families_and_hot_kernels_are_reported() -> None:
    found = limits.gaps([result()], {"calm": {}, "absent": {}})
    assert "no call launches absent of hot_kernels.txt" in found
    assert any("family pointwise" in line for line in found)
    assert not any("family reduce:" in line or "winograd" in line for line in found)


def test_the_listed_kernels_exist() -> None:
    text = "".join(path.read_text() for path in sources.SOURCES.glob("*.cl"))
    kernels = set(re.findall(r"__kernel[^{;]*?\bvoid\s+(\w+)\s*\(", text))
    assert {listed.partition(":")[0] for listed in limits.hot_kernels()} <= kernels
    assert {target for most in limits.hot_kernels().values() for target in most} <= {*TARGETS, "vectors"}


def test_a_source_is_recognised_by_its_parts() -> None:
    families = sources.families()
    assert len(families) > 20
    for family in families.values():
        source = family.source("case 1: break;")
        expected = "case 1: break;" if sources.CASES_LINE in family.template else ""
        assert sources.recognise(source) == (family.name, expected)
    with pytest.raises(sources.UnknownProgram, match="make build"):
        sources.recognise("__kernel void other(void) {}")


def test_the_sample_has_every_launched_kernel() -> None:
    programs = [
        Program("sum", "", "-D CLASS_D", {"rows": Launch(1, 0)}),
        Program("sum", "", "-D CLASS_F -D SPEC_OP=1", {"rows": Launch(1, 0), "columns": Launch(1, 0)}),
        Program("sum", "", "-D CLASS_F", {"rows": Launch(1, 0)}),
        Program("sort", "", "-D CLASS_F", {"rows": Launch(1, 0)}),
        Program("sort", "", "-D CLASS_F -D DENSE=1", {"rows": Launch(1, 0)}),
    ]
    for program in programs:
        program.__dict__["digest"] = f"{program.family} {program.options}"
    chosen = sample_of(programs)
    assert programs[0] not in chosen
    assert all(program in chosen for program in programs[1:])


def test_programs_are_recorded_as_built_for_a_gpu(tmp_path: Path) -> None:
    code = """
        import torch
        for index in range(2):
            a = torch.zeros(300, 300, device=f"opencl:{index}")
            (a @ a).softmax(-1)
    """
    record_calls(["-c", "\n".join(line[8:] for line in code.splitlines())], tmp_path)
    programs = read(tmp_path)
    gemms = [program for program in programs if program.family == "gemm_local"]
    assert {program.computes_double for program in gemms} == {True, False}
    assert all(program.launches["gemm_local"].group == 256 for program in gemms)
    assert not any("IS_CPU" in program.options for program in programs)
    softmax = next(program for program in programs if program.family == "softmax")
    assert softmax.is_asked_for(["softmax"]) and softmax.is_asked_for(["softmax_rows"]) and softmax.is_asked_for([])
    assert not softmax.is_asked_for(["gemm_local"])


def test_groups_are_limited_by_the_kernels_largest_group(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Kernels written for one group size raise an error that says so."""
    monkeypatch.setenv("STUB_KERNEL_GROUP", "32")
    code = """
        import torch
        a = torch.zeros(300, 300, device="opencl")
        a + 1, a + a.t(), a[:, :7] + a[:, 1:8], a[:, a[0].long()]
        try:
            a.sum(1)
        except NotImplementedError as error:
            assert "reduce_rows is written for groups of 256 work-items" in str(error), error
            assert "groups of 32 at most" in str(error), error
        else:
            raise AssertionError("launched")
    """
    record_calls(["-c", "\n".join(line[8:] for line in code.splitlines())], tmp_path)
    launches = {kernel: launch for program in read(tmp_path) for kernel, launch in program.launches.items()}
    assert {"pointwise_dense", "pointwise_strided", "index_get"} <= launches.keys()
    assert {launch.group for launch in launches.values()} == {32}


def test_results_are_cached(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Errors are cached too; but a compiler that exceeded the time limit is tried again."""
    outcomes = [TooSlow("no result"), CompileError("mistake"), AssertionError("compiled again")]

    def fail(program: Program, compilers: tools.Tools) -> None:
        raise outcomes.pop(0)

    monkeypatch.setattr(build, "FOLDER", tmp_path)
    monkeypatch.setattr(TARGETS["sm_90"], "compile", fail)
    monkeypatch.setattr(tools.Tools, "version", "1")
    program, compilers = Text("text", "", ""), tools.Tools(tmp_path, tmp_path, tmp_path, tmp_path)
    found = [build.compile_all([program], ["sm_90"], compilers, 1) for _ in range(3)]
    assert [results[0].error for results, left in found] == ["no result", "mistake", "mistake"]
    assert build.compile_all([Text("text", "other", "")], ["sm_90"], compilers, 1, seconds=-1) == ([], 1)
    # Another libclc counts as another compiler.
    (tmp_path / tools.LIBRARIES[0]).write_text("other")
    assert build.known(program, "sm_90", compilers) is not None
    assert build.known(program, "sm_90", tools.Tools(tmp_path, tmp_path, tmp_path, tmp_path)) is None


class Text(Program):
    """A program with its own source."""

    @property
    def source(self) -> str:
        return self.cases


@pytest.fixture(scope="module")
def compilers() -> tools.Tools:
    try:
        return tools.find()
    except tools.MissingTool as error:
        pytest.skip(f"{error} (`make gpu-compile` installs it)")


def test_a_clang_that_does_not_read_libclc_is_skipped(
    compilers: tools.Tools, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    old = tmp_path / "clang"
    old.write_text("#!/bin/sh\necho Invalid attribute group entry >&2\nexit 1\n")
    old.chmod(0o755)
    monkeypatch.setenv("CLANG", str(old))
    assert tools.find() == compilers


@pytest.mark.parametrize("target", ["skl", "acm-g10", "pvc"])
def test_intels_compiler_reports_the_resources_of_kernels(compilers: tools.Tools, target: str) -> None:
    if compilers.ocloc is None:
        pytest.skip("ocloc is not installed: make gpu-compile unpacks it")
    source = """
        __kernel void plain(__global float4 *x) { x[get_global_id(0)] *= 2.0f; }
        __kernel void array(__global int *x, int n) {
            __local int shared[128];
            shared[get_local_id(0)] = x[n];
            barrier(CLK_LOCAL_MEM_FENCE);
            x[get_global_id(0)] = shared[n & 127];
        }
    """
    kernels = TARGETS[target].compile(Text("text", source, "-cl-std=CL1.2"), compilers)
    assert kernels["plain"].scratch == kernels["plain"].spills == kernels["plain"].local == 0
    assert kernels["plain"].lanes in (16, 32)
    assert kernels["array"].local >= 512
    with pytest.raises(CompileError, match="no_such_name"):
        TARGETS[target].compile(Text("text", "__kernel void a(int x) { x = no_such_name; }", ""), compilers)
    double = Text("text", "__kernel void a(__global double *x) { x[0] *= 3; }", "-D HAS_FP64 -D CLASS_D")
    assert bool(TARGETS[target].compile(double, compilers)) == (target != "acm-g10")


@pytest.mark.parametrize("target", ["sm_90", "gfx1030"])
def test_compilers_report_the_resources_of_kernels(compilers: tools.Tools, target: str) -> None:
    source = """
        __kernel void plain(__global float4 *x) { x[get_global_id(0)] *= 2.0f; }
        __kernel void array(__global int *x, int n) {
            int kept[64];
            for (int i = 0; i < 64; i++) kept[i] = x[i];
            for (int i = 0; i < n; i++) kept[x[i] & 63] += kept[i & 63];
            __local int shared[128];
            shared[get_local_id(0)] = kept[n & 63];
            barrier(CLK_LOCAL_MEM_FENCE);
            x[get_global_id(0)] = shared[n & 127];
        }
    """
    kernels = TARGETS[target].compile(Text("text", source, "-cl-std=CL1.2 -D HAS_FP64"), compilers)
    assert kernels["plain"].scratch == kernels["plain"].spills == kernels["plain"].local == 0
    assert kernels["plain"].vector_loads == kernels["plain"].loads == 1
    assert kernels["array"].scratch >= 256
    assert kernels["array"].local == 512


@pytest.mark.parametrize("target", ["sm_90", "gfx1030"])
@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("__kernel void a(__global int *x) { x[0] = no_such_name; }", "no_such_name"),
        ("int nowhere(int); __kernel void a(__global int *x) { x[0] = nowhere(x[1]); }", "nowhere"),
        ("__kernel void a(__global float *x) { x[0] = (float)((double)x[0] * 3); }", "double"),
        (
            """__kernel void a(__global int *x, int n) {
                 _Pragma("unroll") for (int i = 0; i < n; i++) if (x[i] == 3) barrier(CLK_GLOBAL_MEM_FENCE);
               }""",
            "loop not unrolled",
        ),
    ],
)
def test_mistakes_do_not_compile(compilers: tools.Tools, target: str, source: str, text: str) -> None:
    """Names, functions without a body, doubles on a device without them, and loops that cannot be unrolled."""
    with pytest.raises(CompileError, match=text):
        TARGETS[target].compile(Text("text", source, "-cl-std=CL1.2 -w"), compilers)


SASS = """
        /*0000*/                   IMAD R1, R1, R2, R3 ;
.L_x_1:
        /*0010*/                   BAR.SYNC 0x0 ;
        /*0020*/              @!P0 BRA `(.L_x_2) ;
        /*0030*/                   LDGSTS.E.ZFILL [R4], [R6.64], P1 ;
        /*0040*/                   BRA `(.L_x_3) ;
.L_x_2:
        /*0050*/                   LDGSTS.E [R4], [R6.64] ;
.L_x_3:
        /*0060*/                   HMMA.16816.F32 R8, R12, R16, R8 ;
        /*0070*/                   HMMA.16816.F32 R20, R12, R18, R20 ;
        /*0080*/               @P2 BRA `(.L_x_1) ;
        /*0090*/                   EXIT ;
"""


def test_the_share_of_matrix_instructions_is_that_of_the_loop_without_edges() -> None:
    # Six instructions count: a barrier, two branches, the copy of a whole chunk and two products.
    assert matrix_share(SASS) == pytest.approx(2 / 6)
    assert matrix_share("        /*0000*/  EXIT ;") == 0


@pytest.mark.parametrize(
    ("label", "branch", "product"), [("L_x_", "BRA `(.", "FFMA R1,"), ("LBB0_", "s_cbranch_vccnz .", "v_fma_f32 v1,")]
)
def test_the_instructions_of_the_innermost_loop_that_multiplies_are_counted(
    label: str, branch: str, product: str
) -> None:
    line = "        /*0010*/  {}" if label == "L_x_" else "\t{}"
    inner = [f".{label}2:", *[line.format(product)] * 16, line.format(f"{branch}{label}2")]
    outer = [f".{label}1:", *inner, line.format(product), line.format(f"{branch}{label}1")]
    assert multiplying_loop("\n".join(outer)) == 17
    assert multiplying_loop("\n".join(outer[2:8])) == 0
