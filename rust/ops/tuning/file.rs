//! Results of `python -m torch_opencl.tune` for a device: one file of JSON for each, which that program writes.
//!
//! `format` and `device` say what the file is about, `values` are the parameters; only the program uses the rest. A
//! file that does not match what is expected here is not used: its values were measured on another device, driver or
//! kernel, or the file was changed.

use std::io::{self, ErrorKind};
use std::path::PathBuf;

use serde_json::{json, Map, Value};
use sha2::{Digest, Sha256};

use crate::kernels::{cache_folder, store};
use crate::runtime::Device;

/// Raised when the parameters change their meaning, or a change of kernels makes old measurements worthless.
const FORMAT: i64 = 1;
/// Letters of a device's name in the name of its file, and bytes of the hash that makes the name unique.
const NAME_LETTERS: usize = 40;
const HASH_BYTES: usize = 4;

/// Entries that a file must have for the device.
pub fn header(device: &Device) -> Map<String, Value> {
    let info = &device.info;
    let mut header = Map::new();
    header.insert("format".to_owned(), Value::from(FORMAT));
    let about = json!({
        "platform": info.platform,
        "name": info.name,
        "version": info.version,
        "driver_version": info.driver_version,
        "class": device.class.name(),
    });
    header.insert("device".to_owned(), about);
    header
}

/// Path of a device's file, whether or not it exists; `None` if nothing is kept on disk.
pub fn path(device: &Device) -> Option<PathBuf> {
    let hash = Sha256::digest(Value::Object(header(device)).to_string());
    let hash: String = hash.iter().take(HASH_BYTES).map(|byte| format!("{byte:02x}")).collect();
    let letters = device.info.name.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { ' ' });
    let words = letters.collect::<String>().to_lowercase().split_whitespace().collect::<Vec<_>>().join("-");
    let name: String = words.chars().take(NAME_LETTERS).collect();
    Some(cache_folder()?.join("tuning").join(format!("{name}-{hash}.json")))
}

/// The values in a device's file; `None` if there is no file.
///
/// # Errors
/// Why the file cannot be used.
pub fn values(device: &Device) -> std::result::Result<Option<Map<String, Value>>, String> {
    text(device).map_err(|error| error.to_string())?.map(|text| parse(&text, &header(device))).transpose()
}

/// A device's file as it is; `None` if there is no file that can be trusted.
///
/// # Errors
/// See [`store::read`].
pub fn text(device: &Device) -> io::Result<Option<String>> {
    let Some(path) = path(device) else { return Ok(None) };
    let content = store::read(&path)?;
    content.map(|bytes| String::from_utf8(bytes).map_err(|_| ErrorKind::InvalidData.into())).transpose()
}

fn parse(text: &str, header: &Map<String, Value>) -> std::result::Result<Map<String, Value>, String> {
    let mut content = match serde_json::from_str(text) {
        Ok(Value::Object(content)) => content,
        Ok(_) => return Err("it is not a JSON object".to_owned()),
        Err(error) => return Err(format!("it is not JSON: {error}")),
    };
    if let Some((name, _)) = header.iter().find(|(name, expected)| content.get(*name) != Some(*expected)) {
        return Err(match name.as_str() {
            "format" => "it was written by another version of this package".to_owned(),
            _ => "it is for another device, driver or class of kernels".to_owned(),
        });
    }
    match content.remove("values") {
        Some(Value::Object(values)) => Ok(values),
        _ => Err("it has no values".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Map<String, Value> {
        [("format".to_owned(), Value::from(FORMAT)), ("device".to_owned(), json!({ "name": "a" }))]
            .into_iter()
            .collect()
    }

    #[test]
    fn values_of_a_file_with_the_right_header_are_read() {
        let text = r#"{"device": {"name": "a"}, "format": 1, "values": {"block_k": 256}, "trials": [1]}"#;
        assert_eq!(parse(text, &header()).map(|values| values.get("block_k").cloned()), Ok(Some(Value::from(256))));
    }

    #[test]
    fn other_files_are_refused_with_the_reason() {
        for (text, reason) in [
            ("", "not JSON"),
            (r#"{"format": 1, "dev"#, "not JSON"),
            ("[]", "not a JSON object"),
            (r#"{"format": 2, "device": {"name": "a"}, "values": {}}"#, "another version"),
            (r#"{"format": 1, "device": {"name": "b"}, "values": {}}"#, "another device"),
            (r#"{"format": 1, "device": {"name": "a"}}"#, "no values"),
            (r#"{"format": 1, "device": {"name": "a"}, "values": 7}"#, "no values"),
        ] {
            assert!(parse(text, &header()).is_err_and(|error| error.contains(reason)), "{text}");
        }
    }
}
