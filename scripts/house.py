"""Counts what the code costs to change: `make house`.

Everything is counted in the files of git, nothing estimated: lines, arguments of kernels, places where an argument is
spelled, circles of imports, comments that open in a way the style guide avoids.
"""

import ast
import re
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
# A kernel with more arguments is held to be hard to call.
MANY = 12
# Arguments of operators by PyTorch's names, and where they are used, from the C++ body to the kernel.
ARGUMENTS = {
    "divisor_override": ("cpp/native/pool.cpp", "rust/ops/pool"),
    "is_first_step": ("cpp/native/optimizer", "rust/ops/optimizer"),
    "lr_decay": ("cpp/native/optimizer", "rust/ops/optimizer"),
    "align_corners": ("cpp/native/grid", "rust/ops/grid_sampler"),
}


def tracked(*patterns: str) -> list[Path]:
    """List the files of git that match.

    Args:
        patterns: as `git ls-files` takes them.

    Returns:
        Paths, absolute, in order.
    """
    listed = subprocess.run(["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]


def lines(paths: Iterable[Path]) -> int:
    """Count the lines of some files."""
    return sum(len(path.read_text().splitlines()) for path in paths)


def kernels() -> Iterator[tuple[str, int]]:
    """Name each kernel, and count its arguments: its numbers are one (rust/codegen/kernels.rs)."""
    texts = [re.sub(r"//.*|\\\n", " ", path.read_text()) for path in tracked("rust/*.cl")]
    lists = dict(re.findall(r"#define (\w+_ARGUMENTS)\s+(.*)", "\n".join(texts)))
    for text in texts:
        for name, parameters in re.findall(r"__kernel\b[^;{]*?\bvoid\s+(\w+)\s*\(([^{;]*?)\)\s*\{", text):
            spelled = parameters
            while listed := re.search(r"\w+_ARGUMENTS", spelled):
                spelled = spelled.replace(listed[0], lists[listed[0]])
            numbers = re.findall(r"(?:^|,)\s*(?:int|long|ulong|T|TR)\s+\w+", spelled)
            yield name, len(spelled.split(",")) - max(len(numbers) - 1, 0)


def rust_imports() -> dict[str, set[str]]:
    """Modules of Rust that name other modules of theirs, by `use` or by path."""
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
        # Of `mod.rs`, `super` is the module above; of others the module that they are in.
        found = set()
        for base, rest in re.findall(r"\buse (crate|super|self)::([^;]+);", text):
            prefix = {"crate": "", "super": parent, "self": name}[base]
            for leaf in leaves(rest):
                found.add(longest(modules, "::".join(filter(None, [prefix, leaf]))))
        graph[name] = {module for module in found if module and module not in (name, parent)}
    return graph


def leaves(tree: str) -> Iterator[str]:
    """Spell out `a::{b, c::d}` as `a::b` and `a::c::d`."""
    tree = " ".join(tree.split())
    if "{" not in tree:
        yield tree.split(" as ")[0]
        return
    head, body = tree.split("{", 1)
    depth, start, body = 0, 0, body.rstrip().removesuffix("}")
    for place, sign in enumerate(body + ","):
        depth += (sign == "{") - (sign == "}")
        if sign == "," and depth == 0:
            if part := body[start:place].strip():
                yield from (head + leaf for leaf in leaves(part))
            start = place + 1


def longest(modules: Iterable[str], path: str) -> str:
    """Give the module that a path leads into."""
    while path and path not in modules:
        path = path.rpartition("::")[0]
    return path


def python_imports() -> dict[str, set[str]]:
    """Modules of the package, and those that they import when they are loaded."""
    package = ROOT / "python"
    modules = {".".join(path.relative_to(package).with_suffix("").parts): path for path in tracked("python/*.py")}
    graph: dict[str, set[str]] = {}
    for name, path in modules.items():
        folder = name.rpartition(".")[0]
        graph[name] = set()
        for node in ast.parse(path.read_text()).body:
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


def main() -> None:
    """Print the counts."""
    counted = dict(kernels())
    many = sorted(name for name, arguments in counted.items() if arguments > MANY)
    print(f"hand-written C++, lines: {lines(tracked('cpp/*.cpp', 'cpp/*.h'))}")
    print(f"rust/bridge*, lines: {lines(tracked('rust/bridge.rs', 'rust/bridge/*.rs'))}")
    print(f"Rust, lines: {lines(tracked('rust/*.rs'))}; OpenCL C: {lines(tracked('*.cl'))}")
    print(f"kernels: {len(counted)}, arguments: {sum(counted.values())}")
    print(f"kernels with more than {MANY} arguments: {len(many)} ({', '.join(many)})")
    for argument, places in ARGUMENTS.items():
        word = re.compile(rf"\b{argument}\b")
        used = [path for path in tracked("cpp", "rust") if path.relative_to(ROOT).as_posix().startswith(places)]
        spelled = sum(len(word.findall(path.read_text())) for path in used)
        print(f"{argument}: {spelled} times in {sum(bool(word.search(path.read_text())) for path in used)} files")
    for language, graph in (("Rust", rust_imports()), ("Python", python_imports())):
        found = circles(graph)
        print(f"import circles, {language}: {len(found)}" + "".join(f"\n  {', '.join(circle)}" for circle in found))
    openers = re.compile(r"^\s*(?://+!?|#)\s(?:What|Whether)\b")
    files = tracked("rust", "cpp")
    opened = sum(bool(openers.match(line)) for path in files for line in path.read_text().splitlines())
    print(f"comments that open with What or Whether: {opened}")


if __name__ == "__main__":
    main()
