//! Kernel parameters, as `build.rs` reads them from `.cl` files (rust/codegen/kernels.rs): for `__kernel void
//! scan_totals(...)` the struct [`ScanTotals`], whose fields are the kernel's parameters, and the kernel's name
//! [`SCAN_TOTALS`], which goes with no other struct.

use std::fmt;
use std::marker::PhantomData;

use bytemuck::{Pod, Zeroable};

use super::structs::{self, SharedStruct};
use super::{Class, DType};
use crate::cl::{Arg, MemHandle, Memory};

/// The parameters of a kernel.
pub trait Arguments {
    /// Gives the arguments as the driver takes them.
    fn bind<R>(&self, run: impl FnOnce(&[Arg<'_>]) -> R) -> R;
}

/// The name of a kernel that takes `A`.
pub struct EntryPoint<A> {
    /// As the program has it.
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
    /// The name of such a kernel.
    pub const fn entry_point(name: &'static str) -> EntryPoint<Listed<'static>> {
        EntryPoint::new(name)
    }
}

impl Arguments for Listed<'_> {
    fn bind<R>(&self, run: impl FnOnce(&[Arg<'_>]) -> R) -> R {
        run(self.0)
    }
}

/// The arguments of a kernel, and behind them those that its program's own text adds.
#[derive(Clone, Copy, Debug)]
pub struct Extended<'a, A> {
    /// The kernel's own.
    pub own: &'a A,
    /// The text's.
    pub added: &'a [Arg<'a>],
}

impl<A: Arguments> Arguments for Extended<'_, A> {
    fn bind<R>(&self, run: impl FnOnce(&[Arg<'_>]) -> R) -> R {
        if self.added.is_empty() {
            return self.own.bind(run);
        }
        self.own.bind(|own| run(&[own, self.added].concat()))
    }
}

impl<A> EntryPoint<A> {
    /// The same kernel in programs with a text of their own.
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

    /// A complex value, or of other classes its real part.
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
