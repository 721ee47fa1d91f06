//! Checks the code generator's messages and its output.
//!
//! Each `cases/*.yaml` is an invalid table, the `.stderr` next to it has the expected diagnostics. `good/` has a valid
//! table and the expected output. After an intended change, `UPDATE_EXPECTED=1 cargo test --test codegen` rewrites the
//! expectations; review them in the diff. `aten/` has a small excerpt of ATen, so that torch is not needed.

#[path = "../../rust/codegen/mod.rs"]
mod codegen;

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use codegen::{Diagnostic, Release, Supported};

const FOLDER: &str = "tests/codegen";

/// The release of the excerpt, and the releases that the tables may specify.
const TORCH: Release = Release { major: 2, minor: 13 };
const SUPPORTED: Supported =
    Supported { oldest: Release { major: 2, minor: 11 }, newest: Release { major: 2, minor: 15 } };

#[test]
fn bad_tables_are_refused_with_their_reasons() -> Result<(), Box<dyn Error>> {
    let mut tables: Vec<PathBuf> = fs::read_dir(Path::new(FOLDER).join("cases"))?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    tables.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    tables.sort();
    assert!(!tables.is_empty(), "no cases found");

    let out = out_dir("cases")?;
    let mut failures = Vec::new();
    for table in tables {
        let printed = match generate(&table, &out) {
            Ok(_) => "accepted\n".to_owned(),
            Err(diagnostics) => diagnostics.iter().map(|d| format!("{d}\n")).collect(),
        };
        failures.extend(compare(&table.with_extension("stderr"), &printed)?);
    }
    assert!(fs::read_dir(&out)?.next().is_none(), "a bad table must not generate anything");
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    Ok(())
}

#[test]
fn good_table_generates_both_languages() -> Result<(), Box<dyn Error>> {
    let good = Path::new(FOLDER).join("good");
    let out = out_dir("good")?;
    let sources = generate(&good.join("native_functions.yaml"), &out)
        .map_err(|diagnostics| diagnostics.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))?;
    assert!(sources.len() > 1, "registrations are split for compile time");

    let registrations: String = sources.iter().map(fs::read_to_string).collect::<Result<Vec<_>, _>>()?.join("\n");
    let mut failures: Vec<String> = compare(&good.join("registrations.cpp"), &registrations)?.into_iter().collect();
    let mut entries = fs::read_dir(out.join("entries"))?.map(|e| Ok(e?.path())).collect::<std::io::Result<Vec<_>>>()?;
    entries.sort();
    let entries: String = entries.iter().map(fs::read_to_string).collect::<Result<Vec<_>, _>>()?.join("\n");
    failures.extend(compare(&good.join("entries.h"), &entries)?);
    for name in [
        "python_functions.h",
        "pointwise_op.h",
        "pointwise_table.rs",
        "distribution.h",
        "distributions.rs",
        "coverage.md",
    ] {
        failures.extend(compare(&good.join(name), &fs::read_to_string(out.join(name))?)?);
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    Ok(())
}

#[test]
fn rows_for_other_releases_are_excluded() -> Result<(), Box<dyn Error>> {
    let table = Path::new(FOLDER).join("good/releases.yaml");
    for (minor, expected) in [(11, "exp2(a)"), (12, "exp(a)"), (13, "exp(a)"), (15, "a + 1")] {
        let out = out_dir("releases")?;
        generate_for(Release { major: 2, minor }, &table, &out)
            .map_err(|diagnostics| diagnostics.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))?;
        let generated = fs::read_to_string(out.join("pointwise_table.rs"))?;
        let found: Vec<_> =
            ["exp2(a)", "exp(a)", "a + 1"].into_iter().filter(|expr| generated.contains(expr)).collect();
        assert_eq!(found, [expected], "torch 2.{minor}");
    }
    Ok(())
}

