//! Tuning, for C++.

use serde_json::{json, Value};

use crate::blas;
use crate::error::{Error, Result};
use crate::kernels::store;
use crate::ops::tuning::{header, path, text, Tuning};
use crate::runtime::device;

/// The parameters that a device uses and the defaults of devices like it; the file for others, and its first content.
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

/// Sets parameters of a device in this process, a JSON object of some or all of them; the defaults where the text is
/// empty. Libraries are compared anew.
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

/// Text of a device's file; empty where there is none that can be read.
pub fn read_tuning(index: i32) -> Result<String> {
    Ok(text(device(index)?).ok().flatten().unwrap_or_default())
}

/// Writes a device's file; makes its folder only where the text is empty.
///
/// # Errors
/// [`Error::Invalid`] where nothing is kept on disk, or it cannot be written.
pub fn store_tuning(index: i32, text: &str) -> Result<()> {
    let path = path(device(index)?).ok_or_else(|| Error::Invalid("OpenCL: nothing is kept on disk".to_owned()))?;
    let written = match (text, path.parent()) {
        ("", Some(folder)) => store::make_folder(folder),
        _ => store::replace(&path, text.as_bytes()),
    };
    written.map_err(|error| Error::Invalid(format!("OpenCL: {} cannot be written: {error}", path.display())))
}
