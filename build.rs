//! Finds torch, generates code from the op table, compiles the C++ side and links both.

#[path = "rust/codegen/mod.rs"]
mod codegen;
#[path = "build_support/objects.rs"]
mod objects;

use std::env;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use codegen::{Release, Supported};
use objects::COMPILER_VARIABLES;

/// Files and folders that may contain a `#[cxx::bridge]`.
const BRIDGED: [&str; 5] = ["rust/abi.rs", "rust/blas", "rust/bridge", "rust/layers", "rust/ops"];
/// Folders of kernels: shared sources, and each family's kernels next to its launchers.
const KERNELS: [&str; 2] = ["rust/kernels/include", "rust/ops"];

/// Prints the version and the folders of torch and torchgen. It does not import torch, which may be for another
/// processor.
const PROBE: &str = "
import importlib.util, os, runpy
def folder(name):
    found = importlib.util.find_spec(name)
    if found is None:
        raise ModuleNotFoundError(f'No module named {name!r}')
    return os.path.dirname(found.origin)
root = folder('torch')
version = runpy.run_path(os.path.join(root, 'version.py'))['__version__']
aten = os.path.join(folder('torchgen'), 'packaged', 'ATen', 'native', 'native_functions.yaml')
print(version.split('+')[0], root, aten, sep='\\n')
";

struct Torch {
    release: Release,
    include: PathBuf,
    lib: PathBuf,
    /// Changes with the release.
    version: PathBuf,
    aten: PathBuf,
}

fn main() -> ExitCode {
    match build() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn build() -> Result<(), Box<dyn Error>> {
    let bridges = bridges()?;
    let out_dir = PathBuf::from(env::var("OUT_DIR")?);
    let manifest = std::fs::read_to_string("Cargo.toml")?;
    let supported =
        Supported::parse(&manifest).ok_or("Cargo.toml has no releases of torch in [package.metadata.torch]")?;
    let torch = find_torch(supported)?;

    let table = Path::new("native_functions.yaml");
    let inputs = codegen::Inputs {
        table,
        aten: &torch.aten,
        torch_include: &torch.include,
        launchers: Path::new("rust/ops"),
        include: Path::new("rust/kernels/include"),
        native: Path::new("cpp/native"),
        composites: Path::new("python/torch_opencl/composites"),
        torch: torch.release,
        supported,
    };
    let registrations = codegen::run(&inputs, &out_dir)
        .and_then(|sources| codegen::kernels(&KERNELS.map(Path::new), &out_dir).map(|()| sources))
        .map_err(|diagnostics| diagnostics.iter().map(|d| format!("\n{d}")).collect::<String>())?;

    // After the checks, whose messages cargo shows below what was printed.
    for path in [
        "rust/codegen",
        "rust/kernels/include",
        "cpp",
        "native_functions.yaml",
        "build.rs",
        "build_support/objects.rs",
        "Cargo.toml",
    ] {
        println!("cargo:rerun-if-changed={path}");
    }
    // Each of these files may get a bridge.
    for path in BRIDGED {
        println!("cargo:rerun-if-changed={path}");
    }
    for name in COMPILER_VARIABLES {
        println!("cargo:rerun-if-env-changed={name}");
    }
    println!("cargo:rerun-if-env-changed=TORCH_OPENCL_PYTHON");
    // Another release in the same folder has other headers.
    println!("cargo:rerun-if-changed={}", torch.version.display());

    // clippy links nothing, and cargo runs this script again for it: compiling C++ would double the time of a first
    // lint.
    if env::var_os("RUSTC_WORKSPACE_WRAPPER").is_some_and(|tool| tool.to_string_lossy().contains("clippy")) {
        return Ok(());
    }
    let mut sources = registrations;
    sources.extend(objects::units(&files(Path::new("cpp"), "cpp")?, &out_dir)?);
    cxx_build::CFG.include_prefix = "torch_opencl";
    sources.extend(cxx_build::bridges(&bridges).get_files().map(Path::to_path_buf));
    sources.sort();

    let includes = ["cxxbridge/include", "cxxbridge/crate", ""].map(|folder| out_dir.join(folder));
    let includes = [&[PathBuf::from("cpp")], includes.as_slice()].concat();
    let mut compilation = cc::Build::new();
    compilation
        .cpp(true)
        .includes(&includes)
        .flag(format!("-isystem{}", torch.include.display()))
        .flag(format!("-isystem{}", torch.include.join("torch/csrc/api/include").display()))
        .std("c++20")
        .flag("-fvisibility=hidden")
        .flag("-Wall")
        .flag("-Wextra")
        .flag("-Wno-unused-parameter")
        // Debug information of ATen's templates is larger than all other code together.
        .debug(false)
        .opt_level(2)
        .cargo_metadata(false);
    // To call a dispatch stub's CPU kernel, these must be the variants with which libtorch was built (DispatchStub.h).
    if env::var("CARGO_CFG_TARGET_ARCH")? == "x86_64" {
        compilation.define("HAVE_AVX2_CPU_DEFINITION", None).define("HAVE_AVX512_CPU_DEFINITION", None);
    }
    // The version contains the commit, and torch's headers change with it.
    let version = std::fs::read(&torch.version)?;
    objects::compile(&compilation, &sources, &includes, &version, &out_dir, "torch_opencl_cpp")?;

    // The whole archive: nothing refers to the static initialisers that register kernels, so the linker would drop
    // them.
    println!("cargo:rustc-link-search=native={}", out_dir.display());
    println!("cargo:rustc-link-lib=static:+whole-archive=torch_opencl_cpp");
    println!("cargo:rustc-link-lib=dylib=stdc++");
    println!("cargo:rustc-link-search=native={}", torch.lib.display());
    println!("cargo:rustc-link-lib=dylib=torch_cpu");
    println!("cargo:rustc-link-lib=dylib=c10");
    // Otherwise a definition whose parameters differ from its declaration would be found only when the library is
    // loaded.
    println!("cargo:rustc-link-arg-cdylib=-Wl,-z,defs");
    // In a wheel the library is in torch_opencl/lib/2.x, and torch/lib is next to torch_opencl; tests find torch with
    // LD_LIBRARY_PATH.
    println!("cargo:rustc-link-arg-cdylib=-Wl,-rpath,$ORIGIN/../../../torch/lib");
    Ok(())
}

/// The files that contain a `#[cxx::bridge]`.
fn bridges() -> std::io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for path in BRIDGED.map(Path::new) {
        let files = if path.is_dir() { files(path, "rs")? } else { vec![path.to_path_buf()] };
        for path in files {
            if std::fs::read_to_string(&path)?.lines().any(|line| line.starts_with("#[cxx::bridge")) {
                found.push(path);
            }
        }
    }
    Ok(found)
}