#[test]
fn the_range_of_releases_is_read_from_the_manifest() {
    let manifest =
        "[package]\nname = \"x\"\n\n[package.metadata.torch]\n# why\noldest = \"2.9\"\nnewest = \"2.10\"\n\n[lib]\n";
    let supported = Supported::parse(manifest).expect("both are there");
    let holds = |version: &str| Release::of_version(version).is_some_and(|release| supported.contains(release));
    assert_eq!(
        ["2.8.1", "2.9.0", "2.10.1+cpu", "2.10.0a0", "2.11.0", "3.9.0", "2"].map(holds),
        [false, true, true, true, false, false, false]
    );
    assert!(Supported::parse("[package.metadata.torch]\noldest = \"2.9\"\n").is_none());
    assert!(Supported::parse(include_str!("../../Cargo.toml")).is_some());
}

#[test]
fn missing_inputs_are_named() -> Result<(), Box<dyn Error>> {
    let out = out_dir("missing")?;
    let Err(diagnostics) = generate(Path::new("no/such/table.yaml"), &out) else {
        return Err("a table that does not exist was accepted".into());
    };
    let printed: Vec<String> = diagnostics.iter().map(ToString::to_string).collect();
    assert!(printed.iter().any(|line| line.starts_with("no/such/table.yaml: cannot be read")));
    Ok(())
}

#[test]
fn structs_with_another_layout_in_rust_are_refused() -> Result<(), Box<dyn Error>> {
    refuses("structs")
}

#[test]
fn kernels_with_unsupported_parameters_are_refused() -> Result<(), Box<dyn Error>> {
    refuses("kernels")
}

#[test]
fn scalars_of_kernels_are_packed() -> Result<(), Box<dyn Error>> {
    let out = out_dir("packed")?;
    codegen::kernels(&[&Path::new(FOLDER).join("good/kernels")], &out).map_err(|diagnostics| print(&diagnostics))?;
    let source = fs::read_to_string(out.join("cl/fill.cl"))?;
    let entries = fs::read_to_string(out.join("kernel_entries.rs"))?;
    let expected = Path::new(FOLDER).join("good");
    let differ = [compare(&expected.join("packed.cl"), &source)?, compare(&expected.join("entries.rs"), &entries)?];
    let differ: Vec<String> = differ.into_iter().flatten().collect();
    assert!(differ.is_empty(), "{}", differ.join("\n"));
    Ok(())
}

/// Reads a folder of kernel files, each of which is invalid.
fn refuses(folder: &str) -> Result<(), Box<dyn Error>> {
    let Err(diagnostics) = codegen::kernels(&[&Path::new(FOLDER).join(folder)], &out_dir(folder)?) else {
        return Err(format!("invalid {folder} were accepted").into());
    };
    match compare(&Path::new(FOLDER).join(format!("{folder}.stderr")), &print(&diagnostics))? {
        Some(failure) => Err(failure.into()),
        None => Ok(()),
    }
}

fn print(diagnostics: &[codegen::Diagnostic]) -> String {
    diagnostics.iter().map(|diagnostic| format!("{diagnostic}\n")).collect()
}

fn generate(table: &Path, out: &Path) -> Result<Vec<PathBuf>, Vec<Diagnostic>> {
    generate_for(TORCH, table, out)
}

fn generate_for(torch: Release, table: &Path, out: &Path) -> Result<Vec<PathBuf>, Vec<Diagnostic>> {
    let aten = Path::new(FOLDER).join("aten");
    let inputs = codegen::Inputs {
        table,
        aten: &aten.join("native_functions.yaml"),
        torch_include: &aten.join("include"),
        launchers: &Path::new(FOLDER).join("ops"),
        include: Path::new("rust/kernels/include"),
        native: &Path::new(FOLDER).join("native"),
        composites: &Path::new(FOLDER).join("composites"),
        torch,
        supported: SUPPORTED,
    };
    codegen::run(&inputs, out)
}

/// An empty folder for one test.
fn out_dir(test: &str) -> std::io::Result<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("codegen").join(test);
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// A message with the expected and the actual content of a file, if they differ.
fn compare(expected: &Path, actual: &str) -> std::io::Result<Option<String>> {
    if std::env::var_os("UPDATE_EXPECTED").is_some() {
        fs::write(expected, actual)?;
    }
    let text = fs::read_to_string(expected).unwrap_or_default();
    let failure = || format!("{} expects\n{text}\nbut got\n{actual}", expected.display());
    Ok((text != actual).then(failure))
}
