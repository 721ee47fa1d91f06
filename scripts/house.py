"""Measures how hard the code is to change: `make house`.

Everything is counted in the files of git, nothing is estimated: lines, arguments of kernels, lines that name an
argument, import cycles, comments with openers that the style guide avoids, identifiers with nonstandard terms.
`--commits` counts the files that commits have touched: scripts/house.py --commits "pointwise=HASH" "composite=HASH".
"""

import argparse
import ast
import re
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
# Kernels with more arguments count as hard to call, longer files as hard to read.
MANY = 12
LONG = 400
# Arguments of operators by PyTorch's names, and the folders that use them, from the C++ body to the kernel.
ARGUMENTS = {
    "divisor_override": ("cpp/native/pool.cpp", "rust/ops/pool"),
    "is_first_step": ("cpp/native/optimizer", "rust/ops/optimizer"),
    "lr_decay": ("cpp/native/optimizer", "rust/ops/optimizer"),
    "align_corners": ("cpp/native/grid", "rust/ops/grid_sampler"),
}
# Files that an operator of each kind should touch.
WANTED_FILES = {"pointwise": "1", "old family": "3", "composite": "1 or 2", "new family": "6"}
SOURCES = ("*.rs", "*.cl", "*.cpp", "*.h")
EVERYWHERE = ("rust/", "cpp/")
MATMUL = ("rust/ops/matmul/", "rust/ops/convolution/", "rust/blas/", "cpp/native/matmul.cpp")
GEMM = ("rust/ops/matmul/", "rust/blas/", "cpp/native/matmul.cpp")
CONVOLUTION = ("rust/ops/convolution/", "rust/ops/matmul/", "cpp/native/convolution.cpp")
OPTIMIZER = ("rust/ops/optimizer/", "cpp/native/optimizer.cpp")
# Packages from the highest to the lowest layer: modules import nothing of a higher layer, not even for types.
LAYERS = tuple(f"torch_opencl.inductor{layer}" for layer in ("", ".graph", ".layout", ".codegen"))
# Nonstandard words of identifiers (a regular expression of their parts in lower case, joined by `_`), the standard
# terms, and the folders in which they have that meaning.
WORDS: dict[str, tuple[str, tuple[str, ...]]] = {
    # `product` alone is a method of Rust's iterators.
    "products|(?<=_)product": ("matmul, GEMM", MATMUL),
    "factors?": ("operand A, B", MATMUL),
    # A spatial dimension of an input is its depth, as in PyTorch.
    "(?<!in_)depth": ("K", GEMM),
    "addends?": ("C, bias", EVERYWHERE),
    "minimal": ("Winograd", EVERYWHERE),
    "nearest_cache|last_cache": ("L1, last-level cache", EVERYWHERE),
    "back_end": ("backend", EVERYWHERE),
    # Not `in_place`.
    "(?<!in_)places?": ("index, offset, position", EVERYWHERE),
    "patch|patches": ("im2col", CONVOLUTION),
    "taps?": ("kernel elements", CONVOLUTION),
    "pixels?": ("output positions", CONVOLUTION),
    "features?": ("output channels", CONVOLUTION),
    "source": ("input", CONVOLUTION),
    "gather|spread": ("forward, transposed", CONVOLUTION),
    "streams|unstreamed": ("non-temporal stores", ("rust/ops/",)),
    "moments?": ("var_mean", EVERYWHERE),
    "deviations?": ("rstd, std", EVERYWHERE),
    "rank": ("ndim; kthvalue", EVERYWHERE),
    "backlog": ("queue throttle", EVERYWHERE),
    "worker": ("compile thread", ("rust/",)),
    "demand": ("hot counter", ("rust/",)),
    "hurry": ("eager mode", EVERYWHERE),
    # `groups_per_unit` is a tuning parameter, which users see.
    "busy|(?<!groups_)per_unit": ("occupancy target", ("rust/ops/",)),
    # Not the enumerator `LogSumExp`.
    "log_sums?(?!_exp)": ("logsumexp", EVERYWHERE),
    "keep(?!_prob)": ("1 - dropout_p", ("rust/ops/attention/", "cpp/native/scaled_dot_product.cpp")),
    # `learning_rate` is the value of the operand `lr`.
    "(?<!learning_)rate|rate_decay": ("lr, lr_decay", OPTIMIZER),
    "damping": ("dampening", OPTIMIZER),
    "momentum2": ("beta2", OPTIMIZER),
    # `bag` at the end and `bag_size` are PyTorch's terms.
    "bag(?!$|_size|_of_index)": ("embedding_bag", EVERYWHERE),
    "search": ("searchsorted, nonzero", ("rust/ops/", "cpp/native/")),
    "updates?": ("scatter", ("rust/ops/index/", "cpp/native/index.cpp")),
    "list_norm": ("foreach_norm", EVERYWHERE),
    "truth": ("bool", EVERYWHERE),
    "numbers": ("values, parameters", EVERYWHERE),
    "greatest_divisor": ("gcd", EVERYWHERE),
}
# Files in which a word is correct: torch.distributed calls the index of a process in its group its rank, and fused
# matmuls have source code.
EXEMPT = {"rank": "cpp/distributed/process_group", "source": ("rust/ops/matmul/", "rust/ops/convolution/mod.rs")}


