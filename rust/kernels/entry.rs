//! Kernel parameters, which `build.rs` reads from `.cl` files (rust/codegen/kernels.rs): for `__kernel void
//! scan_totals(...)` the struct [`ScanTotals`], whose fields are the kernel's parameters, and the kernel's name
//! [`SCAN_TOTALS`], which accepts no other struct.

use std::fmt;
use std::marker::PhantomData;

use bytemuck::{Pod, Zeroable};

use super::structs::{self, SharedStruct};
use super::{Class, DType};
use crate::cl::{Arg, MemHandle, Memory};

/// The parameters of a kernel.
pub trait Arguments {
    /// Calls `run` with the arguments in the driver's format.
    fn bind<R>(&self, run: impl FnOnce(&[Arg<'_>]) -> R) -> R;

    /// A rare dtype among the arguments.
    fn rare_dtype(&self) -> Option<DType> {
        None
    }
}

/// The name of a kernel that takes `A`.
pub struct EntryPoint<A> {
    /// The name in the program.
    pub name: &'static str,
    takes: PhantomData<fn() -> A>,
}

impl<A> EntryPoint<A> {
    const fn new(name: &'static str) -> Self {
        Self { name, takes: PhantomData }
    }
}

impl<A> Clone for EntryPoint<A> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<A> Copy for EntryPoint<A> {}

impl<A> fmt::Debug for EntryPoint<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// Parameters in a list, for kernels whose number of buffers depends on the program.
#[derive(Clone, Copy, Debug)]
pub struct Listed<'a>(pub &'a [Arg<'a>]);

impl Listed<'_> {
    /// The name of a kernel with such parameters.
    pub const fn entry_point(name: &'static str) -> EntryPoint<Listed<'static>> {
        EntryPoint::new(name)
    }
}

impl Arguments for Listed<'_> {
    fn bind<R>(&self, run: impl FnOnce(&[Arg<'_>]) -> R) -> R {
        run(self.0)
    }
}

/// The arguments of a kernel, followed by those that generated source adds.
#[derive(Clone, Copy, Debug)]
pub struct Extended<'a, A> {
    /// The kernel's own arguments.
    pub own: &'a A,
    /// The arguments of the generated source.
    pub added: &'a [Arg<'a>],
}

impl<A: Arguments> Arguments for Extended<'_, A> {
    fn bind<R>(&self, run: impl FnOnce(&[Arg<'_>]) -> R) -> R {
        if self.added.is_empty() {
            return self.own.bind(run);
        }
        self.own.bind(|own| run(&[own, self.added].concat()))
    }

    fn rare_dtype(&self) -> Option<DType> {
        self.own.rare_dtype()
    }
}

impl<A> EntryPoint<A> {
    /// This kernel in a program with generated source.
    pub const fn extended<'a>(self) -> EntryPoint<Extended<'a, A>> {
        EntryPoint::new(self.name)
    }
}

/// Bytes of local memory.
#[derive(Clone, Copy, Debug)]
pub struct LocalBytes(pub usize);

/// A scalar of a compute class, `T` or `TR`, as its bits.
#[derive(Clone, Copy, Debug)]
pub struct Value([u64; 2]);

impl Value {
    /// A real value.
    pub fn real(class: Class, value: f64) -> Self {
        Self::complex(class, value, 0.0)
    }

    /// A complex value; for other classes its real part.
    pub fn complex(class: Class, real: f64, imag: f64) -> Self {
        match class {
            Class::Float => Self([u64::from((real as f32).to_bits()), 0]),
            Class::Complex => {
                let [real, imag] = [real, imag].map(|part| u64::from((part as f32).to_bits()));
                Self([imag << 32 | real, 0])
            }
            Class::Double | Class::ComplexDouble => Self([real.to_bits(), imag.to_bits()]),
            Class::Integer | Class::Unsigned => Self::integer(real as i64),
        }
    }

    /// A value of the integer classes.
    pub const fn integer(value: i64) -> Self {
        Self([value as u64, 0])
    }

    fn bits(self) -> [u64; 2] {
        self.0
    }
}

include!(concat!(env!("OUT_DIR"), "/kernel_entries.rs"));
