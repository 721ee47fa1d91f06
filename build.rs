//! Finds torch, generates code from the op table, compiles the C++ side and links both.

#[path = "rust/codegen/mod.rs"]
mod codegen;

use std::env;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use codegen::{Release, Supported};

/// Where `#[cxx::bridge]` stands.
const BRIDGES: [&str; 5] =
    ["rust/blas/host.rs", "rust/bridge.rs", "rust/bridge/builds.rs", "rust/bridge/fused.rs", "rust/bridge/runtime.rs"];

/// Asks Python where torch and torchgen are.
const PROBE: &str = "
import os, torch, torchgen
root = os.path.dirname(torch.__file__)
aten = os.path.join(os.path.dirname(torchgen.__file__), 'packaged', 'ATen', 'native', 'native_functions.yaml')
print(torch.__version__.split('+')[0], root, aten, sep='\\n')
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
    for path in ["rust/codegen", "cpp", "native_functions.yaml", "build.rs", "Cargo.toml"].iter().chain(&BRIDGES) {
        println!("cargo:rerun-if-changed={path}");
    }
    println!("cargo:rerun-if-env-changed=TORCH_OPENCL_PYTHON");
    let out_dir = PathBuf::from(env::var("OUT_DIR")?);
    let manifest = std::fs::read_to_string("Cargo.toml")?;
    let supported =
        Supported::parse(&manifest).ok_or("Cargo.toml has no releases of torch in [package.metadata.torch]")?;
    let torch = find_torch(supported)?;

    // Another release that takes its place has other headers.
    println!("cargo:rerun-if-changed={}", torch.version.display());

    let table = Path::new("native_functions.yaml");
    let registrations = codegen::run(table, &torch.aten, &torch.include, torch.release, supported, &out_dir)
        .map_err(|diagnostics| diagnostics.iter().map(|d| format!("\n{d}")).collect::<String>())?;

    // clippy links nothing, and cargo runs this once more for it: compiling C++ would double the time of a first lint.
    if env::var_os("RUSTC_WORKSPACE_WRAPPER").is_some_and(|tool| tool.to_string_lossy().contains("clippy")) {
        return Ok(());
    }
    let mut sources = registrations;
    for folder in ["cpp", "cpp/native"] {
        for entry in Path::new(folder).read_dir()? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "cpp") {
                sources.push(path);
            }
        }
    }
    sources.sort();

    cxx_build::CFG.include_prefix = "torch_opencl";
    let mut compilation = cxx_build::bridges(BRIDGES);
    compilation
        .files(&sources)
        .include("cpp")
        .include(&out_dir)
        .flag(format!("-isystem{}", torch.include.display()))
        .flag(format!("-isystem{}", torch.include.join("torch/csrc/api/include").display()))
        .std("c++20")
        .flag("-fvisibility=hidden")
        .flag("-Wall")
        .flag("-Wextra")
        .flag("-Wno-unused-parameter")
        // Debug information of ATen's templates is larger than everything else together.
        .debug(false)
        .opt_level(2)
        .cargo_metadata(false);
    let precompiled = precompile(&mut compilation, &out_dir)?;
    let compiled = compilation.try_compile("torch_opencl_cpp");
    // Several hundred MiB, and made anew each time.
    precompiled.map_or(Ok(()), std::fs::remove_file)?;
    compiled?;

    // Whole: nothing refers to the static initialisers that register kernels, and the linker would drop them.
    println!("cargo:rustc-link-search=native={}", out_dir.display());
    println!("cargo:rustc-link-lib=static:+whole-archive=torch_opencl_cpp");
    println!("cargo:rustc-link-lib=dylib=stdc++");
    println!("cargo:rustc-link-search=native={}", torch.lib.display());
    println!("cargo:rustc-link-lib=dylib=torch_cpu");
    println!("cargo:rustc-link-lib=dylib=c10");
    // In a wheel the library lies in torch_opencl/lib/2.x, and torch/lib beside torch_opencl; tests find torch by LD_LIBRARY_PATH.
    println!("cargo:rustc-link-arg-cdylib=-Wl,-rpath,$ORIGIN/../../../torch/lib");
    Ok(())
}

/// Compiles the headers that most files need, and has every file begin with what has come of it.
///
/// Where the compiler is a cache (ccache), files do without: it would not take what begins so from its store.
fn precompile(compilation: &mut cc::Build, out_dir: &Path) -> Result<Option<PathBuf>, Box<dyn Error>> {
    let compiler = compilation.try_get_compiler()?;
    if is_cache(&compiler) {
        return Ok(None);
    }
    // g++ and clang++ both look for it under this name.
    let (header, precompiled) = (out_dir.join("precompiled.h"), out_dir.join("precompiled.h.gch"));
    std::fs::copy("cpp/precompiled.h", &header)?;
    let mut command = compiler.to_command();
    command.args(["-x", "c++-header"]).arg(&header).arg("-o").arg(&precompiled);
    if !command.status()?.success() {
        return Err("the compiler has not taken cpp/precompiled.h; its messages are above".into());
    }
    compilation.flag("-include").flag(header);
    Ok(Some(precompiled))
}

/// Whether a compiler is ccache or the like, by whatever name.
fn is_cache(compiler: &cc::Tool) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut places = env::split_paths(&path).map(|folder| folder.join(compiler.path()));
    let program = places.find_map(|place| place.canonicalize().ok());
    let name = program.as_deref().and_then(Path::file_name).unwrap_or_default().to_string_lossy().into_owned();
    !compiler.cc_env().is_empty() || name.contains("cache")
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
        // An earlier install of this package, whose sources have been moved, must not keep torch from being imported.
        .env("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
        .output()
        .map_err(|error| format!("cannot run '{python}' ({error}); install Python 3, or set TORCH_OPENCL_PYTHON"))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        let reason = text.lines().next_back().unwrap_or("no reason given");
        return Err(format!("'{python}' cannot import torch, which this package is built against ({reason}); {cure}"));
    }
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut lines = text.lines();
    let (Some(version), Some(root), Some(aten)) = (lines.next(), lines.next(), lines.next()) else {
        return Err(format!("'{python}' told nothing of its torch; {cure}"));
    };
    let release = Release::of_version(version).filter(|release| supported.contains(*release));
    let release = release.ok_or_else(|| {
        format!("this package is built against torch {oldest} to {newest}, but '{python}' has torch {version}; {cure}")
    })?;
    let root = PathBuf::from(root);
    let (include, lib, version) = (root.join("include"), root.join("lib"), root.join("version.py"));
    Ok(Torch { release, include, lib, version, aten: PathBuf::from(aten) })
}
