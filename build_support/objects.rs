//! Compiles C++ into a static library; only files that a change affects are compiled again.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::error::Error;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;

/// Environment variables that the compiler reads, or that set its arguments.
pub const COMPILER_VARIABLES: [&str; 4] = ["CXX", "CXXFLAGS", "CPATH", "CPLUS_INCLUDE_PATH"];

/// Most files of a unit: with more, a unit takes long to compile again after a change of one.
const FILES_OF_UNIT: usize = 8;

/// Writes units, each of which includes a few sources of one folder, and returns them: most of a compiler's time goes
/// into PyTorch's headers, which a unit reads once.
pub fn units(sources: &[PathBuf], out_dir: &Path) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let folder = out_dir.join("units");
    std::fs::create_dir_all(&folder)?;
    let mut units = Vec::new();
    for sources in sources.chunk_by(|a, b| a.parent() == b.parent()) {
        let count = sources.len().div_ceil(FILES_OF_UNIT);
        for part in sources.chunks(sources.len().div_ceil(count)) {
            let unit = folder.join(format!("{}.cpp", units.len()));
            let lines = part.iter().map(|source| Ok(format!("#include {:?}\n", std::path::absolute(source)?)));
            let text = lines.collect::<std::io::Result<String>>()?;
            // The time of an unchanged file does not change.
            if std::fs::read_to_string(&unit).ok().as_ref() != Some(&text) {
                std::fs::write(&unit, text)?;
            }
            units.push(unit);
        }
    }
    Ok(units)
}

/// Compiles `sources` and makes `out_dir/lib{name}.a` of the objects, which are kept for the next build.
///
/// # Arguments
///
/// * `compilation` - The compiler and its arguments, without files.
/// * `includes` - Folders from which files of this project and generated ones are included.
/// * `environment` - Other inputs of the objects, such as the version of torch.
pub fn compile(
    compilation: &cc::Build,
    sources: &[PathBuf],
    includes: &[PathBuf],
    environment: &[u8],
    out_dir: &Path,
    name: &str,
) -> Result<(), Box<dyn Error>> {
    let kept = out_dir.join("objects");
    std::fs::create_dir_all(&kept)?;
    let mut digests = Digests { common: common(compilation, environment)?, includes, texts: BTreeMap::new() };
    let mut objects = Vec::new();
    for source in sources {
        objects.push(kept.join(format!("{:016x}.o", digests.of(source)?)));
    }
    let stale: Vec<_> = sources.iter().zip(&objects).filter(|(_, object)| !object.exists()).collect();
    let library = out_dir.join(format!("lib{name}.a"));
    if stale.is_empty() && library.exists() && unchanged(&kept, &objects)? {
        return Ok(());
    }
    // It has been made of other objects.
    remove(&library)?;
    // In parts, so that finished objects are kept if a later part fails or the build is interrupted.
    let part = 4 * std::thread::available_parallelism()?.get();
    for part in stale.chunks(part) {
        let made = compilation.clone().files(part.iter().map(|(source, _)| source)).try_compile_intermediates()?;
        for (made, (_, object)) in made.iter().zip(part) {
            std::fs::rename(made, object)?;
        }
    }
    let wanted: BTreeSet<_> = objects.iter().collect();
    for entry in kept.read_dir()? {
        let path = entry?.path();
        if !wanted.contains(&path) {
            remove(&path)?;
        }
    }
    // Renamed into place, so that an interrupted build leaves no partial library.
    let partial = format!("{name}_partial");
    compilation.clone().objects(&objects).try_compile(&partial)?;
    Ok(std::fs::rename(out_dir.join(format!("lib{partial}.a")), library)?)
}

/// Returns true if a folder holds exactly these objects, of which the library was made then.
fn unchanged(folder: &Path, objects: &[PathBuf]) -> std::io::Result<bool> {
    let there = folder.read_dir()?.map(|entry| entry.map(|entry| entry.path())).collect::<Result<BTreeSet<_>, _>>()?;
    Ok(there == objects.iter().cloned().collect())
}

/// Hashes of the inputs of objects.
struct Digests<'a> {
    /// The hash of the inputs that all have in common.
    common: u64,
    includes: &'a [PathBuf],
    texts: BTreeMap<PathBuf, Rc<Text>>,
}

/// A file: a hash of its text, and the project's files that it includes directly.
struct Text {
    hash: u64,
    includes: Vec<PathBuf>,
}

impl Digests<'_> {
    /// Hash of a source, the headers of this project that it includes at any depth, and how it is compiled.
    fn of(&mut self, source: &Path) -> std::io::Result<u64> {
        let (mut reached, mut pending) = (BTreeMap::new(), vec![source.to_path_buf()]);
        while let Some(path) = pending.pop() {
            let text = self.text(&path)?;
            if reached.insert(path, text.hash).is_none() {
                pending.extend_from_slice(&text.includes);
            }
        }
        let mut hash = DefaultHasher::new();
        (self.common, source, reached).hash(&mut hash);
        Ok(hash.finish())
    }

    fn text(&mut self, path: &Path) -> std::io::Result<Rc<Text>> {
        if let Some(text) = self.texts.get(path) {
            return Ok(Rc::clone(text));
        }
        let text = std::fs::read_to_string(path)?;
        let mut hash = DefaultHasher::new();
        text.hash(&mut hash);
        let folder = path.parent().map(Path::to_path_buf);
        // Files that are not found belong to torch or the compiler.
        let found = text.lines().filter_map(included).filter_map(|name| {
            folder.iter().chain(self.includes).map(|folder| folder.join(name)).find(|path| path.is_file())
        });
        let includes = found.map(std::path::absolute).collect::<Result<Vec<_>, _>>()?;
        let text = Rc::new(Text { hash: hash.finish(), includes });
        self.texts.insert(path.to_path_buf(), Rc::clone(&text));
        Ok(text)
    }
}

/// The name in a line that includes a file.
fn included(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix('#')?.trim_start().strip_prefix("include")?.trim_start();
    let quoted = rest.strip_prefix('"').and_then(|rest| rest.split_once('"'));
    let (name, _) = quoted.or_else(|| rest.strip_prefix('<')?.split_once('>'))?;
    Some(name)
}

/// Hash of the inputs of every object.
fn common(compilation: &cc::Build, environment: &[u8]) -> Result<u64, Box<dyn Error>> {
    let mut hash = DefaultHasher::new();
    let compiler = compilation.try_get_compiler()?;
    // Without the command's environment, which has all of this process's variables and differs from shell to shell.
    let command = compiler.to_command();
    command.get_program().hash(&mut hash);
    command.get_args().for_each(|argument| argument.hash(&mut hash));
    // An updated compiler keeps its name.
    Command::new(compiler.path()).arg("--version").output()?.stdout.hash(&mut hash);
    COMPILER_VARIABLES.map(env::var_os).hash(&mut hash);
    environment.hash(&mut hash);
    Ok(hash.finish())
}

/// Removes a file if it exists.
fn remove(path: &Path) -> std::io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
