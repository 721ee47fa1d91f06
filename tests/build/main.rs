//! Tests that a build recompiles exactly the sources that a change affects.
#![allow(clippy::expect_used)]

#[path = "../../build_support/objects.rs"]
mod objects;

use std::collections::BTreeSet;
use std::env::consts::{ARCH, OS};
use std::path::{Path, PathBuf};
use std::{env, fs};

/// A folder with two sources, one of which includes a header through another header.
struct Project(PathBuf);

impl Project {
    fn new(name: &str) -> Self {
        let project = Self(env::temp_dir().join(format!("torch-opencl-build-{name}-{}", std::process::id())));
        let _ = fs::remove_dir_all(&project.0);
        fs::create_dir_all(project.0.join("include")).expect("a folder");
        project.write("include/inner.h", "inline int inner() { return 1; }\n");
        project.write("include/outer.h", "#pragma once\n#  include \"inner.h\"\n");
        project.write("one.cpp", "#include <outer.h>\n#include <vector>\nint one() { return inner(); }\n");
        project.write("two.cpp", "int two() { return 2; }\n");
        project
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.0.join(name), text).expect("a file");
    }

    /// Builds the library, and returns the object files it is made of.
    fn build(&self, version: &[u8]) -> Result<BTreeSet<PathBuf>, String> {
        self.build_sources(&["one.cpp", "two.cpp"].map(|name| self.0.join(name)), version)
    }

    fn build_sources(&self, sources: &[PathBuf], version: &[u8]) -> Result<BTreeSet<PathBuf>, String> {
        let target = format!("{ARCH}-unknown-{OS}-gnu");
        let includes = [self.0.join("include")];
        let mut compilation = cc::Build::new();
        compilation.cpp(true).target(&target).host(&target).opt_level(0).out_dir(&self.0).includes(&includes);
        compilation.cargo_metadata(false).cargo_warnings(false);
        objects::compile(&compilation, sources, &includes, version, &self.0, "both").map_err(|e| e.to_string())?;
        assert!(self.0.join("libboth.a").exists());
        Ok(self.objects())
    }

    fn objects(&self) -> BTreeSet<PathBuf> {
        let entries = fs::read_dir(self.0.join("objects")).expect("the objects");
        entries.map(|entry| entry.expect("an entry").path()).collect()
    }
}

impl Drop for Project {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn modified(path: &Path) -> std::time::SystemTime {
    fs::metadata(path).and_then(|data| data.modified()).expect("a time")
}

#[test]
fn unchanged_sources_are_not_recompiled() {
    let project = Project::new("same");
    let first = project.build(b"1").expect("a library");
    let library = modified(&project.0.join("libboth.a"));
    assert_eq!(project.build(b"1").expect("a library"), first);
    assert_eq!(modified(&project.0.join("libboth.a")), library);
}

#[test]
fn a_changed_header_recompiles_its_includers() {
    let project = Project::new("header");
    let first = project.build(b"1").expect("a library");
    project.write("include/inner.h", "inline int inner() { return 3; }\n");
    let second = project.build(b"1").expect("a library");
    assert_eq!(first.intersection(&second).count(), 1, "only two.cpp is kept");
    assert_eq!(second.len(), 2, "old objects are removed");
}

#[test]
fn another_version_recompiles_all() {
    let project = Project::new("version");
    let first = project.build(b"1").expect("a library");
    assert!(first.is_disjoint(&project.build(b"2").expect("a library")));
}

#[test]
fn a_source_that_fails_leaves_no_library() {
    let project = Project::new("failure");
    project.build(b"1").expect("a library");
    project.write("two.cpp", "int two() { return }\n");
    project.build(b"1").expect_err("no library");
    assert!(!project.0.join("libboth.a").exists());
    project.write("two.cpp", "int two() { return 4; }\n");
    assert_eq!(project.build(b"1").expect("a library").len(), 2);
}

#[test]
fn a_unit_has_a_few_sources_of_one_folder_and_is_compiled_again_for_each_of_them() {
    let project = Project::new("units");
    fs::create_dir_all(project.0.join("other")).expect("a folder");
    let mut sources: Vec<_> = (0..9).map(|number| project.0.join(format!("part{number}.cpp"))).collect();
    sources.push(project.0.join("other/part.cpp"));
    for (number, source) in sources.iter().enumerate() {
        fs::write(source, format!("int part{number}() {{ return {number}; }}\n")).expect("a file");
    }
    let units = objects::units(&sources, &project.0).expect("units");
    assert_eq!(units.len(), 3, "five sources, four, and the one of the other folder");
    let first = project.build_sources(&units, b"1").expect("a library");
    fs::write(&sources[6], "int part6() { return 7; }\n").expect("a file");
    assert_eq!(objects::units(&sources, &project.0).expect("units"), units);
    let second = project.build_sources(&units, b"1").expect("a library");
    assert_eq!(first.intersection(&second).count(), 2, "only the second unit is compiled again");
}