/// The files below a folder with this extension, sorted.
fn files(folder: &Path, extension: &str) -> std::io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in folder.read_dir()? {
        let (path, kind) = entry.and_then(|entry| Ok((entry.path(), entry.file_type()?)))?;
        if kind.is_dir() {
            found.extend(files(&path, extension)?);
        } else if kind.is_file() && path.extension().is_some_and(|ending| ending == extension) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// The torch of the Python that will load the library.
fn find_torch(supported: Supported) -> Result<Torch, String> {
    let python = env::var("TORCH_OPENCL_PYTHON").unwrap_or_else(|_| {
        if env::var_os("VIRTUAL_ENV").is_some() {
            "python".to_owned()
        } else {
            "python3".to_owned()
        }
    });
    let Supported { oldest, newest } = supported;
    let cure = format!("install one with '{python} -m pip install \"torch~={newest}.0\"', or set TORCH_OPENCL_PYTHON");
    let output = Command::new(&python)
        .args(["-c", PROBE])
        .output()
        .map_err(|error| format!("cannot run '{python}' ({error}); install Python 3, or set TORCH_OPENCL_PYTHON"))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        let reason = text.lines().next_back().unwrap_or("no reason given");
        return Err(format!("'{python}' cannot find torch, which this package is built against ({reason}); {cure}"));
    }
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut lines = text.lines();
    let (Some(version), Some(root), Some(aten)) = (lines.next(), lines.next(), lines.next()) else {
        return Err(format!("could not read the torch version from '{python}'; {cure}"));
    };
    let release = Release::of_version(version).filter(|release| supported.contains(*release));
    let release = release.ok_or_else(|| {
        format!("this package is built against torch {oldest} to {newest}, but '{python}' has torch {version}; {cure}")
    })?;
    let root = PathBuf::from(root);
    let (include, lib, version) = (root.join("include"), root.join("lib"), root.join("version.py"));
    Ok(Torch { release, include, lib, version, aten: PathBuf::from(aten) })
}
