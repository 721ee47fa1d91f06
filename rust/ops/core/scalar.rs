//! Scalars passed with a launch.

use crate::abi::Scalar;
use crate::kernels::entry::Value;
use crate::kernels::Class;

impl Scalar {
    /// Truncates towards zero.
    #[must_use]
    pub fn trunc(self) -> Self {
        Self { real: self.real.trunc(), imag: self.imag.trunc(), ..self }
    }

    /// As a kernel argument.
    pub fn value(self, class: Class) -> Value {
        match class {
            Class::Integer | Class::Unsigned => Value::integer(self.integer),
            _ => Value::complex(class, self.real, self.imag),
        }
    }

    /// Appends the bytes of one `T`.
    pub fn write(self, class: Class, bytes: &mut Vec<u8>) {
        match class {
            Class::Float => bytes.extend((self.real as f32).to_ne_bytes()),
            Class::Double => bytes.extend(self.real.to_ne_bytes()),
            Class::Integer | Class::Unsigned => bytes.extend(self.integer.to_ne_bytes()),
            Class::Complex => {
                bytes.extend((self.real as f32).to_ne_bytes());
                bytes.extend((self.imag as f32).to_ne_bytes());
            }
            Class::ComplexDouble => {
                bytes.extend(self.real.to_ne_bytes());
                bytes.extend(self.imag.to_ne_bytes());
            }
        }
    }
}
