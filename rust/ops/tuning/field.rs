//! The parameters of a tuning, by name.

use std::fmt;

use serde_json::{Map, Value};

use crate::error::{Error, Result};

/// One parameter: its name, a reference to it, and its allowed values: the multiples of `step` from `least` to `most`.
#[derive(Debug)]
pub struct Field<'a> {
    pub name: &'static str,
    pub value: &'a mut i64,
    pub least: i64,
    pub most: i64,
    pub step: i64,
}

impl Field<'_> {
    /// Returns an error that names the range, if the value is outside.
    fn check(&self) -> Result<()> {
        let Self { name, value, least, most, step } = self;
        if (*least..=*most).contains(&**value) && **value % step == 0 {
            return Ok(());
        }
        Err(Error::Invalid(format!(
            "OpenCL: the tuning has {name} = {value}: expected a multiple of {step} from {least} to {most}"
        )))
    }
}

/// Sets the fields that `values` names, and checks all.
///
/// # Errors
/// [`Error::Invalid`] for an unknown name, and for a value that its field does not allow.
pub fn read(fields: &mut [Field<'_>], values: &Map<String, Value>) -> Result<()> {
    for (name, value) in values {
        let Some(field) = fields.iter_mut().find(|field| field.name == name) else {
            let names: Vec<_> = fields.iter().map(|field| field.name).collect();
            return Err(Error::Invalid(format!(
                "OpenCL: the tuning has no parameter {name}: expected some of {}",
                names.join(", ")
            )));
        };
        *field.value = value.as_i64().ok_or_else(|| {
            Error::Invalid(format!("OpenCL: the tuning has {name} = {value}: expected a whole number"))
        })?;
    }
    fields.iter().try_for_each(Field::check)
}

/// The fields as an object.
pub fn write(fields: &[Field<'_>]) -> Map<String, Value> {
    fields.iter().map(|field| (field.name.to_owned(), Value::from(*field.value))).collect()
}

/// The error for allowed values that the device does not support together.
pub fn clash(reason: impl fmt::Display) -> Error {
    Error::Invalid(format!("OpenCL: the tuning does not suit the device: {reason}"))
}
