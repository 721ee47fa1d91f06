//! Tuning, for C++.

use serde_json::{json, Value};

use crate::blas;
use crate::error::{Error, Result};
use crate::kernels::store;
use crate::ops::tuning::{header, path, text, Tuning};
use crate::runtime::device;

/// The parameters that a device uses and the defaults of its class; the path of its file, and the file's initial
/// content.
pub fn tuning_json(index: i32) -> Result<String> {
    let device = device(index)?;
    Ok(json!({
        "values": Tuning::of(device).values(),
        "defaults": Tuning::default_of(device.class, &device.info).values(),
        "path": path(device),
        "header": Value::Object(header(device)),
    })
    .to_string())
}

/// Sets parameters of a device in this process from a JSON object of some or all of them; restores the defaults if the
/// string is empty. The choice between BLAS libraries is then measured again.
pub fn set_tuning(index: i32, values: &str) -> Result<()> {
    let device = device(index)?;
    let tuning = match values {
        "" => Tuning::load(device),
        _ => Tuning::default_of(device.class, &device.info).with_text(values, &device.info)?,
    };
    tuning.set(device);
    blas::auto::forget(index);
    Ok(())
}

/// Content of a device's file; empty if it cannot be read.
pub fn read_tuning(index: i32) -> Result<String> {
    Ok(text(device(index)?).ok().flatten().unwrap_or_default())
}

/// Writes a device's file; only creates its folder if the string is empty.
///
/// # Errors
/// [`Error::Invalid`] if nothing is kept on disk, or the file cannot be written.
pub fn store_tuning(index: i32, text: &str) -> Result<()> {
    let path =
        path(device(index)?).ok_or_else(|| Error::Invalid("OpenCL: no folder to keep a tuning in".to_owned()))?;
    let written = match (text, path.parent()) {
        ("", Some(folder)) => store::make_folder(folder),
        _ => store::replace(&path, text.as_bytes()),
    };
    written.map_err(|error| Error::Invalid(format!("OpenCL: {} cannot be written: {error}", path.display())))
}
