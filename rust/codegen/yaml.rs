//! Loads a YAML list with line numbers, and gives typed access to its nodes.

use std::path::Path;

use marked_yaml::types::{MarkedMappingNode, MarkedScalarNode};
use marked_yaml::{parse_yaml_with_options, LoadError, LoaderOptions, Marker, Node, Span};

use super::diagnostic::Diagnostic;

/// A value and its line.
#[derive(Clone, Debug)]
pub struct Spanned<T> {
    pub value: T,
    pub line: usize,
}

/// A string and its line.
pub type Text = Spanned<String>;

/// Loads a file that is a list of mappings.
pub fn load_list(file: &Path, source: &str) -> Result<Vec<MarkedMappingNode>, Diagnostic> {
    if source.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
        return Err(Diagnostic::file(file, "the file has no rows"));
    }
    let options = LoaderOptions::default().toplevel_sequence().error_on_duplicate_keys(true);
    let root = parse_yaml_with_options(0, source, options).map_err(|e| syntax_error(file, source, e))?;
    let Node::Sequence(list) = root else {
        return Err(Diagnostic::file(file, "the file must be a list of rows"));
    };
    list.iter()
        .map(|node| match node {
            Node::Mapping(mapping) => Ok(mapping.clone()),
            other => Err(Diagnostic::at(file, line_of(other.span()), "a row must be a mapping")),
        })
        .collect()
}

/// The line at which a node starts.
pub fn line_of(span: &Span) -> usize {
    span.start().map_or(0, Marker::line)
}

/// A scalar as a string; the loader keeps the spelling of `1`, `true` and `null`.
pub fn text(scalar: &MarkedScalarNode) -> Text {
    Spanned { value: scalar.as_str().trim().to_owned(), line: line_of(scalar.span()) }
}

/// A list of words, or a single word instead of a list of one; `None` for anything else.
pub fn words(node: &Node) -> Option<Vec<Text>> {
    match node {
        Node::Scalar(scalar) => Some(vec![text(scalar)]),
        Node::Sequence(list) => list.iter().map(|item| item.as_scalar().map(text)).collect(),
        Node::Mapping(_) => None,
    }
}

fn syntax_error(file: &Path, source: &str, error: LoadError) -> Diagnostic {
    let at = |marker: &Marker, message: &str| Diagnostic::at(file, marker.line(), message);
    match &error {
        LoadError::ScanError(marker, reason) => at(marker, &format!("not valid YAML: {}", reason.info()))
            .hint("quote an expression that contains `: ` or ` #`, or that starts with one of `! & * - [ {`"),
        LoadError::DuplicateKey(keys) => {
            Diagnostic::at(file, line_of(keys.key.span()), format!("key `{}` is given twice", keys.key.as_str()))
        }
        LoadError::TopLevelMustBeMapping(marker) | LoadError::TopLevelMustBeSequence(marker) => {
            at(marker, "the file must be a list of rows").hint("a row starts with `- op: <name>`")
        }
        LoadError::UnexpectedAnchor(marker) => at(marker, "YAML anchors are not supported"),
        LoadError::UnexpectedTag(marker) => {
            // The parser has passed the tagged value already, perhaps to the next line.
            let lines = source.lines().take(marker.line()).enumerate();
            let tagged = lines.filter(|(_, line)| line.contains(": !")).last();
            let line = tagged.map_or(marker.line(), |(i, _)| i + 1);
            Diagnostic::at(file, line, "YAML tags are not supported").hint("quote an expression that starts with `!`")
        }
        LoadError::MappingKeyMustBeScalar(marker) => at(marker, "a key must be a word"),
    }
}