def tracked(*patterns: str) -> list[Path]:
    """List the files of git that match.

    Args:
        patterns: for `git ls-files`.

    Returns:
        Paths, absolute, in order.
    """
    listed = subprocess.run(["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]


def lines(paths: Iterable[Path]) -> int:
    """Count the lines of some files."""
    return sum(len(path.read_text().splitlines()) for path in paths)


def kernels() -> Iterator[tuple[str, int]]:
    """Yield each kernel's name and number of arguments; its scalars count as one (rust/codegen/kernels.rs)."""
    texts = [re.sub(r"//.*|\\\n", " ", path.read_text()) for path in tracked("rust/*.cl")]
    lists = dict(re.findall(r"#define (\w+_ARGUMENTS)\s+(.*)", "\n".join(texts)))
    for text in texts:
        for name, parameters in re.findall(r"__kernel\b[^;{]*?\bvoid\s+(\w+)\s*\(([^{;]*?)\)\s*\{", text):
            spelled = parameters
            while listed := re.search(r"\w+_ARGUMENTS", spelled):
                spelled = spelled.replace(listed[0], lists[listed[0]])
            # Empty unless torch.compile has added an epilogue to the kernel.
            spelled = spelled.replace(", FUSED_PARAMETERS", "")
            scalars = re.findall(r"(?:^|,)\s*(?:int|long|ulong|T|TR)\s+\w+", spelled)
            yield name, len(spelled.split(",")) - max(len(scalars) - 1, 0)


def rust_imports() -> dict[str, set[str]]:
    """Rust modules, and the modules that they refer to with `use`."""
    modules = {}
    for path in tracked("rust/*.rs"):
        parts = path.relative_to(ROOT / "rust").with_suffix("").parts
        parts = parts[:-1] if parts[-1] in ("mod", "lib") else parts
        if parts and parts[0] != "codegen":
            modules["::".join(parts)] = path
    graph = {}
    for name, path in modules.items():
        text = path.read_text().split("#[cfg(test)]")[0]
        parent = name.rsplit("::", 1)[0] if "::" in name else ""
        # `super` is the parent module, for `mod.rs` as well as for other files.
        found = set()
        for base, rest in re.findall(r"\buse (crate|super|self)::([^;]+);", text):
            prefix = {"crate": "", "super": parent, "self": name}[base]
            for leaf in leaves(rest):
                # cxx declares the C++ interface in a module `ffi`, whose types its implementations use: not a cycle.
                if "ffi" in leaf.split("::"):
                    continue
                found.add(longest(modules, "::".join(filter(None, [prefix, leaf]))))
        graph[name] = {module for module in found if module and module not in (name, parent)}
    return graph


def leaves(tree: str) -> Iterator[str]:
    """Expand `a::{b, c::d}` to `a::b` and `a::c::d`."""
    tree = " ".join(tree.split())
    if "{" not in tree:
        yield tree.split(" as ")[0]
        return
    head, body = tree.split("{", 1)
    depth, start, body = 0, 0, body.rstrip().removesuffix("}")
    for position, sign in enumerate(body + ","):
        depth += (sign == "{") - (sign == "}")
        if sign == "," and depth == 0:
            if part := body[start:position].strip():
                yield from (head + leaf for leaf in leaves(part))
            start = position + 1


def longest(modules: Iterable[str], path: str) -> str:
    """Return the module that a path refers to."""
    while path and path not in modules:
        path = path.rpartition("::")[0]
    return path


def python_imports(everywhere: bool = False) -> dict[str, set[str]]:
    """Modules of the package, and the modules that they import: when they are loaded, or anywhere in their source."""
    package = ROOT / "python"
    modules = {".".join(path.relative_to(package).with_suffix("").parts): path for path in tracked("python/*.py")}
    graph: dict[str, set[str]] = {}
    for name, path in modules.items():
        folder = name.rpartition(".")[0]
        graph[name] = set()
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree) if everywhere else tree.body:
            if isinstance(node, ast.ImportFrom):
                base = ".".join(folder.split(".")[: len(folder.split(".")) - node.level + 1]) if node.level else ""
                whole = ".".join(filter(None, [base, node.module or ""]))
                wanted = [whole, *(f"{whole}.{alias.name}" for alias in node.names)]
            elif isinstance(node, ast.Import):
                wanted = [alias.name for alias in node.names]
            else:
                continue
            graph[name] |= {module for module in wanted if module in modules and module != name}
    return graph


def upward_imports() -> list[str]:
    """List the imports of modules of a higher layer."""
    graph = python_imports(everywhere=True)
    layers = {name: LAYERS.index(folder) for name in graph if (folder := name.rpartition(".")[0]) in LAYERS}
    return [
        f"{name} imports {other}"
        for name, layer in layers.items()
        for other in sorted(graph[name])
        if layers.get(other, layer) < layer
    ]


def replaced_functions() -> set[str]:
    """Find the functions of PyTorch's compiler that the package replaces; functions for its tables do not count."""
    assigned = re.compile(r"^ +module\.([\w.]+) = |^ +(\w+)\.__code__ = ", re.M)
    return {
        function.rpartition(".")[2]
        for path in tracked("python/torch_opencl/inductor/*.py")
        for names in assigned.findall(path.read_text())
        for function in filter(None, names)
    }


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Find the sets of modules that import one another (Tarjan's strongly connected components)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in graph.get(node, ()):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            circle = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(circle) > 1:
                found.append(sorted(circle))

    for node in graph:
        if node not in index:
            visit(node)
    return found


def identifiers(path: Path) -> Iterator[str]:
    """Yield a file's identifiers outside of comments and strings, and its name: in lower case, parts joined by `_`."""
    code = re.sub(r'//[^\n]*|/\*.*?\*/|"(?:[^"\\\n]|\\.)*"', " ", path.read_text(), flags=re.S)
    for name in (path.stem, *re.findall(r"[A-Za-z_]\w*", code)):
        # The operator's name has one of the words, and is correct.
        yield re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().replace("embedding_bag", "")


def words() -> Counter[str]:
    """Count the identifiers that have one of the words."""
    patterns = {word: re.compile(rf"(?:^|_)(?:{word})(?:_|$)") for word in WORDS}
    counted: Counter[str] = Counter()
    for path in tracked(*SOURCES):
        name = path.relative_to(ROOT).as_posix()
        here = {
            word
            for word, (_, folders) in WORDS.items()
            if name.startswith(folders) and not (word in EXEMPT and name.startswith(EXEMPT[word]))
        }
        if here and not name.startswith("rust/codegen/"):
            for identifier, times in Counter(identifiers(path)).items():
                counted.update({word: times for word in here if patterns[word].search(identifier)})
    return counted


def spellings() -> dict[str, tuple[int, int]]:
    """Count the lines that name each argument of ARGUMENTS, and the files of these lines."""
    counted = {}
    for argument, folders in ARGUMENTS.items():
        word = re.compile(rf"\b{argument}\b")
        used = [path for path in tracked("cpp", "rust") if path.relative_to(ROOT).as_posix().startswith(folders)]
        naming = [sum(bool(word.search(line)) for line in path.read_text().splitlines()) for path in used]
        counted[argument] = sum(naming), sum(map(bool, naming))
    return counted


def touched(commit: str) -> tuple[int, int]:
    """Count the files that a commit has touched: code and the table, and tests and documents."""
    shown = subprocess.run(
        ["git", "show", "--format=", "--name-only", commit], cwd=ROOT, capture_output=True, text=True, check=True
    )
    names = shown.stdout.split()
    beside = sum(name.startswith(("tests/", "docs/", "benchmarks/")) or name.endswith(".md") for name in names)
    return len(names) - beside, beside


def row(question: str, now: object, wanted: object) -> None:
    """Print a row of the table."""
    print(f"{question:<72} {now!s:>10}  {wanted!s:>10}")


def main() -> None:
    """Print the counts."""
    parser = argparse.ArgumentParser(description="Measures how hard the code is to change.")
    parser.add_argument(
        "--commits", nargs="+", default=[], metavar="KIND=HASH", help="count the files of these commits"
    )
    commits = [text.partition("=")[::2] for text in parser.parse_args().commits]
    counted = dict(kernels())
    many = sorted(name for name, arguments in counted.items() if arguments > MANY)
    files = tracked(*SOURCES, "*.py")
    long = [path.relative_to(ROOT).as_posix() for path in files if lines([path]) > LONG]
    openers = re.compile(r"^\s*(?://+!?|#)\s(?:What|Whether|Of|Those|The same|Where|Nobody)\b")
    opened = sum(bool(openers.match(line)) for path in files for line in path.read_text().splitlines())
    graphs = {"Rust without cxx": rust_imports(), "Python": python_imports()}

    row("", "now", "wanted")
    for argument, (spelled, where) in spellings().items():
        row(f"lines that name {argument}, from C++ to kernel, in {where} files", spelled, 3)
    for kind, commit in commits:
        code, beside = touched(commit)
        row(f"files of a {kind}, without {beside} of tests and docs", code, WANTED_FILES.get(kind, "-"))
    row("lines of hand-written C++", lines(tracked("cpp/*.cpp", "cpp/*.h")), "<= 6000")
    row("lines of rust/bridge*", lines(tracked("rust/bridge.rs", "rust/bridge/*.rs")), "<= 600")
    row(f"kernels with more than {MANY} arguments, of {len(counted)}", len(many), 0)
    print("".join(f"  {name}\n" for name in many), end="")
    for language, graph in graphs.items():
        found = circles(graph)
        row(f"import cycles, {language}", len(found), 0)
        print("".join(f"  {', '.join(circle)}\n" for circle in found), end="")
    upward = upward_imports()
    row("imports of a higher layer, Python", len(upward), 0)
    print("".join(f"  {each}\n" for each in upward), end="")
    replaced = replaced_functions()
    row("functions of PyTorch's compiler that are replaced", len(replaced), "<= 8")
    print("".join(f"  {name}\n" for name in sorted(replaced)), end="")
    row("comment lines that open with What, Whether, Of, Those, The same, Where or Nobody", opened, "<= 10")
    row(f"files with more than {LONG} lines", len(long), 0)
    print("".join(f"  {name}\n" for name in long), end="")
    row('microseconds to enqueue a small add: make bench CASES="add of 4"', "measured", "<= 4.5")
    row("speed of every row: make bench", "measured", "no slower")
    used = words()
    row("identifiers with nonstandard terms", sum(used.values()), 0)
    for word, times in used.most_common():
        row(f"  {word}: {WORDS[word][0]}", times, 0)
    print(f"Rust, lines: {lines(tracked('rust/*.rs'))}; OpenCL C: {lines(tracked('*.cl'))}")
    print(f"kernels: {len(counted)}, arguments: {sum(counted.values())}")


if __name__ == "__main__":
    main()
