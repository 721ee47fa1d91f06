//! What is tuned, for C++.

use serde_json::{json, Value};

use crate::blas;
use crate::error::Result;
use crate::ops::tuning::{header, path, Tuning};
use crate::runtime::device;

/// The numbers that a device uses and those that devices like it start with; the file for others, and what it has to begin
/// with.
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

/// Uses numbers on a device in this process, a JSON object of some or all of them; those that it starts with where the text
/// is empty. Libraries are compared anew.
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
